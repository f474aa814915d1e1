"""Pods of several containers on our node: order, sidecars, probes, hooks, deadlines."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kilnwork.api import api_resources
from kilnwork.kube import errors
from support import control_plane_world, waiting
from support import free_ports as support_ports

NS = "default"
Spec = dict[str, Any]


class World(control_plane_world.World):
    """A control plane with a node, and an administrator's client."""

    def __init__(self) -> None:
        super().__init__(node_name="n1")

    async def create(self, **spec: Any) -> None:
        """Create Pod `p`; each container without an image gets one."""
        spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, **spec}
        for field in ("containers", "initContainers"):
            spec[field] = [{"image": "label", **c} for c in spec.get(field) or ()]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
        await self.kube.create(api_resources.PODS, pod, NS)

    async def status(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.kube.get(api_resources.PODS, "p", NS))["status"]
        return found

    async def until_phase(self, phase: str) -> dict[str, Any]:
        found: dict[str, Any] = {}

        async def look() -> bool:
            nonlocal found
            found = await self.status()
            return bool(found["phase"] == phase)

        await waiting.wait_until_async(look, what=f"p is {phase}")
        return found

    async def until_restarted(self, count: int) -> dict[str, Any]:
        """Wait for restarts of the first container; return its status."""
        found: dict[str, Any] = {}

        async def look() -> bool:
            nonlocal found
            found = ((await self.status()).get("containerStatuses") or [{}])[0]
            return bool(found.get("restartCount", 0) >= count)

        await waiting.wait_until_async(look, what="it is restarted")
        return found

    async def log(self, container: str) -> str:
        path = f"{api_resources.PODS.base(NS)}/p/log"
        query = {"container": container}
        return (await self.kube.raw("GET", path, query=query, accept="*/*")).body.decode()

    async def event(self, reason: str) -> str:
        """Wait for a kube event about the Pod; return its text."""
        found = ""

        async def look() -> bool:
            nonlocal found
            listed = await self.kube.list(api_resources.EVENTS, NS, type=dict)
            texts = [e["message"] for e in listed.items if e["reason"] == reason]
            found = texts[0] if texts else ""
            return bool(texts)

        await waiting.wait_until_async(look, what=f"event {reason}")
        return found


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with World() as made:
        yield made


def shell(name: str, script: str, **more: Any) -> Spec:
    return {"name": name, "command": ["sh", "-c", script], **more}


WAITS = "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done"


async def test_init_containers_come_first_and_share_volumes(world: World) -> None:
    mount = [{"name": "v", "mountPath": "/v"}]
    at = 'cd "$CONTAINER_SANDBOX_MOUNT_POINT/v"'
    await world.create(
        volumes=[{"name": "v", "emptyDir": {}}],
        initContainers=[
            shell("one", f"{at}; echo 1 >> f", volumeMounts=mount),
            shell("two", f"{at}; echo 2 >> f", volumeMounts=mount),
        ],
        containers=[
            shell("a", f"{at}; cat f", volumeMounts=mount),
            shell("b", "exit 0"),
        ],
    )
    found = await world.until_phase("Succeeded")
    assert await world.log("a") == "1\n2\n"
    ends = [s["state"]["terminated"]["exitCode"] for s in found["initContainerStatuses"]]
    assert ends == [0, 0]
    assert [s["name"] for s in found["containerStatuses"]] == ["a", "b"]


async def test_failed_init_container_fails_the_pod(world: World) -> None:
    await world.create(
        initContainers=[shell("one", "exit 3")], containers=[shell("a", "echo never")]
    )
    found = await world.until_phase("Failed")
    assert found["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert found["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


async def test_one_of_two_containers_fails_the_pod_when_both_are_over(world: World) -> None:
    await world.create(containers=[shell("a", "exit 1"), shell("b", "sleep 0.3; echo b")])
    found = await world.until_phase("Failed")
    assert await world.log("b") == "b\n"
    ends = [s["state"]["terminated"]["exitCode"] for s in found["containerStatuses"]]
    assert ends == [1, 0]


async def test_sidecar_starts_before_and_ends_after_the_others(world: World) -> None:
    up = world.data / "up"
    side = f"trap 'exit 0' TERM; echo up; touch {up}; while :; do sleep 0.05; done"
    await world.create(
        initContainers=[shell("side", side, restartPolicy="Always")],
        containers=[shell("a", f"until [ -e {up} ]; do sleep 0.05; done; echo done")],
    )
    found = await world.until_phase("Succeeded")
    for ended in (found["initContainerStatuses"][0], found["containerStatuses"][0]):
        assert ended["state"]["terminated"]["exitCode"] == 0
    assert (await world.log("side")).startswith("up\n")


async def test_readiness_follows_a_command(world: World) -> None:
    probe = {"exec": {"command": ["test", "-e", str(world.data / "ok")]}, "periodSeconds": 1}
    await world.create(containers=[shell("a", WAITS, readinessProbe=probe)])
    found = await world.until_phase("Running")
    assert not found["containerStatuses"][0]["ready"]
    assert "Readiness probe failed" in await world.event("Unhealthy")
    (world.data / "ok").touch()

    async def ready() -> bool:
        conditions = (await world.status())["conditions"]
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    await waiting.wait_until_async(ready, what="it is ready")


async def test_failed_liveness_probe_restarts_the_container(world: World) -> None:
    up = world.data / "up"
    command = ["test", "!", "-e", str(up)]
    probe = {"exec": {"command": command}, "periodSeconds": 1, "failureThreshold": 1}
    script = f"trap 'rm {up}; exit 0' TERM; touch {up}; while :; do sleep 0.05; done"
    await world.create(
        restartPolicy="OnFailure", containers=[shell("a", script, livenessProbe=probe)]
    )
    found = await world.until_restarted(1)
    assert found["lastState"]["terminated"]["exitCode"] == 0  # it ended well, yet starts again
    assert "failed liveness probe" in await world.event("Killing")


@pytest.mark.parametrize("kind", ["httpGet", "tcpSocket"])
async def test_container_is_started_when_its_port_responds(world: World, kind: str) -> None:
    port = support_ports.free()
    probe = {
        kind: {"port": "web"},
        "periodSeconds": 1,
        "timeoutSeconds": 20,
        "failureThreshold": 60,
    }
    gate = world.data / "gate"
    held = f"until [ -e {gate} ]; do sleep 0.05; done"
    serve = f"{held}; exec python3 -m http.server {port} --bind 127.0.0.1"
    ports = [{"name": "web", "containerPort": port}]
    await world.create(
        terminationGracePeriodSeconds=1,
        containers=[shell("a", serve, startupProbe=probe, ports=ports)],
    )
    found = await world.until_phase("Running")
    assert not found["containerStatuses"][0]["started"]
    gate.touch()

    async def started() -> bool:
        return bool((await world.status())["containerStatuses"][0]["started"])

    await waiting.wait_until_async(started, what="it has started")


async def test_deadline_ends_the_pod(world: World) -> None:
    await world.create(
        activeDeadlineSeconds=3, terminationGracePeriodSeconds=1, containers=[shell("a", WAITS)]
    )
    found = await world.until_phase("Failed")
    assert found["reason"] == "DeadlineExceeded"
    assert "terminated" in found["containerStatuses"][0]["state"]


async def test_poststart_hook_of_a_sidecar_delays_the_others(world: World) -> None:
    go, reported = world.data / "go", world.data / "reported"
    hook = f"echo hook >> {reported}; until [ -e {go} ]; do sleep 0.05; done; echo go >> {reported}"
    lifecycle = {"postStart": {"exec": {"command": ["sh", "-c", hook]}}}
    await world.create(
        initContainers=[
            shell("side", WAITS, restartPolicy="Always", lifecycle=lifecycle),
            shell("one", f"echo one >> {reported}"),
        ],
        containers=[shell("a", f"echo a >> {reported}")],
    )
    await waiting.wait_until_async(reported.exists, what="the hook runs")

    async def runs() -> bool:
        found: list[dict[str, Any]] = (await world.status()).get("initContainerStatuses") or []
        return bool(found) and "running" in found[0]["state"] and not found[0]["started"]

    await waiting.wait_until_async(runs, what="the sidecar runs and has not started")
    go.touch()
    await world.until_phase("Succeeded")
    assert reported.read_text().split() == ["hook", "go", "one", "a"]


async def test_mount_paths_expand_variables(world: World) -> None:
    variable = {"name": "FILE", "value": "$(CONTAINER_SANDBOX_MOUNT_POINT)/v/socket"}
    env = [{"name": "CONTAINER_SANDBOX_MOUNT_POINT", "value": ""}, variable]
    listen = "import os, socket; socket.socket(socket.AF_UNIX).bind(os.environ['FILE'])"
    mount = [{"name": "v", "mountPath": "/v"}]
    binds = {"name": "a", "command": [sys.executable, "-c", listen], "env": env}
    await world.create(
        volumes=[{"name": "v", "emptyDir": {}}],
        containers=[{**binds, "volumeMounts": mount}],
    )
    await world.until_phase("Succeeded")


async def test_termination_message_is_read_from_its_file(world: World) -> None:
    root = '"$CONTAINER_SANDBOX_MOUNT_POINT'
    output = f'printf said > {root}/dev/termination-log"'
    long = f'head -c 5000 /dev/zero | tr "\\0" x > {root}/dev/termination-log"'
    there = f'printf there > {root}/tmp/words"'
    away = f'ln -sf /etc/hostname {root}/dev/termination-log"'
    await world.create(
        containers=[
            shell("said", output),
            shell("long", long),
            shell("there", there, terminationMessagePath="/tmp/words"),
            shell("away", away),
            shell("log", "echo logged; exit 1", terminationMessagePolicy="FallbackToLogsOnError"),
            shell("none", "echo logged; exit 1"),
        ]
    )
    found = await world.until_phase("Failed")
    words = {
        each["name"]: each["state"]["terminated"].get("message", "")
        for each in found["containerStatuses"]
    }
    assert words == {
        "said": "said", "long": "x" * 4096, "there": "there", "away": "", "log": "logged\n",
        "none": "",
    }  # fmt: skip


async def test_termination_message_written_without_a_node_is_kept(world: World) -> None:
    go, pid = world.data / "go", world.data / "pid"
    waits = f"echo $$ > {pid}; until [ -e {go} ]; do sleep 0.05; done"
    words = 'printf said > "$CONTAINER_SANDBOX_MOUNT_POINT/dev/termination-log"'
    await world.create(containers=[shell("a", f"{waits}; {words}")])
    await world.until_phase("Running")
    await waiting.wait_until_async(lambda: pid.exists() and pid.read_text(), what="it has begun")
    process = Path("/proc", pid.read_text().strip())
    assert world.plane.node is not None
    await world.plane.node.abandon()
    go.touch()
    await waiting.wait_until_async(lambda: not process.exists(), what="it is over")
    await world.plane.start_node()
    found = await world.until_phase("Succeeded")
    assert found["containerStatuses"][0]["state"]["terminated"]["message"] == "said"


async def test_hooks_run_after_the_start_and_before_the_end(world: World) -> None:
    reported = world.data / "reported"
    hooks = {
        "postStart": {"exec": {"command": ["sh", "-c", f"echo start $HOSTNAME >> {reported}"]}},
        "preStop": {"exec": {"command": ["sh", "-c", f"echo stop >> {reported}"]}},
    }
    await world.create(containers=[shell("a", WAITS, lifecycle=hooks)])
    await waiting.wait_until_async(reported.exists, what="postStart has run")
    await world.kube.delete(api_resources.PODS, "p", NS)

    async def gone() -> bool:
        with contextlib.suppress(errors.NotFound):
            await world.status()
            return False
        return True

    before = time.monotonic()
    await waiting.wait_until_async(gone, what="it is gone")
    assert time.monotonic() - before < 20  # the grace would be 30
    assert reported.read_text() == "start p\nstop\n"


async def test_restarted_node_keeps_a_container_unready_until_probed(world: World) -> None:
    """As on a kubelet: the status is kept until the probe has a result."""
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 5, "failureThreshold": 3}
    await world.create(containers=[shell("a", WAITS, readinessProbe=probe, startupProbe=probe)])
    await world.until_phase("Running")
    assert world.plane.node is not None
    await world.plane.node.abandon()
    before = await world.kube.get(api_resources.PODS, "p", NS)
    await world.plane.start_node()
    assert world.plane.node is not None
    world.plane.node._reconciler.enqueue_all()
    await asyncio.sleep(0.5)
    after = await world.kube.get(api_resources.PODS, "p", NS)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    status = after["status"]["containerStatuses"][0]
    assert (status["ready"], status["started"]) == (False, False)
