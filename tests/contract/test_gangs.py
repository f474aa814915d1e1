"""What every backend of gangs keeps: all or none, nothing held after the wait, who lacks what.

One suite for `local` and `pods`, on a real API server with its scheduler; what only one of them has
(the gate, data at the gate) is below.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.api import kinds, reasons, resource
from kilnwork.controllers.gangs import port
from kilnwork.kube import errors
from support import controlled, gang_world, waiting

BOTH = ("local", "pods")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[gang_world.GangWorld]:
    async with controlled.running(tmp_path) as made:
        found = gang_world.GangWorld(made)
        await found.start()
        yield found


@pytest.mark.parametrize("kind", BOTH)
async def test_gang_is_ready_when_every_worker_is_connected(
    world: gang_world.GangWorld, kind: str
) -> None:
    await world.node("a")
    backend, wanted = (
        world.backend(kind),
        world.spec(gang_world.group(), gang_world.group("solver", 1)),
    )

    async def all_bound(_: port.GangState) -> bool:
        return len(await world.bound()) == 3

    await world.until(backend, wanted, all_bound, what="all Pods have a node")
    await world.connect(["risk-g1-worker-0", "risk-g1-worker-1"])
    state = await backend.ensure(wanted)
    assert not state.ready
    assert state.reason == reasons.SetReason.WAITING_FOR_WORKERS
    assert "group solver: 0 of 1 workers are connected" in state.message
    await world.connect()
    state = await backend.ensure(wanted)
    assert state.ready
    assert state.nodes == {"a"}
    assert {name: one.ready for name, one in state.groups.items()} == {"worker": 2, "solver": 1}


@pytest.mark.parametrize("kind", BOTH)
async def test_asking_again_writes_nothing(world: gang_world.GangWorld, kind: str) -> None:
    await world.node("a")
    backend, wanted = world.backend(kind), world.spec()

    async def all_bound(_: port.GangState) -> bool:
        return len(await world.bound()) == 2

    await world.until(backend, wanted, all_bound, what="all Pods have a node")
    await world.connect()
    await world.until(backend, wanted, lambda s: s.ready, what="ready")
    before = await _versions(world)
    for _ in range(3):
        assert (await world.backend(kind).ensure(wanted)).ready
    assert await _versions(world) == before


@pytest.mark.parametrize("kind", BOTH)
async def test_gang_without_room_says_who_lacks_what(
    world: gang_world.GangWorld, kind: str
) -> None:
    await world.node("a", cpu="2")
    backend, wanted = world.backend(kind), world.spec(gang_world.group(replicas=3))
    state = await world.until(
        backend, wanted, lambda s: "Insufficient cpu" in s.message, what="who lacks what"
    )
    assert not state.ready
    assert "group worker" in state.message


@pytest.mark.parametrize("kind", BOTH)
async def test_nothing_is_held_after_the_wait(world: gang_world.GangWorld, kind: str) -> None:
    await world.node("a", cpu="4")
    time = gang_world.Ahead()
    backend = world.backend(kind, time)
    wanted = world.spec(gang_world.group(replicas=3), wait_s=60)

    async def all_bound(_: port.GangState) -> bool:
        return len(await world.bound()) == 3

    await world.until(backend, wanted, all_bound, what="all Pods have a node")
    old = {p["metadata"]["uid"] for p in (await world.pods()).values()}
    await world.connect(["risk-g1-worker-0"])  # the others never come
    time.by_s = 61
    state = await backend.ensure(wanted)
    assert state.reason == reasons.SetReason.GANG_TIMED_OUT
    assert "1 of 3 workers are connected" in state.message

    async def gone() -> bool:
        pods = (await world.pods()).values()
        return not old & {p["metadata"]["uid"] for p in pods}

    await waiting.wait_until_async(gone, what="the Pods of the first try are gone")
    time.by_s = 0
    await world.until(backend, wanted, all_bound, what="all begin anew")


@pytest.mark.parametrize("kind", BOTH)
async def test_gang_that_may_not_wait_again_times_out(
    world: gang_world.GangWorld, kind: str
) -> None:
    await world.node("a", cpu="1")
    time = gang_world.Ahead()
    backend, wanted = world.backend(kind, time), world.spec(requeue=False)
    await world.until(backend, wanted, lambda s: "Insufficient cpu" in s.message, what="no room")
    time.by_s = 61
    state = await backend.ensure(wanted)
    assert state.timed_out
    assert "Insufficient cpu" in state.message


@pytest.mark.parametrize("kind", BOTH)
async def test_release_leaves_nothing(world: gang_world.GangWorld, kind: str) -> None:
    await world.node("a")
    backend, wanted = world.backend(kind), world.spec()

    async def all_bound(_: port.GangState) -> bool:
        return len(await world.bound()) == 2

    await world.until(backend, wanted, all_bound, what="all Pods have a node")
    assert not await backend.release(controlled.NS, world.uid, but=1) or True

    async def released() -> bool:
        return await world.backend(kind).release(controlled.NS, world.uid, but=None)

    await waiting.wait_until_async(released, what="released")
    await world.world.has_no_pods()
    assert await world.clusters() == []


@pytest.mark.parametrize("kind", BOTH)
async def test_groups_of_the_generation_that_is_kept_stay(
    world: gang_world.GangWorld, kind: str
) -> None:
    await world.node("a")
    backend, wanted = world.backend(kind), world.spec()
    await backend.ensure(wanted)
    later = msgspec.structs.replace(
        wanted,
        generation=2,
        groups=(msgspec.structs.replace(gang_world.group(), cluster="risk-g2-worker"),),
    )
    await backend.ensure(later)

    async def released() -> bool:
        return await backend.release(controlled.NS, world.uid, but=2)

    await waiting.wait_until_async(released, what="the first generation is gone")
    assert await world.clusters() == ["risk-g2-worker"]


@pytest.mark.parametrize("kind", BOTH)
async def test_name_that_somebody_else_has_is_told(world: gang_world.GangWorld, kind: str) -> None:
    await world.world.cluster("risk-g1-worker", replicas=0)
    state = await world.backend(kind).ensure(world.spec())
    assert state.reason == reasons.SetReason.OBJECT_REFUSED
    assert "TaskCluster risk-g1-worker exists and does not belong to this SyncSet" in state.message


@pytest.mark.parametrize("kind", BOTH)
async def test_min_of_a_group_is_enough(world: gang_world.GangWorld, kind: str) -> None:
    await world.node("a", cpu="2")
    backend, wanted = world.backend(kind), world.spec(gang_world.group(replicas=3, min=2))

    async def two_bound(_: port.GangState) -> bool:
        return len(await world.bound()) == 2

    await world.until(backend, wanted, two_bound, what="two Pods have a node")
    await world.connect()
    state = await world.until(backend, wanted, lambda s: s.ready, what="ready")
    assert state.groups["worker"].desired == 3
    assert state.groups["worker"].ready == 2


@pytest.mark.parametrize("kind", BOTH)
async def test_worker_that_ends_breaks_a_group_that_fails(
    world: gang_world.GangWorld, kind: str
) -> None:
    await world.node("a")
    backend, wanted = world.backend(kind), world.spec(gang_world.group(fails=True))

    async def all_bound(_: port.GangState) -> bool:
        return len(await world.bound()) == 2

    await world.until(backend, wanted, all_bound, what="all Pods have a node")
    patch = {"status": {"phase": "Failed", "reason": "Evicted"}}
    await world.kube.merge_patch(
        resource.PODS, "risk-g1-worker-0", patch, controlled.NS, subresource="status"
    )
    state = await world.until(backend, wanted, lambda s: s.broken, what="broken")
    assert "Pod risk-g1-worker-0 failed: Evicted" in state.broken


@pytest.mark.parametrize("kind", BOTH)
async def test_manager_that_dies_at_any_request_finds_its_place_again(
    world: gang_world.GangWorld, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request that writes fails once, after it was carried out; each time a new manager."""
    await world.node("a")
    wanted = world.spec(gang_world.group(), gang_world.group("solver", 1))
    died = set()

    def dying(name: str) -> Any:
        real = getattr(world.kube, name)

        async def request(*given: Any, **more: Any) -> Any:
            answer = await real(*given, **more)
            mark = (name, str(given[1] if isinstance(given[1], str) else given[1]["metadata"]))
            kind_of = given[0]
            if kind_of in (resource.PODS, kinds.TASK_CLUSTERS) and mark not in died:
                died.add(mark)
                raise errors.Unavailable("the manager died")
            return answer

        return request

    backend = world.backend(kind)
    for name in ("create", "merge_patch", "delete"):
        monkeypatch.setattr(backend_client(backend), name, dying(name), raising=False)

    async def all_bound() -> bool:
        try:
            await world.backend(kind).ensure(wanted)
        except (errors.Unavailable, ExceptionGroup):
            return False
        return len(await world.bound()) == 3

    await waiting.wait_until_async(all_bound, what="all Pods have a node")
    assert died
    await world.connect()
    assert (await world.backend(kind).ensure(wanted)).ready


def backend_client(backend: port.Backend) -> Any:
    return backend._client  # type: ignore[attr-defined]


async def _versions(world: gang_world.GangWorld) -> dict[str, str]:
    found = {}
    for kind in (kinds.TASK_CLUSTERS, resource.PODS):
        listed = await world.kube.list(kind, controlled.NS, type=dict)
        found |= {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in listed.items}
    return found
