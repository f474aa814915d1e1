"""A manager that crashes after each step of a SyncSet, on a real API server, and its successors.

A step is a write of any controller, or a call of the flow engine. Each kills the manager the first
time, so each pass of the controller is cut off at each of its steps; the remaining state is in
objects, in the engine, and with the agents of the pond.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kilnwork import controllers
from kilnwork.api import kinds
from kilnwork.jobs.flows import run_types
from kilnwork.kit import clock
from kilnwork.kube import errors
from support import (
    controller_world,
    crash_points,
    empty_job_hub,
    fake_pond_agents,
    set_world,
    waiting,
)

NODES = ("a", "b")


class World(set_world.SetWorld):
    """Crashing managers, and the agents of a pond, which live on."""

    def __init__(self, kube: Any) -> None:
        self.deaths = crash_points.CrashLog()
        super().__init__(kube)
        self.agents = fake_pond_agents.FakePondAgents(self.controllers.ledger)

    def _new(self) -> controllers.Controllers:
        kube: Any = crash_points.CrashingClient(self.kube, self.deaths)
        return controllers.Controllers(kube, controller_world.SETTINGS, time=clock.SystemClock())

    async def start(self) -> None:
        flows: Any = crash_points.CrashingFlows(self.flows, self.deaths)
        await self.controllers.start(self.hub, empty_job_hub.engine(), flows)

    async def go_on(self) -> None:
        """Play all other components for a moment, and replace a crashed manager."""
        if self.deaths.dead:
            await self.controllers.stop()
            self.deaths.dead = False
            self.controllers = self._new()
            self.agents.ledger = self.controllers.ledger
            await self.start()
        self.agents.start(*NODES)
        await self.agents.work(*NODES)
        await self.gangs.connect()
        await self.gangs.end_pods()

    async def until(self, holds: Callable[[], Awaitable[bool]], *, what: str) -> None:
        async def held() -> bool:
            await self.go_on()
            return await holds()

        await waiting.wait_until_async(held, what=what, timeout_s=60.0)

    async def until_phase(self, phase: str, generation: int = 1) -> dict[str, Any]:
        async def there() -> bool:
            found = await self.set_status()
            return (found.get("phase"), found.get("generation")) == (phase, generation)

        await self.until(there, what=f"{phase} of generation {generation}")
        return await self.set_status()

    async def until_gone(self) -> None:
        """Wait until nothing is left of generations."""

        async def gone() -> bool:
            leases = [await self.agents.leases(node) for node in NODES]
            return not any(leases) and not await self.gangs.clusters() and not await self.pods()

        await self.until(gone, what="nothing is held any more")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with set_world.running(tmp_path, World) as made:
        assert isinstance(made, World)
        for node in NODES:
            await made.gangs.node(node)
        made.agents.ready |= set(NODES)
        yield made


def data(order: str) -> dict[str, Any]:
    snapshot = {"name": "trades", "from": {"source": "lake"}, "shard": {"by": "files"}}
    return {"snapshots": [snapshot], "pond": {"order": order}}


def count_steps(world: World, *words: str) -> int:
    """Return the number of crash points that have these words."""
    return sum(set(words) <= set(step) for step in world.deaths.died)


@pytest.mark.parametrize("order", ["lead", "follow"])
@pytest.mark.parametrize("backend", ["local", "pods"])
async def test_managers_that_die_at_each_step_run_each_generation_once(
    world: World, order: str, backend: str
) -> None:
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings"},
        "data": {"curve": "flat"},
    }
    resources = {"groups": world.groups(near=["trades"]), "objects": [settings]}
    await world.declare_set(
        resources=resources, data=data(order), backend=backend, keep={"generations": 1}
    )
    await world.until_phase("Running")
    world.flows.move(1, run_types.FlowPhase.SUCCEEDED, value={"total": 7})
    first = await world.until_phase("Succeeded")
    await world.until_gone()
    await world.change(generation=2, replay={"generation": 2, "of": 1})
    await world.until_phase("Running", generation=2)
    await world.change(killTimestamp="2026-01-01T00:00:00Z")
    second = await world.until_phase("Killed", generation=2)
    await world.until_gone()

    assert [(run.generation, run.snapshots["trades"].digest) for run in world.flows.started] == [
        (1, world.agents.snapshot.digest),
        (2, world.agents.snapshot.digest),
    ]
    assert world.flows.killed == [(2, "Killed")]
    assert first["result"]["value"] == {"total": 7}
    assert second["snapshots"]["trades"]["digest"] == first["snapshots"]["trades"]["digest"]
    assert [(one["generation"], one["phase"]) for one in second["generations"]] == [(2, "Killed")]
    assert count_steps(world, "flow") == 4, (
        world.deaths.died
    )  # two starts, a kill, one is forgotten
    for phase in ("Pending", "Running", "Succeeded", "Killed"):
        assert count_steps(world, "replace", "risk", phase), world.deaths.died
    for kind in ("taskclusters", "pods", "configmaps"):
        assert count_steps(world, "create", kind), world.deaths.died


@pytest.mark.parametrize("backend", ["local", "pods"])
async def test_managers_that_die_at_each_step_retry_once(world: World, backend: str) -> None:
    """The same data is placed again, and the same run of the flow goes on."""
    await world.declare_set(
        resources={"groups": world.groups(near=["trades"])}, data=data("lead"), backend=backend
    )
    await world.until_phase("Running")
    world.flows.move(1, run_types.FlowPhase.FAILED, reason="Raised", message="shard 3: no price")
    first = await world.until_phase("Failed")
    await world.until_gone()
    world.deaths.died.clear()
    await world.change(run=2)

    async def goes_on() -> bool:
        found = await world.set_status()
        return (found["phase"], found["run"]) == ("Running", 2)

    await world.until(goes_on, what="run 2")
    assert await world.agents.leases(NODES[0])
    world.flows.move(1, run_types.FlowPhase.SUCCEEDED, value={"total": 7})
    second = await world.until_phase("Succeeded")
    await world.until_gone()

    assert (len(world.flows.started), world.flows.retried) == (1, [(1, 2)])
    assert second["snapshots"]["trades"]["digest"] == first["snapshots"]["trades"]["digest"]
    assert [(one["generation"], one["phase"]) for one in second["generations"]] == [
        (1, "Succeeded")
    ]
    assert count_steps(world, "retry", "flow") == 1, world.deaths.died
    for phase in ("Retrying", "Running", "Succeeded"):
        assert count_steps(world, "replace", "risk", phase), world.deaths.died


@pytest.mark.parametrize("suspended", [False, True])
async def test_managers_that_die_during_a_deletion_leave_nothing(
    world: World, *, suspended: bool
) -> None:
    await world.declare_set(data=data("lead"))
    await world.until_phase("Running")
    if suspended:
        await world.change(suspend=True)
        await world.until_phase("Suspended")
        assert world.flows.suspended[0] is True
    await world.kube.delete(kinds.SYNC_SETS, "risk", controller_world.NS, propagation="Background")
    await world.until_gone()

    async def forgotten() -> bool:
        return not world.flows.views

    await world.until(forgotten, what="the flow is forgotten")
    with pytest.raises(errors.NotFound):
        await world.kube.get(kinds.SYNC_SETS, "risk", controller_world.NS)
    assert count_steps(world, "forget", "flow") == 1, world.deaths.died
