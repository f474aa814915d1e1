"""SyncSets on a real API server with the real controllers; the test plays flows, workers and
nodes.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kilnwork.api import api_resources, kinds
from kilnwork.kit import clock
from kilnwork.kube import client
from support import (
    controller_world,
    embedded_server,
    empty_job_hub,
    fake_flows,
    gang_world,
    waiting,
)

FLOW = {"do": [{"price": {"command": ["true"]}}]}


class SetWorld(controller_world.World):
    """A `controller_world.World` whose flow engine is a `fake_flows.FakeFlows`."""

    def __init__(self, kube: client.Client) -> None:
        self.flows = fake_flows.FakeFlows(wall=clock.SystemClock().wall())
        super().__init__(kube)
        self.gangs = gang_world.GangWorld(self)

    async def start(self) -> None:
        await self.controllers.start(self.hub, empty_job_hub.engine(), self.flows)

    async def restart(self) -> None:
        """Start a new manager on the same API server, dispatcher and engine."""
        await self.controllers.stop()
        self.controllers = self._new()
        await self.start()

    def groups(self, **more: Any) -> list[dict[str, Any]]:
        """Return one group of two workers."""
        return [{"name": "worker", "replicas": 2, "template": gang_world.template(), **more}]

    async def declare_set(self, name: str = "risk", **spec: Any) -> str:
        """Declare a SyncSet; return its uid."""
        wanted = {"resources": {"groups": self.groups()}, "flow": FLOW, "backend": "pods", **spec}
        made = await self.kube.create(
            kinds.SYNC_SETS,
            controller_world.body(kinds.SYNC_SETS, name, spec=wanted),
            controller_world.NS,
        )
        uid: str = made["metadata"]["uid"]
        return uid

    async def change(self, name: str = "risk", **spec: Any) -> None:
        """Change fields of its spec."""
        await self.kube.merge_patch(kinds.SYNC_SETS, name, {"spec": spec}, controller_world.NS)

    async def set_status(self, name: str = "risk") -> dict[str, Any]:
        found: dict[str, Any] = await self.status(name, kinds.SYNC_SETS)
        return found

    async def wait_for_set(
        self, phase: str, reason: str = "", *, name: str = "risk", generation: int = 1
    ) -> dict[str, Any]:
        """Wait until the status has this phase and reason; return the status."""

        async def reached() -> dict[str, Any]:
            status = await self.set_status(name)
            same = (status.get("phase"), status.get("generation")) == (phase, generation)
            return status if same and reason in ("", status["reason"]) else {}

        return await waiting.wait_until_async(reached, what=f"{phase}/{reason}")

    async def connect_workers(self, count: int = 2) -> None:
        """Wait until so many Pods are bound, and connect their workers."""

        async def bound() -> bool:
            return len(await self.gangs.bound()) == count

        await waiting.wait_until_async(bound, what="Pods have a node")
        await self.gangs.connect()

    async def running(self, **spec: Any) -> str:
        """Create a SyncSet and wait until its flow runs."""
        await self.gangs.node("a")
        uid = await self.declare_set(**spec)
        await self.connect_workers()
        await self.wait_for_set("Running")
        return uid

    async def end_all_pods(self) -> None:
        """Wait until there are no Pods, removing terminating ones as a kubelet would."""

        async def gone() -> bool:
            await self.gangs.end_pods()
            return not await self.pods()

        await waiting.wait_until_async(gone, what="no Pods")

    async def node_labels(self, name: str, labels: dict[str, str]) -> None:
        await self.kube.merge_patch(api_resources.NODES, name, {"metadata": {"labels": labels}})


@contextlib.asynccontextmanager
async def running(directory: Path, kind: type[SetWorld] = SetWorld) -> AsyncIterator[SetWorld]:
    """Start a new world in `directory`."""
    async with embedded_server.admin_client(directory) as kube:
        made = kind(kube)
        await made.start()
        try:
            yield made
        finally:
            await made.controllers.stop()
