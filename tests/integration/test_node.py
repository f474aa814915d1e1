"""The local node under the real API server: it runs Pods as processes and reports their
statuses.
"""

import asyncio
import base64
import contextlib
import shutil
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kilnwork.api import api_resources
from kilnwork.controlplane import cluster
from kilnwork.controlplane.apiserver import discovery
from kilnwork.controlplane.node import node_lease, registration, shim_container, statuses
from kilnwork.kit import clock, processes
from kilnwork.kube import client, errors
from support import short_paths, waiting

NS = "default"


class World:
    """One data directory, its control plane with a node, and an administrator's client."""

    def __init__(self) -> None:
        self.data = short_paths.directory()
        self.workdir = self.data / "work"
        self.workdir.mkdir()
        self.uids: set[str] = set()
        self.plane: cluster.ControlPlane
        self.kube: client.Client

    async def start(self) -> None:
        settings = cluster.ControlPlaneSettings(
            data_dir=self.data, port=0, workdir=self.workdir, node_name="n1"
        )
        self.plane = cluster.ControlPlane(settings)
        await self.plane.start()
        await self.plane.start_node()
        self.kube = client.Client(self.plane.admin_config(), user_agent="test")
        await self.kube.__aenter__()

    async def stop(self) -> None:
        await self.kube.__aexit__(None, None, None)
        await self.plane.stop()

    def holder(self) -> str:
        """Return the holder in the node's Lease."""
        return node_lease.holder(self.data, "not asked")

    async def crash(self) -> None:
        """Lose the server but not the shim, as a SIGKILL does."""
        assert self.plane.node is not None
        await self.kube.__aexit__(None, None, None)
        await self.plane.node.abandon()
        self.plane.node = None
        await self.plane.stop()

    def close(self) -> None:
        for uid in self.uids:
            for number in range(4):
                marker = f"{shim_container.MARKER}={uid}/main/{number}"
                assert processes.find_members(None, marker=marker) == set()
        shutil.rmtree(self.data)

    async def run(self, name: str, *command: str, **more: Any) -> dict[str, Any]:
        """Create a Pod; `more`: fields of the container in `main`, others of the spec."""
        main = {"name": "main", "image": "label", "command": list(command), **more.pop("main", {})}
        spec = {
            "containers": [main],
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            **more,
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        made = await self.kube.create(api_resources.PODS, pod, NS)
        self.uids.add(made["metadata"]["uid"])
        return made

    async def shell(self, name: str, script: str, **more: Any) -> dict[str, Any]:
        return await self.run(name, "sh", "-c", script, **more)

    async def get(self, name: str) -> dict[str, Any]:
        return await self.kube.get(api_resources.PODS, name, NS)

    async def until(self, name: str, *phases: str, timeout_s: float = 30.0) -> dict[str, Any]:
        """Wait for a phase; return the Pod."""
        found: dict[str, Any] = {}

        async def look() -> bool:
            nonlocal found
            found = await self.get(name)
            return found["status"]["phase"] in phases

        await waiting.wait_until_async(look, what=f"{name} is {phases}", timeout_s=timeout_s)
        return found

    async def until_state(self, name: str, state: str, reason: str) -> dict[str, Any]:
        """Wait for a container state with a reason; return that state."""
        found: dict[str, Any] = {}

        async def look() -> bool:
            nonlocal found
            states = (await self.get(name))["status"].get("containerStatuses") or [{"state": {}}]
            found = states[0]["state"].get(state) or {}
            return found.get("reason") == reason

        await waiting.wait_until_async(look, what=f"{name} is {state}/{reason}")
        return found

    async def until_gone(self, name: str) -> None:
        async def gone() -> bool:
            with contextlib.suppress(errors.NotFound):
                await self.get(name)
                return False
            return True

        await waiting.wait_until_async(gone, what=f"{name} is gone")

    async def log(self, name: str, **query: str) -> str:
        path = f"{api_resources.PODS.base(NS)}/{name}/log"
        response = await self.kube.raw("GET", path, query=query, accept="*/*")
        return response.body.decode()

    async def until_logged(self, name: str) -> None:
        """Wait until the container has written something."""

        async def logged() -> bool:
            return bool(await self.log(name))

        await waiting.wait_until_async(logged, what=f"{name} writes")

    def pid(self, uid: str, number: int = 0) -> int:
        """Return the container's first process."""
        found = processes.find_marked(f"{shim_container.MARKER}={uid}/main/{number}")
        return min(found, default=0)

    def shim(self, pid: int) -> int:
        """Return the parent of a container's first process."""
        needle = str(self.data / "shim").encode()
        [found] = [
            p
            for p in processes.all_pids()
            if needle in _command(p) and pid in processes.children(p)
        ]
        return found


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.start()
    yield made
    await made.stop()
    made.close()


async def test_node_registers_itself(world: World) -> None:
    node = await world.kube.get(api_resources.NODES, "n1")
    assert node["metadata"]["labels"]["kilnwork.dev/local"] == "true"
    ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
    assert ready["status"] == "True"
    assert int(node["status"]["capacity"]["cpu"]) >= 1
    assert node["status"]["nodeInfo"]["kubeletVersion"] == discovery.version()["gitVersion"]

    async def lease() -> bool:
        with contextlib.suppress(errors.NotFound):
            found = await world.kube.get(api_resources.LEASES, "n1", "kube-node-lease")
            return bool(found["spec"]["holderIdentity"] == world.holder())
        return False

    await waiting.wait_until_async(lease, what="the lease is held")


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (3, "Failed")])
async def test_pod_runs_and_reports_its_exit_code(world: World, code: int, phase: str) -> None:
    await world.shell("p", f"echo hello; exit {code}")
    pod = await world.until("p", "Succeeded", "Failed")
    assert pod["status"]["phase"] == phase
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == code
    assert await world.log("p") == "hello\n"


async def test_pod_gets_environment_volumes_and_account(world: World) -> None:
    secret = {"k": base64.b64encode(b"hush").decode()}
    await world.kube.create(
        api_resources.SECRETS,
        {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}, "data": secret},
        NS,
    )
    main = {
        "env": [
            {"name": "FROM_FIELD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ],
        "volumeMounts": [
            {"name": "conf", "mountPath": "/etc/conf"},
            {"name": "scratch", "mountPath": "/scratch"},
        ],
    }
    volumes = [
        {"name": "conf", "secret": {"secretName": "s"}},
        {"name": "scratch", "emptyDir": {}},
    ]
    script = """
        echo $FROM_FIELD $FROM_SECRET
        cd "$CONTAINER_SANDBOX_MOUNT_POINT"
        cat etc/conf/k; echo
        echo kept > scratch/f && cat scratch/f
        cd var/run/secrets/kubernetes.io/serviceaccount
        cat namespace; echo; head -1 ca.crt; cut -c1-3 token
        echo $KUBERNETES_SERVICE_HOST
    """
    await world.shell("p", script, main=main, volumes=volumes, automountServiceAccountToken=True)
    await world.until("p", "Succeeded")
    assert (await world.log("p")).splitlines() == [
        "p hush",
        "hush",
        "kept",
        "default",
        "-----BEGIN CERTIFICATE-----",
        "eyJ",
        "127.0.0.1",
    ]


@pytest.mark.parametrize("deed", ["delete", "not ready"])
async def test_deleted_or_changed_node_is_restored(world: World, deed: str) -> None:
    if deed == "delete":
        await world.kube.delete(api_resources.NODES, "n1")
    else:
        broken = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        await world.kube.merge_patch(api_resources.NODES, "n1", broken, subresource="status")
    now = clock.SystemClock()
    identity = registration.NodeIdentity("n1", "127.0.0.1", 1, holder=world.holder())
    again = registration.Registration(world.kube, identity, now=now)
    turn = asyncio.create_task(again.keep())  # as the node's own does within ten seconds

    async def ready() -> bool:
        try:
            node = await world.kube.get(api_resources.NODES, "n1")
        except errors.NotFound:
            return False
        conditions = node.get("status", {}).get("conditions", ())
        return [c["status"] for c in conditions if c["type"] == "Ready"] == ["True"]

    await waiting.wait_until_async(ready, what="the node is ready again")
    turn.cancel()
    await world.run("again", "true")
    await world.until("again", "Succeeded")


async def test_container_runs_in_the_working_directory_of_the_node(world: World) -> None:
    await world.run("p", "pwd")
    await world.until("p", "Succeeded")
    assert await world.log("p") == f"{world.workdir}\n"


async def test_missing_secret_is_named_and_waited_for(world: World) -> None:
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "later", "key": "k"}}}]
    await world.shell("p", "echo $A", main={"env": env})
    waits = await world.until_state("p", "waiting", "CreateContainerConfigError")
    assert waits["message"] == 'secret "later" not found'
    with pytest.raises(errors.Invalid, match="is waiting to start: CreateContainerConfigError"):
        await world.log("p")
    made = {
        "kind": "Secret",
        "apiVersion": "v1",
        "metadata": {"name": "later"},
        "stringData": {"k": "v"},
    }
    await world.kube.create(api_resources.SECRETS, made, NS)
    await world.until("p", "Succeeded")
    assert await world.log("p") == "v\n"


async def test_missing_program_fails_the_pod(world: World) -> None:
    await world.run("p", "no-such-program")
    await world.until("p", "Failed")
    ended = await world.until_state("p", "terminated", "StartError")
    assert ended["exitCode"] == shim_container.START_ERROR
    assert '"no-such-program": executable file not found in PATH' in ended["message"]


async def test_volume_that_the_node_does_not_offer_fails_the_pod(world: World) -> None:
    await world.run("p", "true", volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}])
    pod = await world.until("p", "Failed")
    assert pod["status"]["reason"] == statuses.UNSUPPORTED
    assert "spec.volumes[0].nfs: refused" in pod["status"]["message"]


async def test_killed_container_shows_its_signal(world: World) -> None:
    made = await world.shell("p", "sleep 300")
    await world.until("p", "Running")
    processes.signal_all([world.pid(made["metadata"]["uid"])], signal.SIGKILL)
    await world.until("p", "Failed")
    ended = await world.until_state("p", "terminated", "Error")
    assert (ended["exitCode"], ended["signal"]) == (137, 9)


async def test_container_is_restarted_with_backoff(world: World) -> None:
    await world.shell("p", "echo run; exit 1", restartPolicy="Always")
    status: dict[str, Any] = {}

    async def waits_after_the_first() -> bool:
        nonlocal status
        status = (await world.get("p"))["status"]
        found = (status.get("containerStatuses") or [{"state": {}}])[0]
        waiting_for = found["state"].get("waiting", {}).get("reason")
        return bool(waiting_for == "CrashLoopBackOff" and found["restartCount"] == 1)

    await waiting.wait_until_async(waits_after_the_first, what="it waits after one restart")
    assert status["phase"] == "Running"
    assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1

    async def third() -> bool:
        found = (await world.get("p"))["status"]["containerStatuses"][0]
        return bool(found["restartCount"] >= 2)

    await waiting.wait_until_async(third, what="the second restart")
    assert await world.log("p", previous="true") == "run\n"


async def test_deleting_ends_the_process_within_its_grace(world: World) -> None:
    made = await world.shell("p", "trap 'exit 0' TERM; echo up; sleep 300 & wait")
    await world.until("p", "Running")
    await world.until_logged("p")
    before = time.monotonic()
    await world.kube.delete(api_resources.PODS, "p", NS)
    await world.until_gone("p")
    assert time.monotonic() - before < 20  # the grace would be 30
    uid = made["metadata"]["uid"]
    await waiting.wait_until_async(
        lambda: not (world.data / "pods" / uid).exists(), what="its directory is gone"
    )


async def test_container_that_ignores_sigterm_is_killed(world: World) -> None:
    made = await world.shell("p", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    await world.until("p", "Running")
    await world.until_logged("p")
    await world.kube.delete(api_resources.PODS, "p", NS, grace_s=1)
    await world.until_gone("p")
    assert world.pid(made["metadata"]["uid"]) == 0


async def test_forced_deletion_ends_the_process_too(world: World) -> None:
    made = await world.shell("p", "trap '' TERM; while :; do sleep 0.1; done")
    await world.until("p", "Running")
    await world.kube.delete(api_resources.PODS, "p", NS, grace_s=0)
    await waiting.wait_until_async(
        lambda: world.pid(made["metadata"]["uid"]) == 0, what="the process is gone"
    )


async def test_log_is_followed_to_its_end(world: World) -> None:
    gate = world.workdir / "gate"
    held = f"until [ -e {gate} ]; do sleep 0.02; done"
    await world.shell("p", f"{held}; for i in 1 2 3; do echo $i; sleep 0.2; done")
    await world.until("p", "Running")
    following = asyncio.create_task(world.log("p", follow="true"))
    gate.touch()
    assert await following == "1\n2\n3\n"


async def test_pod_starts_as_soon_as_it_is_created(world: World) -> None:
    """Within 0.1 s on an idle machine; the best of five, since other processes may run."""
    took = []
    for number in range(5):
        created = time.time()
        await world.run(f"p{number}", "date", "+%s.%N")
        await world.until(f"p{number}", "Succeeded")
        took.append(float(await world.log(f"p{number}")) - created)
    assert min(took) < 1, took


async def test_new_server_adopts_running_and_ended_containers(world: World) -> None:
    stays = await world.shell("stays", "echo up; sleep 300")
    gate = world.workdir / "gate"
    ends = await world.shell("ends", f"until [ -e {gate} ]; do sleep 0.02; done; exit 4")
    await world.until("stays", "Running")
    await world.until_logged("stays")
    await world.until("ends", "Running")
    pid = world.pid(stays["metadata"]["uid"])
    await world.crash()
    gate.touch()
    await waiting.wait_until_async(
        lambda: world.pid(ends["metadata"]["uid"]) == 0, what="the other has ended"
    )
    await world.start()
    ended = await world.until("ends", "Failed")
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
    found = await world.get("stays")
    assert found["status"]["phase"] == "Running"
    assert found["status"]["containerStatuses"][0]["restartCount"] == 0
    assert world.pid(stays["metadata"]["uid"]) == pid
    assert await world.log("stays") == "up\n"


async def test_container_of_a_vanished_pod_is_ended(world: World) -> None:
    made = await world.shell("p", "trap '' TERM; while :; do sleep 0.1; done")
    await world.until("p", "Running")
    assert world.plane.node is not None
    await world.plane.node.abandon()
    await world.kube.delete(api_resources.PODS, "p", NS, grace_s=0)
    await world.shell("p", "sleep 300")
    await world.plane.start_node()
    uid = made["metadata"]["uid"]
    await waiting.wait_until_async(lambda: world.pid(uid) == 0, what="the old process is gone")
    await waiting.wait_until_async(
        lambda: not (world.data / "pods" / uid).exists(), what="its directory is gone"
    )
    await world.until("p", "Running")


async def test_killed_shim_is_replaced_without_loss(world: World) -> None:
    made = await world.shell("p", "sleep 300")
    await world.until("p", "Running")
    pid = world.pid(made["metadata"]["uid"])
    processes.signal_all([world.shim(pid)], signal.SIGKILL)
    await world.shell("q", "echo again")
    await world.until("q", "Succeeded")
    assert world.pid(made["metadata"]["uid"]) == pid
    assert (await world.get("p"))["status"]["phase"] == "Running"
    await world.kube.delete(api_resources.PODS, "p", NS, grace_s=1)
    await world.until_gone("p")


async def test_container_ends_although_the_shim_dies(world: World) -> None:
    reported = world.workdir / "reported"
    script = f"trap 'touch {reported}' TERM; echo up; while :; do sleep 0.1; done"
    made = await world.shell("p", script)
    await world.until("p", "Running")
    await world.until_logged("p")
    shim = world.shim(world.pid(made["metadata"]["uid"]))
    await world.kube.delete(api_resources.PODS, "p", NS, grace_s=2)
    await waiting.wait_until_async(reported.exists, what="SIGTERM was sent")
    processes.signal_all([shim], signal.SIGKILL)
    await world.until_gone("p")
    assert world.pid(made["metadata"]["uid"]) == 0


async def test_stopping_ends_every_process_and_the_shim() -> None:
    made = World()
    await made.start()
    await made.shell("never", "sleep 300")
    await made.shell("always", "sleep 300", restartPolicy="Always")
    await made.until("never", "Running")
    await made.until("always", "Running")
    await made.stop()
    needle = str(made.data).encode()
    left = [p for p in processes.all_pids() if needle in _command(p)]
    assert left == []
    await made.start()
    never = await made.until("never", "Failed")
    ended = never["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["signal"]) == (143, 15)

    async def again() -> bool:
        found = (await made.get("always"))["status"]["containerStatuses"][0]
        return bool(found["restartCount"] == 1 and "running" in found["state"])

    await waiting.wait_until_async(again, what="the other runs again")
    await made.stop()
    made.close()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_reconciling_again_writes_nothing(world: World) -> None:
    await world.shell("p", "sleep 300")
    await world.until("p", "Running")
    before = (await world.get("p"))["metadata"]["resourceVersion"]
    assert world.plane.node is not None
    world.plane.node._reconciler.enqueue_all()
    await asyncio.sleep(0.3)
    assert (await world.get("p"))["metadata"]["resourceVersion"] == before
