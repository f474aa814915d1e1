"""The SyncSet controller on the real API server; the test plays flows and workers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.api import api_resources, kinds
from kilnwork.controllers.sync_set import wait_events
from kilnwork.jobs.flows import run_types
from kilnwork.kube import errors
from support import controller_world, set_world, waiting


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[set_world.SetWorld]:
    async with set_world.running(tmp_path) as made:
        yield made


def conditions(status: dict[str, object]) -> dict[str, str]:
    found = status["conditions"]
    assert isinstance(found, list)
    return {c["type"]: c["status"] for c in found}


async def test_flow_starts_when_all_workers_are_connected(world: set_world.SetWorld) -> None:
    await world.gangs.node("a")
    uid = await world.declare_set()
    await world.wait_for_set("Placing")
    assert world.flows.started == []
    await world.connect_workers()
    status = await world.wait_for_set("Running", "FlowRunning")
    [run] = world.flows.started
    assert (run.uid, run.generation, run.clusters) == (uid, 1, {"worker": "risk-g1-worker"})
    assert status["gang"] == "2/2"
    assert status["backendRef"]["backend"] == "pods"
    assert conditions(status) == {
        "SnapshotPinned": "True",
        "DataReady": "True",
        "GangReady": "True",
        "FlowRunning": "True",
        "Succeeded": "Unknown",
    }
    steps = {
        "price": run_types.StepView(
            total=4, succeeded=3, running=1, state=run_types.InstanceState.RUNNING
        )
    }
    world.flows.move(1, run_types.FlowPhase.RUNNING, steps=steps)

    async def counted() -> bool:
        return (await world.set_status()).get("progress") == "3/4"

    await waiting.wait_until_async(counted, what="progress")
    world.flows.move(1, run_types.FlowPhase.SUCCEEDED, value={"total": 7})
    status = await world.wait_for_set("Succeeded", "FlowSucceeded")
    assert status["result"]["value"] == {"total": 7}
    assert conditions(status)["Succeeded"] == "True"
    assert conditions(status)["FlowRunning"] == "False"
    await world.end_all_pods()
    assert await world.gangs.clusters() == []


async def test_failed_flow_fails_the_set(world: set_world.SetWorld) -> None:
    await world.running()
    world.flows.move(1, run_types.FlowPhase.FAILED, reason="NonZeroExit", message="price failed")
    status = await world.wait_for_set("Failed", "NonZeroExit")
    assert status["message"] == "price failed"

    async def reported() -> bool:
        events = await world.kube_events("NonZeroExit")
        return [e["involvedObject"]["name"] for e in events] == ["risk"]

    await waiting.wait_until_async(reported, what="a kube event")


async def test_set_of_higher_priority_takes_room_first(world: set_world.SetWorld) -> None:
    """Even if it is larger and was created later; priorities may change meanwhile."""
    await world.gangs.node("a", cpu="2")
    container = {"name": "x", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    filler = {"nodeName": "a", "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "filler"}, "spec": filler}
    await world.kube.create(api_resources.PODS, body, controller_world.NS)
    await world.declare_set("large", priority=5)
    await world.wait_for_set("Placing", "WaitingForRoom", name="large")
    await world.declare_set("small", resources={"groups": world.groups(replicas=1)})
    status = await world.wait_for_set("Placing", "WaitingForRoom", name="small")
    assert status["message"] == (
        "SyncSet default/large of priority 5 waits for its turn before this one of priority 0"
    )
    gang = {"waitSeconds": 1, "onTimeout": "fail"}
    await world.declare_set("hasty", resources={"groups": world.groups(replicas=1), "gang": gang})
    hasty = await world.wait_for_set("Failed", "GangTimedOut", name="hasty")
    assert hasty["message"] == f"not all workers came within 1 s: {status['message']}"
    await world.change("large", priority=-1)

    async def bound() -> set[str]:
        return set(await world.gangs.bound()) - {"filler"}

    found = await waiting.wait_until_async(bound, what="the small one has a node")
    assert found == {"small-g1-worker-0"}
    status = await world.wait_for_set("Placing", "WaitingForRoom", name="large")
    assert "worker" in status["message"]


async def test_set_that_would_never_fit_does_not_block_others(world: set_world.SetWorld) -> None:
    await world.gangs.node("a", cpu="1")
    await world.declare_set("large", priority=5)
    await world.wait_for_set("Placing", "WaitingForRoom", name="large")
    await world.declare_set("small", resources={"groups": world.groups(replicas=1)})

    async def bound() -> set[str]:
        return set(await world.gangs.bound())

    found = await waiting.wait_until_async(bound, what="the small one has a node")
    assert found == {"small-g1-worker-0"}


async def test_long_wait_is_a_kube_event_once(
    world: set_world.SetWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_events, "ANNOUNCE_S", 0.2)
    await world.gangs.node("a", cpu="1")
    await world.declare_set()
    await world.wait_for_set("Placing", "WaitingForRoom")

    async def reported() -> list[str]:
        found = await world.kube_events("WaitingForRoom")
        return [event["message"] for event in found]

    [message] = await waiting.wait_until_async(reported, what="a kube event")
    assert "1 worker has no node in group worker" in message
    await world.change(suspend=True)

    async def suspended() -> bool:
        return len(await world.kube_events("Suspended")) == 1

    await waiting.wait_until_async(suspended, what="another kube event")
    assert len(await reported()) == 1


async def test_forbidden_object_is_reported_with_its_path(
    world: set_world.SetWorld,
) -> None:
    await world.gangs.node("a")
    taken = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "taken"}}
    await world.kube.create(api_resources.CONFIG_MAPS, taken, controller_world.NS)
    await world.declare_set(resources={"groups": world.groups(), "objects": [taken]})
    status = await world.wait_for_set("Placing", "ObjectRefused")
    assert status["message"] == (
        "spec.resources.objects[0]: ConfigMap taken exists and does not belong to this SyncSet"
    )
    [gang] = [c for c in status["conditions"] if c["type"] == "GangReady"]
    assert (gang["status"], gang["reason"]) == ("False", "ObjectRefused")
    assert gang["message"] == status["message"]


async def test_workers_that_cannot_be_created_are_refused_at_once(
    world: set_world.SetWorld,
) -> None:
    await world.gangs.node("a")
    await world.declare_set(resources={"groups": world.groups(serviceAccountName="missing")})
    status = await world.wait_for_set("Placing", "ObjectRefused")
    assert status["message"].startswith("group worker: 0 of 2 workers are connected: ")
    assert "missing" in status["message"]


async def test_set_without_room_names_the_lacking_resource(world: set_world.SetWorld) -> None:
    await world.gangs.node("a", cpu="1")
    await world.declare_set()
    status = await world.wait_for_set("Placing", "WaitingForRoom")
    assert "1 worker has no node in group worker: each needs cpu 1" in status["message"]
    assert await world.gangs.bound() == {}


async def test_set_that_may_not_wait_again_fails(world: set_world.SetWorld) -> None:
    await world.gangs.node("a", cpu="1")
    gang = {"waitSeconds": 1, "onTimeout": "fail"}
    await world.declare_set(resources={"groups": world.groups(), "gang": gang})
    status = await world.wait_for_set("Failed", "GangTimedOut")
    assert status["message"].startswith("not all workers came within 1 s: ")
    assert "1 worker has no node in group worker: each needs cpu 1" in status["message"]
    await world.end_all_pods()


async def test_auto_backend_is_local_where_every_node_is_local(world: set_world.SetWorld) -> None:
    await world.gangs.node("a", **{"kilnwork.dev/local": "true"})
    await world.declare_set(backend="auto")
    await world.connect_workers()
    status = await world.wait_for_set("Running")
    assert status["backendRef"] == {
        "backend": "local",
        "kind": "TaskCluster",
        "names": ["risk-g1-worker"],
    }


async def test_auto_backend_refuses_workers_without_requests(
    world: set_world.SetWorld,
) -> None:
    await world.gangs.node("a")
    await world.declare_set(backend="auto", resources={"groups": [{"name": "worker"}]})
    status = await world.wait_for_set("AdmissionError", "InvalidSpec")
    assert (
        "spec.resources.groups[0].template.spec.containers[0].resources.requests must have cpu"
        in (status["message"])
    )


async def test_suspended_set_creates_nothing_until_resumed(
    world: set_world.SetWorld,
) -> None:
    await world.gangs.node("a")
    await world.declare_set(suspend=True)
    await world.wait_for_set("Suspended", generation=0)
    assert await world.gangs.clusters() == []
    await world.change(suspend=False)
    await world.connect_workers()
    await world.wait_for_set("Running")


async def test_running_flow_is_suspended_and_resumed(world: set_world.SetWorld) -> None:
    await world.running()
    await world.change(suspend=True)
    status = await world.wait_for_set("Suspended", "Suspended")
    assert world.flows.suspended == [True]
    assert status["gang"] == "2/2"
    await world.change(suspend=False)
    await world.wait_for_set("Running")
    assert world.flows.suspended == [True, False]


async def test_kill_timestamp_kills(world: set_world.SetWorld) -> None:
    await world.running()
    await world.change(killTimestamp="2026-01-01T00:00:00Z")
    await world.wait_for_set("Killed", "Killed")
    assert world.flows.killed == [(1, "Killed")]
    await world.end_all_pods()


async def test_deadline_fails_the_generation(world: set_world.SetWorld) -> None:
    await world.running()
    await world.change(deadlineSeconds=1)
    await world.wait_for_set("Failed", "DeadlineExceeded")
    assert world.flows.killed == [(1, "DeadlineExceeded")]


async def test_higher_generation_ends_the_one_before(world: set_world.SetWorld) -> None:
    await world.running()
    await world.change(generation=2, flow={"do": [{"other": {"command": ["true"]}}]})

    async def begun() -> bool:
        await world.gangs.end_pods()
        return await world.gangs.clusters() == ["risk-g2-worker"]

    await waiting.wait_until_async(begun, what="groups of the second generation")
    assert world.flows.killed == [(1, "Superseded")]
    await world.connect_workers()
    status = await world.wait_for_set("Running", generation=2)
    assert [run.generation for run in world.flows.started] == [1, 2]
    [past] = status["generations"]
    assert (past["generation"], past["phase"]) == (1, "Killed")


async def test_replay_repeats_flow_and_data_of_a_generation(world: set_world.SetWorld) -> None:
    await world.running()
    world.flows.move(1, run_types.FlowPhase.SUCCEEDED)
    await world.wait_for_set("Succeeded")
    await world.end_all_pods()
    await world.change(
        generation=2,
        replay={"generation": 2, "of": 1},
        flow={"do": [{"other": {"command": ["false"]}}]},
    )
    await world.connect_workers()
    status = await world.wait_for_set("Running", generation=2)
    first, second = world.flows.started
    assert second.flow == first.flow
    assert status["replayOf"] == 1


async def test_replay_of_a_forgotten_generation_fails(world: set_world.SetWorld) -> None:
    await world.gangs.node("a")
    await world.declare_set(generation=5, replay={"generation": 5, "of": 3})
    status = await world.wait_for_set("Failed", "NoGeneration", generation=5)
    assert "generation 3 is not kept" in status["message"]


async def test_old_generations_are_forgotten(world: set_world.SetWorld) -> None:
    await world.running(keep={"generations": 1})
    world.flows.move(1, run_types.FlowPhase.SUCCEEDED)
    await world.wait_for_set("Succeeded")
    await world.end_all_pods()
    await world.change(generation=2)
    await world.connect_workers()
    await world.wait_for_set("Running", generation=2)
    world.flows.move(2, run_types.FlowPhase.SUCCEEDED)
    status = await world.wait_for_set("Succeeded", generation=2)
    assert [one["generation"] for one in status["generations"]] == [2]

    async def forgotten() -> bool:
        return [key.generation for key in world.flows.kept] == [2]

    await waiting.wait_until_async(forgotten, what="the first generation is forgotten")


async def test_deleted_set_leaves_nothing(world: set_world.SetWorld) -> None:
    await world.running()
    await world.kube.delete(kinds.SYNC_SETS, "risk", controller_world.NS, propagation="Background")
    await waiting.wait_until_async(lambda: not world.flows.views, what="the flow is forgotten")
    await world.end_all_pods()
    assert await world.gangs.clusters() == []


async def test_set_deleted_while_no_manager_ran_is_forgotten(world: set_world.SetWorld) -> None:
    await world.running()
    await world.controllers.stop()
    await world.kube.delete(kinds.SYNC_SETS, "risk", controller_world.NS, propagation="Background")
    world.controllers = world._new()
    await world.start()
    await waiting.wait_until_async(lambda: not world.flows.views, what="the flow is forgotten")


async def test_time_to_live_deletes_the_set(world: set_world.SetWorld) -> None:
    await world.running(keep={"ttlSeconds": 0})
    world.flows.move(1, run_types.FlowPhase.SUCCEEDED)

    async def gone() -> bool:
        try:
            await world.kube.get(kinds.SYNC_SETS, "risk", controller_world.NS)
        except errors.NotFound:
            return True
        return False

    await waiting.wait_until_async(gone, what="the SyncSet is gone")


async def test_new_manager_goes_on_and_starts_nothing_twice(world: set_world.SetWorld) -> None:
    await world.running()
    before = await world.set_status()
    await world.restart()
    world.flows.move(1, run_types.FlowPhase.SUCCEEDED)
    status = await world.wait_for_set("Succeeded")
    assert len(world.flows.started) == 1
    assert status["admissionTime"] == before["admissionTime"]


async def test_workers_change_within_bounds(world: set_world.SetWorld) -> None:
    await world.running(resources={"groups": world.groups(min=1, elastic={"max": 3})})
    await world.change(resources={"groups": world.groups(min=1, elastic={"max": 3}, replicas=3)})
    await world.connect_workers(3)

    async def three() -> bool:
        return bool((await world.set_status())["gang"] == "3/3")

    await waiting.wait_until_async(three, what="three workers")
    with pytest.raises(errors.Invalid, match=r"is 4, more than elastic.max, 3"):
        await world.change(
            resources={"groups": world.groups(min=1, elastic={"max": 3}, replicas=4)}
        )


async def test_worker_that_ends_fails_the_generation(world: set_world.SetWorld) -> None:
    await world.running(resources={"groups": world.groups(onPodFailed="fail")})
    patch = {"status": {"phase": "Failed", "reason": "Evicted"}}
    await world.kube.merge_patch(
        api_resources.PODS, "risk-g1-worker-0", patch, controller_world.NS, subresource="status"
    )
    status = await world.wait_for_set("Failed", "WorkerEnded")
    assert "Pod risk-g1-worker-0 failed: Evicted" in status["message"]


async def test_objects_are_created_first_and_removed_with_the_set(
    world: set_world.SetWorld,
) -> None:
    await world.gangs.node("a")
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings"},
        "data": {"curve": "flat"},
    }
    uid = await world.declare_set(resources={"groups": world.groups(), "objects": [settings]})
    await world.connect_workers()
    await world.wait_for_set("Running")
    made = await world.kube.get(api_resources.CONFIG_MAPS, "settings", controller_world.NS)
    assert made["data"] == {"curve": "flat"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == uid


async def test_forbidden_object_is_reported(world: set_world.SetWorld) -> None:
    await world.gangs.node("a")
    other = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}
    await world.declare_set(resources={"groups": world.groups(), "objects": [other]})
    status = await world.wait_for_set("Placing", "ObjectRefused")
    assert "spec.resources.objects[0]: the manager may not make secrets" in status["message"]
    assert await world.gangs.clusters() == []


async def test_set_with_data_waits_for_its_pond(world: set_world.SetWorld) -> None:
    await world.gangs.node("a")
    snapshots = [{"name": "trades", "from": {"inline": {"a.csv": "1"}}}]
    await world.declare_set(data={"snapshots": snapshots})
    status = await world.wait_for_set("Pending", "WaitingForPond")
    assert "DataPond default does not exist in namespace default" in status["message"]
    assert conditions(status)["SnapshotPinned"] == "False"
    assert await world.gangs.clusters() == []
