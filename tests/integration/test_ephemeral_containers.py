"""Ephemeral containers on our node: started once in a running Pod, observed, ended with it."""

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from kilnwork.api import api_resources
from kilnwork.controlplane import cluster
from kilnwork.kube import client, errors
from support import short_paths, waiting

pytestmark = pytest.mark.asyncio(loop_scope="module")

NS = "default"
STRATEGIC = "application/strategic-merge-patch+json"
WAITS = "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done"
MOUNT = [{"name": "v", "mountPath": "/v"}]
Spec = dict[str, Any]


class World:
    """A control plane with a node, and an administrator's client."""

    def __init__(self) -> None:
        self.data = short_paths.directory()
        self.plane: cluster.ControlPlane
        self.kube: client.Client

    async def start(self) -> None:
        settings = cluster.ControlPlaneSettings(
            data_dir=self.data, port=0, workdir=self.data, node_name="n1"
        )
        self.plane = cluster.ControlPlane(settings)
        await self.plane.start()
        await self.plane.start_node()
        self.kube = client.Client(self.plane.admin_config(), user_agent="test")
        await self.kube.__aenter__()

    async def leave(self) -> None:
        """Lose the server but not the containers, as a SIGKILL does."""
        await self.kube.__aexit__(None, None, None)
        assert self.plane.node is not None
        await self.plane.node.abandon()
        self.plane.node = None
        await self.plane.stop()

    async def stop(self) -> None:
        await self.kube.__aexit__(None, None, None)
        await self.plane.stop()
        shutil.rmtree(self.data)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncIterator[World]:
    made = World()
    await made.start()
    yield made
    await made.stop()


class Pod:
    """One Pod, identified by its name."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name

    async def create(self, **spec: Any) -> None:
        """Create the Pod with a main container that runs until it is ended, unless `spec` has
        another.
        """
        spec = {
            "containers": [shell("main", "while :; do sleep 0.05; done")],
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 5,
            "volumes": [{"name": "v", "emptyDir": {}}],
            **spec,
        }
        obj = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name},
            "spec": spec,
        }
        await self.world.kube.create(api_resources.PODS, obj, NS)

    async def add(self, *containers: Spec) -> None:
        """Add an ephemeral container as kubectl debug does."""
        body = msgspec.json.encode({"spec": {"ephemeralContainers": containers}})
        path = f"{api_resources.PODS.base(NS)}/{self.name}/ephemeralcontainers"
        await self.world.kube.raw("PATCH", path, body=body, content_type=STRATEGIC)

    async def read(self) -> Spec:
        return await self.world.kube.get(api_resources.PODS, self.name, NS)

    async def states(self) -> dict[str, Spec]:
        """Return the states of its ephemeral containers."""
        found = (await self.read())["status"].get("ephemeralContainerStatuses") or ()
        return {status["name"]: status["state"] for status in found}

    async def until(self, name: str, state: str) -> Spec:
        """Wait for the state of an ephemeral container; return that part of the status."""
        found: Spec = {}

        async def look() -> bool:
            nonlocal found
            found = (await self.states()).get(name, {})
            return state in found

        await waiting.wait_until_async(look, what=f"{name} is {state}", timeout_s=60)
        return dict(found[state])

    async def until_phase(self, phase: str) -> Spec:
        found: Spec = {}

        async def look() -> bool:
            nonlocal found
            found = await self.read()
            return bool(found["status"]["phase"] == phase)

        await waiting.wait_until_async(look, what=f"{self.name} is {phase}", timeout_s=60)
        return found

    async def log(self, container: str) -> str:
        path = f"{api_resources.PODS.base(NS)}/{self.name}/log"
        query = {"container": container}
        return (await self.world.kube.raw("GET", path, query=query, accept="*/*")).body.decode()

    async def delete(self) -> None:
        await self.world.kube.delete(api_resources.PODS, self.name, NS)

        async def gone() -> bool:
            try:
                await self.read()
            except errors.NotFound:
                return True
            return False

        await waiting.wait_until_async(gone, what=f"{self.name} is gone", timeout_s=60)


@pytest_asyncio.fixture(loop_scope="module")
async def pod(world: World, request: pytest.FixtureRequest) -> AsyncIterator[Pod]:
    """Return a Pod named after the test, which does not exist yet."""
    made = Pod(world, request.node.name.removeprefix("test_").replace("_", "-")[:50].strip("-"))
    yield made
    with contextlib.suppress(errors.NotFound):
        await world.kube.delete(api_resources.PODS, made.name, NS, grace_s=0)


def shell(name: str, script: str, **more: Any) -> Spec:
    return {"name": name, "image": "label", "command": ["sh", "-c", script], **more}


async def test_ephemeral_container_runs_and_its_end_is_reported(pod: Pod) -> None:
    await pod.create()
    await pod.until_phase("Running")
    await pod.add(shell("good", "echo well; exit 0"), shell("bad", "exit 4"))
    good, bad = await pod.until("good", "terminated"), await pod.until("bad", "terminated")
    assert (good["exitCode"], good["reason"]) == (0, "Completed")
    assert (bad["exitCode"], bad["reason"]) == (4, "Error")
    assert good["startedAt"] <= good["finishedAt"]
    assert await pod.log("good") == "well\n"
    status = (await pod.read())["status"]
    assert status["phase"] == "Running"
    entry = status["ephemeralContainerStatuses"][1]
    assert (entry["name"], entry["ready"], entry["restartCount"]) == ("bad", False, 0)
    assert entry["containerID"] == bad["containerID"]
    ready = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert ready["status"] == "True"


async def test_environment_arguments_workdir_and_mounts_are_applied(pod: Pod) -> None:
    at = "$CONTAINER_SANDBOX_MOUNT_POINT/v"
    await pod.create(containers=[shell("main", f'echo m > "{at}/m"; {WAITS}', volumeMounts=MOUNT)])
    await pod.until_phase("Running")
    name = {"fieldRef": {"fieldPath": "metadata.name"}}
    script = f'cat "{at}/m"; echo "$0 $A $N"; pwd; echo e > "{at}/e"'
    await pod.add(
        {
            **shell("e", script, volumeMounts=MOUNT, workingDir="/"),
            "args": ["word-$(A)"],
            "env": [{"name": "A", "value": "b"}, {"name": "N", "valueFrom": name}],
        }
    )
    await pod.until("e", "terminated")
    assert await pod.log("e") == f"m\nword-b b {pod.name}\n/\n"
    await pod.add(shell("next", f'cat "{at}/e"', volumeMounts=MOUNT))
    await pod.until("next", "terminated")
    assert await pod.log("next") == "e\n"


async def test_no_service_account_files_are_mounted(pod: Pod) -> None:
    where = '"$CONTAINER_SANDBOX_MOUNT_POINT/var/run/secrets/kubernetes.io/serviceaccount"'
    await pod.create(
        automountServiceAccountToken=True, containers=[shell("main", f"ls {where}; {WAITS}")]
    )
    await pod.until_phase("Running")
    await pod.add(shell("e", f"ls {where}"))
    assert (await pod.until("e", "terminated"))["exitCode"] != 0

    async def listed() -> bool:
        return "token" in await pod.log("main")

    await waiting.wait_until_async(listed, what="the container has them")


async def test_missing_program_ends_the_container(pod: Pod) -> None:
    await pod.create()
    await pod.add({"name": "e", "image": "label", "command": ["/nowhere/program"]})
    ended = await pod.until("e", "terminated")
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "/nowhere/program" in ended["message"]


async def test_container_that_cannot_run_waits_and_the_pod_goes_on(pod: Pod) -> None:
    await pod.create()
    await pod.until_phase("Running")
    profile = {"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}
    await pod.add(
        {"name": "no-command", "image": "label"},
        shell("refused", "true", securityContext=profile),
        shell("later", "echo $A", envFrom=[{"configMapRef": {"name": pod.name}}]),
    )
    assert "no command" in (await pod.until("no-command", "waiting"))["message"]

    async def reported() -> bool:
        return "message" in (await pod.states())["refused"]["waiting"]

    await waiting.wait_until_async(reported, what="the reason")
    state = await pod.until("refused", "waiting")
    assert state["reason"] == "CreateContainerConfigError"
    assert state["message"].startswith(
        "spec.ephemeralContainers[1].securityContext.seccompProfile.localhostProfile: refused"
    )
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": pod.name}}
    await pod.world.kube.create(api_resources.CONFIG_MAPS, {**config, "data": {"A": "came"}}, NS)
    await pod.until("later", "terminated")
    assert await pod.log("later") == "came\n"
    assert (await pod.read())["status"]["phase"] == "Running"


async def test_container_runs_beside_an_init_container(pod: Pod) -> None:
    await pod.create(initContainers=[shell("init", WAITS)])
    await pod.add(shell("e", "echo early"))
    await pod.until("e", "terminated")
    status = (await pod.read())["status"]
    assert status["phase"] == "Pending"
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"


async def test_end_of_the_main_containers_ends_it_and_the_pod(pod: Pod) -> None:
    at = '"$CONTAINER_SANDBOX_MOUNT_POINT/v/go"'
    main = shell("main", f"until [ -e {at} ]; do sleep 0.05; done", volumeMounts=MOUNT)
    await pod.create(containers=[main])
    await pod.add(shell("e", WAITS), shell("go", f"touch {at}", volumeMounts=MOUNT))
    found = await pod.until_phase("Succeeded")  # that one has failed counts for nothing
    states = {s["name"]: s["state"] for s in found["status"]["ephemeralContainerStatuses"]}
    assert states["e"]["terminated"]["exitCode"] == 3
    assert "terminated" in states["go"]
    await pod.add(shell("late", "true"))
    await pod.add(shell("later", "true"))
    await asyncio.sleep(0.3)  # nothing tells that nothing will happen
    assert {"late", "later"}.isdisjoint(
        name for name, state in (await pod.states()).items() if "waiting" not in state
    )


async def test_pod_deletion_ends_all_containers(pod: Pod) -> None:
    await pod.create(terminationGracePeriodSeconds=2)
    ends = pod.world.data / "polite"
    polite = f"trap 'echo bye > {ends}; exit 0' TERM; while :; do sleep 0.05; done"
    await pod.add(shell("polite", polite), shell("deaf", "trap '' TERM; sleep 600"))
    await pod.until("polite", "running")
    await pod.until("deaf", "running")
    began = time.monotonic()
    await pod.delete()
    assert ends.read_text() == "bye\n"
    assert time.monotonic() - began > 1.5


async def test_end_is_reported_while_the_node_shuts_down(
    pod: Pod,
) -> None:
    world, go = pod.world, pod.world.data / "go-down"
    main = f"trap 'until [ -e {go} ]; do sleep 0.05; done; exit 0' TERM; {WAITS.split('; ', 1)[1]}"
    await pod.create(containers=[shell("main", main)], terminationGracePeriodSeconds=60)
    await pod.add(shell("e", "sleep 600"))
    await pod.until("e", "running")
    stops = asyncio.create_task(world.plane.stop_node(grace_s=60))
    assert (await pod.until("e", "terminated"))["exitCode"] == 143
    assert (await pod.read())["status"]["phase"] == "Running"
    go.touch()
    await stops
    await world.plane.start_node()


async def test_exit_by_signal_is_reported(pod: Pod) -> None:
    await pod.create()
    await pod.add(shell("e", "kill -KILL $$$$"))
    ended = await pod.until("e", "terminated")
    assert (ended["exitCode"], ended["signal"], ended["reason"]) == (137, 9, "Error")


async def test_no_container_starts_twice_after_a_server_restart(pod: Pod) -> None:
    world, starts = pod.world, pod.world.data / "starts"
    await pod.create(restartPolicy="Always")
    go_on = f"until [ -e {world.data}/finish ]; do sleep 0.05; done; exit 5"
    await pod.add(
        shell("ended", f"echo ended >> {starts}"),
        shell("running", f"echo running >> {starts}; {go_on}"),
    )
    await pod.until("ended", "terminated")
    await pod.until("running", "running")
    await world.leave()
    await world.start()
    await pod.add(shell("new", f"echo new >> {starts}"))
    await pod.until("new", "terminated")
    assert "running" in (await pod.states())["running"]
    (world.data / "finish").touch()
    assert (await pod.until("running", "terminated"))["exitCode"] == 5
    assert sorted(starts.read_text().split()) == ["ended", "new", "running"]
    assert await pod.log("ended") == ""


async def test_eight_concurrent_containers_all_end(pod: Pod) -> None:
    counted = pod.world.data / "counted"
    await pod.create()
    await pod.until_phase("Running")
    names = iter([f"e{number:02}" for number in range(40)])

    async def work() -> None:
        for name in names:
            await pod.add(shell(name, f"echo {name} >> {counted}"))
            assert (await pod.until(name, "terminated"))["exitCode"] == 0

    await asyncio.gather(*(work() for _ in range(8)))
    assert sorted(counted.read_text().split()) == [f"e{number:02}" for number in range(40)]
    assert (await pod.read())["status"]["phase"] == "Running"


async def test_container_costs_at_most_two_status_writes(
    pod: Pod,
) -> None:
    await pod.create()
    version = (await pod.until_phase("Running"))["metadata"]["resourceVersion"]
    ended: list[str] = []
    writes = 0
    reported = asyncio.Event()

    async def watch() -> None:
        nonlocal writes
        changes = pod.world.kube.watch(
            api_resources.PODS,
            NS,
            resource_version=version,
            type=dict[str, Any],
            field_selector=f"metadata.name={pod.name}",
        )
        async with contextlib.aclosing(changes):
            async for change in changes:
                found = (change.object or {}).get("status", {})
                states = found.get("ephemeralContainerStatuses") or ()
                writes += change.object is not None
                ended[:] = [s["name"] for s in states if "terminated" in s["state"]]
                reported.set()

    watching = asyncio.create_task(watch())
    try:
        for number in range(10):
            await pod.add(shell(f"e{number}", "true"))
            async with asyncio.timeout(30):
                while len(ended) <= number:
                    reported.clear()
                    await reported.wait()
    finally:
        watching.cancel()
        await asyncio.wait({watching})
    assert ended == [f"e{number}" for number in range(10)]
    assert writes <= 30
