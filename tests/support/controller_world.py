"""An API server, a fake dispatcher, and the real controllers between them.

For tests of the controllers. `World` declares objects, waits for their statuses, and counts writes
to them.
"""

import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kilnwork import controllers
from kilnwork.api import api_resources, kinds, meta
from kilnwork.dispatch import model
from kilnwork.kit import clock, coroutines
from kilnwork.kube import client
from support import embedded_server, empty_job_hub, fake_hub, waiting

NS = "default"
LONG = "a." * 126 + "a"
SETTINGS = controllers.WorkerPodSettings(
    channel="unix:/run/kiln/channel.sock",
    worker_command=("python", "-m", "kilnwork.worker"),
    worker_image="kilnwork/worker:test",
)
QUIET_S = 0.3
"""Long enough for a write that should not happen to happen."""


class Writes:
    """Counts the changes of each object of one kind, from its own watch."""

    def __init__(self, kube: client.Client, kind: api_resources.Resource) -> None:
        self.count: Counter[str] = Counter()
        self._seen: dict[str, str] = {}
        self._kube = kube
        self._kind = kind

    async def follow(self) -> None:
        changes = self._kube.watch(self._kind, NS, resource_version="1", type=meta.Partial)
        async with contextlib.aclosing(changes):
            async for change in changes:
                if change.kind == "MODIFIED":
                    self.count[change.key[1]] += 1
                self._seen[change.key[1]] = change.resource_version

    async def counted(self) -> Counter[str]:
        """Return the current counts of all existing objects, once the watch has caught up."""

        async def level() -> bool:
            listed = await self._kube.list(self._kind, NS, type=dict)
            now = {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in listed.items}
            return now.items() <= self._seen.items()

        await waiting.wait_until_async(level, what="the watch has come so far")
        return self.count.copy()


class World:
    """An API server, a fake dispatcher, and controllers between them."""

    def __init__(self, kube: client.Client) -> None:
        self.kube = kube
        self.hub = fake_hub.FakeHub(wall=clock.SystemClock().wall())
        self.controllers = self._new()
        self.tasks = Writes(kube, kinds.TASKS)
        self.clusters = Writes(kube, kinds.TASK_CLUSTERS)
        self._watching = coroutines.BackgroundWork("test")

    async def start(self) -> None:
        for writes in (self.tasks, self.clusters):
            self._watching.start("writes", writes.follow())
        await self.controllers.start(self.hub, empty_job_hub.engine())

    async def stop(self) -> None:
        await self.controllers.stop()
        await self._watching.stop()

    def _new(self) -> controllers.Controllers:
        return controllers.Controllers(self.kube, SETTINGS, time=clock.SystemClock())

    async def restart(self) -> None:
        """Start a new manager on the same API server and dispatcher."""
        await self.controllers.stop()
        self.controllers = self._new()
        await self.controllers.start(self.hub, empty_job_hub.engine())

    async def task(self, name: str, **spec: Any) -> str:
        """Declare a Task; return its uid."""
        declared = body(kinds.TASKS, name, spec={"command": ["true"], **spec})
        made = await self.kube.create(kinds.TASKS, declared, NS)
        uid: str = made["metadata"]["uid"]
        return uid

    async def cluster(self, name: str = "default", **spec: Any) -> None:
        declared = body(kinds.TASK_CLUSTERS, name, spec=spec)
        await self.kube.create(kinds.TASK_CLUSTERS, declared, NS)

    async def scale(self, name: str, replicas: int) -> None:
        """Set the number of workers."""
        change = {"spec": {"replicas": replicas}}
        await self.kube.merge_patch(kinds.TASK_CLUSTERS, name, change, NS)

    async def data(self, name: str, data: Any) -> None:
        declared = {**body(kinds.TASK_OBJECTS, name), "data": data}
        await self.kube.create(kinds.TASK_OBJECTS, declared, NS)

    async def spec(self, name: str, **spec: Any) -> None:
        await self.kube.merge_patch(kinds.TASKS, name, {"spec": spec}, NS)

    async def status(self, name: str, kind: api_resources.Resource = kinds.TASKS) -> dict[str, Any]:
        found = await self.kube.get(kind, name, NS)
        status: dict[str, Any] = found.get("status") or {}
        return status

    async def wait_for_state(
        self, name: str, state: str, reason: str, *, within_s: float = 5.0
    ) -> Any:
        """Wait until a Task has this state and reason; return its status."""

        async def reported() -> dict[str, Any] | None:
            status = await self.status(name)
            same = (status.get("state"), status.get("reason")) == (state, reason)
            return status if same else None

        return await waiting.wait_until_async(
            reported, what=f"{state}/{reason}", timeout_s=within_s
        )

    async def submitted(self, name: str, times: int = 1, *, within_s: float = 5.0) -> None:
        """Wait until the dispatcher has got a task."""
        await waiting.wait_until_async(
            lambda: self.hub.names().count(name) >= times,
            what=f"{name} submitted",
            timeout_s=within_s,
        )

    async def submit_one(self, name: str) -> None:
        """Declare TaskCluster `default` and a Task, and wait until the dispatcher has it."""
        await self.cluster()
        await self.task(name)
        await self.submitted(name)

    async def pods(self) -> dict[str, dict[str, Any]]:
        listed = await self.kube.list(api_resources.PODS, NS, type=dict)
        return {p["metadata"]["name"]: p for p in listed.items}

    async def wait_for_pods(self, *names: str) -> dict[str, dict[str, Any]]:
        """Wait until exactly these Pods exist."""

        async def found() -> dict[str, dict[str, Any]]:
            pods = await self.pods()
            return pods if sorted(pods) == sorted(names) else {}

        return await waiting.wait_until_async(found, what=f"Pods {names}")

    async def wait_for_no_pods(self) -> None:
        """Wait until no Pods exist."""

        async def empty() -> bool:
            return not await self.pods()

        await waiting.wait_until_async(empty, what="no Pods")

    async def kube_events(self, reason: str) -> list[dict[str, Any]]:
        listed = await self.kube.list(api_resources.EVENTS, NS, type=dict)
        return [e for e in listed.items if e["reason"] == reason]


def body(kind: api_resources.Resource, name: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **more}


def worker(pod: dict[str, Any], *, busy: int = 0, ready: bool = True) -> model.WorkerView:
    """Return the view of the worker in a Pod, as the dispatcher would publish it."""
    metadata = pod["metadata"]
    return model.WorkerView(
        name=metadata["name"],
        pod_uid=metadata["uid"],
        node="n",
        slots=2,
        busy=busy,
        ready=ready,
        holding=busy,
    )


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[World]:
    """Start a new world in `directory`."""
    async with embedded_server.admin_client(directory) as kube:
        made = World(kube)
        await made.start()
        try:
            yield made
        finally:
            await made.stop()
