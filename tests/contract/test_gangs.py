"""The contract of every gang backend: all or none, nothing held after a timeout, exact reasons.

One suite for `local` and `pods`, on a real API server with its scheduler. Tests of features that
only `pods` has (the gate, data at the gate) are below.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from kilnwork.api import api_resources, kinds, reasons, sync_set
from kilnwork.controllers.gangs import port
from support import controller_world, gang_world, waiting

BACKENDS = ("local", "pods")


@pytest.fixture
async def gangs(tmp_path: Path) -> AsyncIterator[gang_world.GangWorld]:
    async with controller_world.running(tmp_path) as made:
        found = gang_world.GangWorld(made)
        await found.start()
        yield found


@pytest.mark.parametrize("kind", BACKENDS)
async def test_gang_is_ready_when_every_worker_is_connected(
    gangs: gang_world.GangWorld, kind: str
) -> None:
    await gangs.node("a")
    backend, wanted = (
        gangs.backend(kind),
        gangs.spec(gang_world.group(), gang_world.group("solver", 1)),
    )

    async def all_bound(_: port.GangState) -> bool:
        return len(await gangs.bound()) == 3

    await gangs.until(backend, wanted, all_bound, what="all Pods have a node")
    await gangs.connect(["risk-g1-worker-0", "risk-g1-worker-1"])
    state = await backend.ensure(wanted)
    assert not state.ready
    assert state.reason == reasons.SetReason.WAITING_FOR_WORKERS
    assert "group solver: 0 of 1 workers are connected" in state.message
    await gangs.connect()
    state = await backend.ensure(wanted)
    assert state.ready
    assert state.nodes == {"a"}
    assert {name: one.ready for name, one in state.groups.items()} == {"worker": 2, "solver": 1}


@pytest.mark.parametrize("kind", BACKENDS)
async def test_repeated_ensure_of_a_ready_gang_writes_nothing(
    gangs: gang_world.GangWorld, kind: str
) -> None:
    await gangs.node("a")
    backend, wanted = gangs.backend(kind), gangs.spec()

    async def all_bound(_: port.GangState) -> bool:
        return len(await gangs.bound()) == 2

    await gangs.until(backend, wanted, all_bound, what="all Pods have a node")
    await gangs.connect()
    await gangs.until(backend, wanted, lambda s: s.ready, what="ready")
    before = await _object_versions(gangs)
    for _ in range(3):
        assert (await gangs.backend(kind).ensure(wanted)).ready
    assert await _object_versions(gangs) == before


@pytest.mark.parametrize("kind", BACKENDS)
async def test_gang_without_room_names_the_group_and_the_missing_resource(
    gangs: gang_world.GangWorld, kind: str
) -> None:
    await gangs.node("a", cpu="2")
    backend, wanted = gangs.backend(kind), gangs.spec(gang_world.group(replicas=3))
    state = await gangs.until(
        backend, wanted, lambda s: "Insufficient cpu" in s.message, what="who lacks what"
    )
    assert not state.ready
    assert "group worker" in state.message


@pytest.mark.parametrize("kind", BACKENDS)
async def test_gang_that_timed_out_releases_its_pods_and_starts_again(
    gangs: gang_world.GangWorld, kind: str
) -> None:
    await gangs.node("a", cpu="4")
    time = gang_world.ShiftedClock()
    backend = gangs.backend(kind, time)
    wanted = gangs.spec(gang_world.group(replicas=3), wait_s=60)

    async def all_bound(_: port.GangState) -> bool:
        return len(await gangs.bound()) == 3

    await gangs.until(backend, wanted, all_bound, what="all Pods have a node")
    await gangs.connect(["risk-g1-worker-0"])  # the others never come
    await gangs.until(backend, wanted, lambda s: "1 of 3" in s.message, what="one came")
    old = {p["metadata"]["uid"] for p in (await gangs.pods()).values()}
    time.by_s = 61
    state = await backend.ensure(wanted)
    assert state.reason == reasons.SetReason.GANG_TIMED_OUT
    assert "1 of 3 workers are connected" in state.message

    async def gone() -> bool:
        await gangs.end_pods()
        pods = (await gangs.pods()).values()
        return not old & {p["metadata"]["uid"] for p in pods}

    await waiting.wait_until_async(gone, what="the Pods of the first try are gone")
    time.by_s = 0
    await gangs.until(backend, wanted, all_bound, what="all start again")


@pytest.mark.parametrize("kind", BACKENDS)
async def test_gang_without_requeue_times_out(gangs: gang_world.GangWorld, kind: str) -> None:
    await gangs.node("a", cpu="1")
    time = gang_world.ShiftedClock()
    backend, wanted = gangs.backend(kind, time), gangs.spec(requeue=False)
    await gangs.until(backend, wanted, lambda s: "Insufficient cpu" in s.message, what="no room")
    time.by_s = 61
    state = await backend.ensure(wanted)
    assert state.timed_out
    assert "Insufficient cpu" in state.message


@pytest.mark.parametrize("kind", BACKENDS)
async def test_release_removes_all_pods_and_clusters(
    gangs: gang_world.GangWorld, kind: str
) -> None:
    await gangs.node("a")
    backend, wanted = gangs.backend(kind), gangs.spec()

    async def all_bound(_: port.GangState) -> bool:
        return len(await gangs.bound()) == 2

    await gangs.until(backend, wanted, all_bound, what="all Pods have a node")

    async def released() -> bool:
        await gangs.end_pods()
        left = not await gangs.backend(kind).release(controller_world.NS, gangs.uid, but=None)
        return not left and not await gangs.pods()

    await waiting.wait_until_async(released, what="released")
    assert await gangs.clusters() == []


@pytest.mark.parametrize("kind", BACKENDS)
async def test_release_keeps_the_groups_of_the_excepted_generation(
    gangs: gang_world.GangWorld, kind: str
) -> None:
    await gangs.node("a")
    backend, wanted = gangs.backend(kind), gangs.spec()
    await backend.ensure(wanted)
    later = msgspec.structs.replace(
        wanted,
        generation=2,
        groups=(msgspec.structs.replace(gang_world.group(), cluster="risk-g2-worker"),),
    )
    await backend.ensure(later)

    async def released() -> bool:
        return await backend.release(controller_world.NS, gangs.uid, but=2)

    await waiting.wait_until_async(released, what="the first generation is gone")
    assert await gangs.clusters() == ["risk-g2-worker"]


@pytest.mark.parametrize("kind", BACKENDS)
async def test_cluster_name_in_use_by_another_owner_is_refused(
    gangs: gang_world.GangWorld, kind: str
) -> None:
    await gangs.world.cluster("risk-g1-worker", replicas=0)
    state = await gangs.backend(kind).ensure(gangs.spec())
    assert state.reason == reasons.SetReason.OBJECT_REFUSED
    assert "TaskCluster risk-g1-worker exists and does not belong to this SyncSet" in state.message


@pytest.mark.parametrize("kind", BACKENDS)
async def test_gang_is_ready_with_the_minimum_of_its_group(
    gangs: gang_world.GangWorld, kind: str
) -> None:
    await gangs.node("a", cpu="2")
    backend, wanted = gangs.backend(kind), gangs.spec(gang_world.group(replicas=3, min=2))

    async def two_bound(_: port.GangState) -> bool:
        return len(await gangs.bound()) == 2

    await gangs.until(backend, wanted, two_bound, what="two Pods have a node")
    await gangs.connect()
    state = await gangs.until(backend, wanted, lambda s: s.ready, what="ready")
    assert state.groups["worker"].desired == 3
    assert state.groups["worker"].ready == 2


@pytest.mark.parametrize("kind", BACKENDS)
async def test_failed_worker_breaks_a_group_that_fails_on_loss(
    gangs: gang_world.GangWorld, kind: str
) -> None:
    await gangs.node("a")
    backend, wanted = gangs.backend(kind), gangs.spec(gang_world.group(fails=True))

    async def all_bound(_: port.GangState) -> bool:
        return len(await gangs.bound()) == 2

    await gangs.until(backend, wanted, all_bound, what="all Pods have a node")
    patch = {"status": {"phase": "Failed", "reason": "Evicted"}}
    await gangs.kube.merge_patch(
        api_resources.PODS, "risk-g1-worker-0", patch, controller_world.NS, subresource="status"
    )
    state = await gangs.until(backend, wanted, lambda s: bool(s.broken), what="broken")
    assert "Pod risk-g1-worker-0 failed: Evicted" in state.broken


@pytest.mark.parametrize("kind", BACKENDS)
async def test_manager_that_dies_at_any_request_completes_the_gang(
    gangs: gang_world.GangWorld, kind: str
) -> None:
    """The manager dies after each writing request, the first time it makes it; then a new one
    starts.
    """
    await gangs.node("a")
    wanted = gangs.spec(gang_world.group(), gang_world.group("solver", 1))
    dying = gang_world.CrashingClient(gangs.kube)

    async def all_bound() -> bool:
        try:
            await gangs.backend(kind, kube=dying).ensure(wanted)
        except (gang_world.ManagerDied, ExceptionGroup):
            return False
        return len(await gangs.bound()) == 3

    await waiting.wait_until_async(all_bound, what="all Pods have a node")
    assert len(dying.died) >= 2
    await gangs.connect()
    assert (await gangs.backend(kind).ensure(wanted)).ready


async def _object_versions(gangs: gang_world.GangWorld) -> dict[str, object]:
    """Return numbers that change when a Pod, or the spec of a TaskCluster, is written."""
    clusters = await gangs.kube.list(kinds.TASK_CLUSTERS, controller_world.NS, type=dict)
    pods = await gangs.pods()
    return {
        **{c["metadata"]["name"]: c["metadata"]["generation"] for c in clusters.items},
        **{name: pod["metadata"]["resourceVersion"] for name, pod in pods.items()},
    }


# Only with gates


async def test_pods_of_a_gang_without_room_hold_nothing(gangs: gang_world.GangWorld) -> None:
    """Even the Pods that there would be room for stay unbound."""
    await gangs.node("a", cpu="2")
    backend = gangs.backend("pods")
    wanted = gangs.spec(gang_world.group(replicas=3), gang_world.group("solver", 1, cpu="500m"))
    state = await gangs.until(
        backend,
        wanted,
        lambda s: all(f"no node in group {name}" in s.message for name in ("worker", "solver")),
        what="no room",
    )
    assert await gangs.bound() == {}
    assert state.reason == reasons.SetReason.WAITING_FOR_ROOM
    assert "1 worker has no node in group worker: each needs cpu 1, memory 64Mi" in state.message
    assert "free: node a cpu 2" in state.message
    assert {name: one.gated for name, one in state.groups.items()} == {"worker": 3, "solver": 1}
    await gangs.node("b", cpu="2")

    async def all_bound(_: port.GangState) -> bool:
        return len(await gangs.bound()) == 4

    await gangs.until(backend, wanted, all_bound, what="all Pods have a node")


async def test_two_gangs_never_split_room_for_one(
    gangs: gang_world.GangWorld,
) -> None:
    await gangs.node("a", cpu="3")
    backend = gangs.backend("pods")
    one = gangs.spec(gang_world.group(replicas=2))
    other = gangs.spec(
        msgspec.structs.replace(gang_world.group("other", 2), cluster="risk-g2-other")
    )

    async def both_asked() -> bool:
        states = await asyncio.gather(backend.ensure(one), backend.ensure(other))
        return any(s.reason == reasons.SetReason.WAITING_FOR_ROOM for s in states)

    await waiting.wait_until_async(both_asked, what="one has to wait")

    async def one_bound() -> bool:
        await both_asked()
        return len(await gangs.bound()) == 2

    await waiting.wait_until_async(one_bound, what="one gang has its nodes")
    assert len({name.rpartition("-")[0] for name in await gangs.bound()}) == 1


async def test_workers_wait_at_the_gate_for_their_data(gangs: gang_world.GangWorld) -> None:
    """With order `lead`, the node with most of the data is filled first, and no other is used."""
    await gangs.node("a")
    await gangs.node("b")
    await gangs.node("without-agent", cpu="64")
    data = port.DataPlaces(
        lead=True,
        nodes=frozenset({"a", "b"}),
        near={"worker": {"b": 1000}},
        path="/pond/runs/default/risk-g1",
    )
    near = gang_world.group(near=sync_set.NearMode.PREFERRED)
    backend, wanted = gangs.backend("pods"), gangs.spec(near, data=data)
    state = await gangs.until(
        backend, wanted, lambda s: s.reason == reasons.SetReason.WAITING_FOR_DATA, what="a wait"
    )
    assert state.nodes == {"b"}
    assert "2 workers wait at the gate until the data is on b" in state.message
    assert await gangs.bound() == {}
    delivered = msgspec.structs.replace(data, ready=frozenset({"b"}))
    wanted = msgspec.structs.replace(wanted, data=delivered)

    async def all_bound(_: port.GangState) -> bool:
        return list((await gangs.bound()).values()) == ["b", "b"]

    await gangs.until(backend, wanted, all_bound, what="both are next to the data")
    pod = (await gangs.pods())["risk-g1-worker-0"]
    [worker] = pod["spec"]["containers"]
    assert {"name": "KILN_DATA", "value": data.path} in worker["env"]
    mounts = {m["name"]: (m["mountPath"], m["readOnly"]) for m in worker["volumeMounts"]}
    assert mounts["kiln-data"] == (data.path, True)


async def test_data_follows_workers_to_nodes_with_an_agent(gangs: gang_world.GangWorld) -> None:
    await gangs.node("a")
    await gangs.node("without-agent", cpu="64")
    data = port.DataPlaces(nodes=frozenset({"a"}), path="/pond/runs/default/risk-g1")
    backend, wanted = gangs.backend("pods"), gangs.spec(data=data)

    async def all_bound(_: port.GangState) -> bool:
        return list((await gangs.bound()).values()) == ["a", "a"]

    await gangs.until(backend, wanted, all_bound, what="both have a node")
    assert (await backend.ensure(wanted)).nodes == {"a"}


async def test_replacement_waits_for_its_data(gangs: gang_world.GangWorld) -> None:
    """While the flow runs, a replacement Pod stays at its gate until its node has the data.

    It holds up no other Pod.
    """
    await gangs.node("a", cpu="1")
    await gangs.node("b", cpu="1")
    held = port.DataPlaces(
        lead=True, nodes=frozenset({"a", "b", "c"}), ready=frozenset({"a", "b"}), path="/pond/r"
    )
    backend, wanted = gangs.backend("pods"), gangs.spec(data=held)

    async def all_bound(_: port.GangState) -> bool:
        return sorted((await gangs.bound()).values()) == ["a", "b"]

    await gangs.until(backend, wanted, all_bound, what="both have a node")
    await gangs.connect()
    wanted = msgspec.structs.replace(wanted, running_since=1.0)
    [lost] = [name for name, node in (await gangs.bound()).items() if node == "a"]
    await gangs.kube.delete(api_resources.NODES, "a")
    await gangs.kube.delete(api_resources.PODS, lost, controller_world.NS, grace_s=0)
    await gangs.node("c", cpu="1")
    state = await gangs.until(
        backend, wanted, lambda s: s.nodes == {"b", "c"}, what="the data is wanted on c"
    )
    assert state.groups["worker"].gated == 1
    assert sorted((await gangs.bound()).values()) == ["b"]
    delivered = msgspec.structs.replace(held, ready=frozenset({"b", "c"}))

    async def replaced(_: port.GangState) -> bool:
        return sorted((await gangs.bound()).values()) == ["b", "c"]

    wanted = msgspec.structs.replace(wanted, data=delivered)
    await gangs.until(backend, wanted, replaced, what="the replacement is next to the data")


def group_with_portions(replicas: int = 2) -> port.GroupSpec:
    """Return a group whose workers divide four portions of its data."""
    return gang_world.group(replicas=replicas, portions=4)


async def _portions_by_pod(gangs: gang_world.GangWorld) -> dict[str, set[int]]:
    """Return the portions by Pod name, for Pods that have the annotation."""
    return {
        name: {int(one) for one in text.split(",")}
        for name, pod in (await gangs.pods()).items()
        if (text := pod["metadata"]["annotations"].get("kilnwork.dev/portions"))
    }


async def test_workers_divide_portions_and_are_placed_where_theirs_are(
    gangs: gang_world.GangWorld,
) -> None:
    await gangs.node("a", cpu="1")
    await gangs.node("b", cpu="1")
    data = port.DataPlaces(lead=True, nodes=frozenset({"a", "b"}), path="/pond/r")
    backend, wanted = gangs.backend("pods"), gangs.spec(group_with_portions(), data=data)
    state = await gangs.until(
        backend, wanted, lambda s: s.reason == reasons.SetReason.WAITING_FOR_DATA, what="a wait"
    )
    found = state.portions["worker"]
    assert sorted(map(sorted, found.values())) == [[0, 1], [2, 3]]
    half = {"worker": {"a": found["a"]}}
    wanted = msgspec.structs.replace(wanted, data=msgspec.structs.replace(data, held=half))
    assert (await backend.ensure(wanted)).reason == reasons.SetReason.WAITING_FOR_DATA
    assert await gangs.bound() == {}
    delivered = msgspec.structs.replace(data, held=state.portions)
    wanted = msgspec.structs.replace(wanted, data=delivered)

    async def all_bound(_: port.GangState) -> bool:
        return len(await gangs.bound()) == 2

    await gangs.until(backend, wanted, all_bound, what="both have a node")
    portions = await _portions_by_pod(gangs)
    assert {node: portions[pod] for pod, node in (await gangs.bound()).items()} == found


async def test_portions_stay_on_nodes_that_fetch_them(gangs: gang_world.GangWorld) -> None:
    """They stay even when another node is to be filled first meanwhile."""
    await gangs.node("a", cpu="1")
    await gangs.node("b", cpu="1")
    near = msgspec.structs.replace(group_with_portions(), near=sync_set.NearMode.PREFERRED)
    data = port.DataPlaces(lead=True, nodes=frozenset({"a", "b"}), path="/pond/r")
    backend, wanted = gangs.backend("pods"), gangs.spec(near, data=data)
    state = await gangs.until(
        backend, wanted, lambda s: s.reason == reasons.SetReason.WAITING_FOR_DATA, what="a wait"
    )
    found = state.portions
    for node in ("a", "b"):
        other = msgspec.structs.replace(data, near={"worker": {node: 1000}}, wanted=found)
        state = await backend.ensure(msgspec.structs.replace(wanted, data=other))
        assert state.portions == found


async def test_manager_that_dies_at_any_request_leaves_each_portion_with_one_worker(
    gangs: gang_world.GangWorld,
) -> None:
    await gangs.node("a")
    data = port.DataPlaces(nodes=frozenset({"a"}), path="/pond/r")
    wanted = gangs.spec(group_with_portions(replicas=3), data=data)
    dying = gang_world.CrashingClient(gangs.kube)

    async def all_bound() -> bool:
        try:
            await gangs.backend("pods", kube=dying).ensure(wanted)
        except (gang_world.ManagerDied, ExceptionGroup):
            return False
        return len(await gangs.bound()) == 3

    await waiting.wait_until_async(all_bound, what="all Pods have a node")
    portions = await _portions_by_pod(gangs)
    assert sorted(one for has in portions.values() for one in has) == [0, 1, 2, 3]
