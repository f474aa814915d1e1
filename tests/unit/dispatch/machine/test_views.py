"""Why a task waits at this moment, and clusters with their workers."""

import msgspec

from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import views
from support import scripted_calls, view_samples


def test_without_a_worker_the_cluster_is_named() -> None:
    world, task = scripted_calls.world_with_call(slots=0)
    reason, message = views.explain(world.task(task))
    assert reason == "NoWorker"
    assert message == "no worker of TaskCluster default is connected"


def test_holders_of_slots_and_tasks_ahead_are_named() -> None:
    world = scripted_calls.world_with_driver()
    tasks = world.submit(9, name="calls")
    waiting = [world.task(task) for task in tasks if world.task(task).ticket is not None]
    first, second = (views.explain(task) for task in waiting[:2])
    assert first == ("NoFreeSlot", "all 1 slots of TaskCluster default are taken by calls")
    assert second[1].endswith("; 1 wait before it")


def test_unfinished_inputs_are_counted() -> None:
    world, needed = scripted_calls.world_with_call(slots=0)
    (task,) = world.submit(needs=(needed,))
    assert views.shown_reason(world.task(task)) == (
        "WaitingForInput",
        "1 of its 1 inputs are not over yet",
    )
    world.task(task).suspended = True
    assert views.shown_reason(world.task(task)) is None


def test_view_is_completed_from_memory_if_the_state_is_the_same() -> None:
    world, task = scripted_calls.world_with_call(slots=0)
    stored = view_samples.waiting(reason="Old")
    now = views.with_current_facts(stored, world.task(task))
    assert now.reason == "NoWorker"
    assert views.with_current_facts(stored, None) is stored
    later = msgspec.structs.replace(stored, state=api_task.State.RUNNING)
    assert views.with_current_facts(later, world.task(task)) is later


def test_cluster_counts_queued_tasks() -> None:
    world, _ = scripted_calls.world_with_call(slots=0)
    world.worker(2, slots=3, cluster="other")
    seen = {view.cluster: view for view in map(views.of_cluster, world.memory.clusters.values())}
    assert (seen["default"].queued, seen["default"].workers) == (1, ())
    assert (seen["other"].queued, seen["other"].slots) == (0, 3)
