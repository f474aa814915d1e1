"""Workers that are to go: they finish what they have, get nothing new, and take no blame.

And workers that come back: they have one lease.
"""

import math

import pytest

from kilnwork.api import reasons
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import inputs, memory, views
from support.scripted_calls import (
    World,
    spawn,
    state_and_reason,
    world_with_call,
    world_with_driver,
)


def drain(world: World, *pods: str) -> None:
    world.apply(inputs.Drain("ns", "default", frozenset(pods)))


def view(world: World) -> model.ClusterView:
    return views.of_cluster(world.memory.clusters["ns", "default"])


def test_draining_worker_gets_no_tasks_until_it_is_wanted_again() -> None:
    world = world_with_driver()
    drain(world, "pod1")
    (task,) = world.submit()
    assert not world.holds(task)
    reason, message = views.explain(world.memory.tasks[task])
    assert (reason, "are to go" in message) == (reasons.Reason.NO_WORKER, True)
    drain(world)
    assert world.holds(task)


def test_tasks_of_a_draining_worker_continue() -> None:
    world, task = world_with_call()
    drain(world, "pod1")
    assert [(w.draining, w.ready, w.holding) for w in view(world).workers] == [(True, False, 1)]
    world.end(task)
    assert [w.holding for w in view(world).workers] == [0]


def test_worker_that_joins_later_is_drained() -> None:
    world = world_with_driver(slots=0)
    drain(world, "pod1")
    world.worker()
    (task,) = world.submit()
    assert not world.holds(task)
    assert view(world).draining == {"pod1"}


def test_a_parent_that_waits_without_a_reservation_is_held() -> None:
    """Its worker is not busy, and deleting it would lose the parent."""
    world, parent = world_with_call()
    world.wait(parent, spawn(world, parent))
    child_only = view(world).workers[0]
    assert (child_only.busy, child_only.holding) == (1, 2)


def test_children_run_in_place_on_a_drained_worker() -> None:
    """Else a parent could not end, and its worker never be empty."""
    world, parent = world_with_call()
    drain(world, "pod1")
    child = spawn(world, parent)
    world.wait(parent, child, in_place=True)
    assert world.holder(child) is world.holder(parent)


def test_cluster_that_is_being_deleted_spares_running_tasks() -> None:
    world = world_with_driver(slots=2)
    running, parent = world.submit(2)
    child = spawn(world, parent)
    (dependent,) = world.submit(needs=(running,))
    world.end(parent, delegate=child, seconds=1)
    (queued,) = world.submit()
    world.apply(inputs.CloseCluster("ns", "default", running=False))
    for task in (queued, dependent):
        assert state_and_reason(world.task(task)) == ("Failed", "ClusterDeleted")
    assert world.holds(running)
    assert world.holds(child)
    assert state_and_reason(world.task(parent))[0] == "Running"
    world.end(child)
    world.end(running)
    for task in (running, parent, child):
        assert state_and_reason(world.task(task))[0] == "Success"


@pytest.mark.parametrize(("drained", "losses", "excused"), [(True, 0, 1), (False, 1, 0)])
def test_loss_with_a_draining_worker_is_not_counted(
    *, drained: bool, losses: int, excused: int
) -> None:
    world, task = world_with_call()
    world.started(task)
    if drained:
        drain(world, "pod1")
    world.apply(inputs.WorkerGone("pod1"))
    record = world.task(task)
    assert (record.losses, record.excused) == (losses, excused)


@pytest.mark.parametrize(("drained", "losses", "excused"), [(True, 0, 1), (False, 1, 0)])
def test_loss_by_an_agent_that_had_to_stop_is_not_counted(
    *, drained: bool, losses: int, excused: int
) -> None:
    world, task = world_with_call()
    player, ref = world.holder(task), world.task(task).ref
    if drained:
        drain(world, "pod1")
    world.apply(inputs.LinkClosed(player.link))
    world.apply(inputs.SlotGone(1, 9, player.name, ref, 143, False, "", True, "WorkerStopping"))
    record = world.task(task)
    assert (record.losses, record.excused) == (losses, excused)


def test_worker_that_joins_often_has_one_lease_timer() -> None:
    world = world_with_driver()
    for link in range(2, 12):
        world.apply(inputs.LinkClosed(link - 1))
        world.worker(link, session=bytes(16), pod_uid="pod", name="w")
        world.after(6, renews=(link,))
    world.after(6, renews=(link,))
    kinds = []
    while (timer := world.memory.pop_due_timer(math.inf)) is not None:
        kinds.append(timer[0])
    assert kinds.count(memory.Timer.LEASE) == 1


def test_worker_that_joined_again_is_lost_when_its_newest_lease_ends() -> None:
    world, task = world_with_call()
    world.apply(inputs.LinkClosed(1))
    world.after(9, renews=())
    world.worker()
    world.after(9, renews=())
    assert world.holds(task)
    assert world.task(task).losses == 0
    world.after(2, renews=())
    assert not world.memory.workers
