"""Calls that are to end: cancelled, timed out, asked to first, then with their process."""

from typing import Any

import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import inputs, instructions
from kilnwork.kit import ids
from support import scripted_calls
from support.scripted_calls import World, spec, state_and_reason

GRACE = api_task.Timeouts(kill_grace_seconds=5)
STOPPED = attempts.Ending.STOPPED


def world_of(template: api_task.TaskSpec | None = None, **options: Any) -> World:
    return scripted_calls.world_with_driver(template or spec(timeouts=GRACE), **options)


def with_call(
    template: api_task.TaskSpec | None = None, **options: Any
) -> tuple[World, ids.TaskId]:
    return scripted_calls.world_with_call(template or spec(timeouts=GRACE), **options)


def spawn(world: World, parent: ids.TaskId, **item: Any) -> ids.TaskId:
    return scripted_calls.spawn(world, parent, template=spec("m:child", timeouts=GRACE), **item)


def cancel(world: World, *tasks: ids.TaskId, **fields: Any) -> None:
    world.apply(inputs.CancelTasks(scripted_calls.DRIVER, tasks, **fields))


def test_a_queued_call_is_killed_at_once() -> None:
    world = world_of()
    (_, queued) = world.submit(2)
    cancel(world, queued)
    assert state_and_reason(world.task(queued)) == ("Killed", "Killed")
    assert world.task(queued).stopped is True
    assert len(world.task(queued).cluster.queue) == 0


def test_a_call_that_has_not_started_is_returned_and_killed() -> None:
    world, task = with_call()
    world.end(task, seconds=0.001)
    (running, sent) = world.submit(2)
    cancel(world, sent)
    (stop,) = world.sent_of(instructions.StopCall)
    assert stop.ref == world.task(sent).ref
    assert state_and_reason(world.task(sent)) == ("Killing", "Killed")
    world.give_back(world.holder(sent), [stop.ref])
    assert state_and_reason(world.task(sent)) == ("Killed", "Killed")
    assert world.task(sent).stopped is True
    assert world.holds(running)


def test_a_running_call_is_interrupted_first() -> None:
    world, task = with_call()
    cancel(world, task)
    world.end(task, STOPPED, reason="Killed")
    assert state_and_reason(world.task(task)) == ("Killed", "Killed")
    world.after(6)
    assert not world.sent_of(instructions.KillSlot)


def test_process_is_killed_after_the_grace_which_is_the_proof() -> None:
    world, task = with_call()
    player = world.holder(task)
    cancel(world, task)
    world.after(4)
    assert not world.sent_of(instructions.KillSlot)
    world.after(1.5)
    (killed,) = world.sent_of(instructions.KillSlot)
    assert killed.slot == player.name
    assert state_and_reason(world.task(task)) == ("Killing", "Killed")
    world.die(player, running=task, code=137, asked=True)
    assert state_and_reason(world.task(task)) == ("Killed", "Killed")
    assert world.task(task).stopped is True


def test_a_slot_that_exits_by_itself_while_it_is_stopped_has_stopped() -> None:
    world, task = with_call()
    cancel(world, task)
    world.die(world.holder(task), running=task, code=1, asked=False)
    assert state_and_reason(world.task(task)) == ("Killed", "Killed")


def test_without_proof_a_lease_after_the_grace_it_is_unconfirmed() -> None:
    world, task = with_call()
    player = world.holder(task)
    cancel(world, task)
    for _ in range(8):
        world.after(2)
    assert state_and_reason(world.task(task)) == ("Killed", "Unconfirmed")
    assert world.task(task).stopped is False
    assert world.memory.links[1].busy == 1, "its process may still be there"
    (queued,) = world.submit()
    assert not world.holds(queued)
    world.die(player, running=task, code=137, asked=True)
    assert world.task(task).stopped is True
    assert world.holds(queued)


def test_an_outcome_that_was_sent_before_the_kill_was_read_counts() -> None:
    world, task = with_call()
    cancel(world, task)
    world.end(task)
    assert state_and_reason(world.task(task)) == ("Success", "Succeeded")


def test_other_calls_of_a_killed_process_run_again_uncounted() -> None:
    world, parent = with_call()
    child = spawn(world, parent)
    world.wait(parent, child, in_place=True)
    player = world.holder(parent)
    cancel(world, child)
    world.after(5.5)
    world.die(player, running=child, code=137, asked=True)
    assert state_and_reason(world.task(child)) == ("Killed", "Killed")
    record = world.task(parent)
    assert (record.failures, record.losses, record.attempt) == (0, 0, 2)
    assert record.alone


def test_calls_on_top_of_a_stopped_parent_run_elsewhere_uncounted() -> None:
    world = world_of(slots=2)
    (parent, other) = world.submit(2)
    other_child = spawn(world, other)
    player = world.holder(parent)
    world.apply(inputs.Waiting(player.link, world.task(parent).ref, (other_child,), in_place=True))
    assert world.holder(other_child) is player
    cancel(world, parent)
    world.after(5.5)
    assert [send.slot for send in world.sent_of(instructions.KillSlot)] == [player.name]
    world.die(player, running=other_child, code=137, asked=True)
    assert state_and_reason(world.task(parent)) == ("Killed", "Killed")
    record = world.task(other_child)
    assert (record.failures, record.losses, record.excused, record.attempt) == (0, 0, 1, 2)


def test_cancel_is_recursive() -> None:
    world, parent = with_call(slots=4)
    child = spawn(world, parent)
    world.wait(parent, child)
    grandchild = spawn(world, child)
    waiting = spawn(world, child, ordinal=2, needs=(grandchild,))
    cancel(world, parent)
    stopped = {send.ref.task for send in world.sent_of(instructions.StopCall)}
    assert stopped == {parent, child, grandchild}
    assert state_and_reason(world.task(waiting)) == ("Killed", "ParentKilled")
    assert state_and_reason(world.task(grandchild)) == ("Killing", "ParentKilled")


def test_cancel_of_one_task_alone_leaves_its_children() -> None:
    world, parent = with_call(slots=2)
    child = spawn(world, parent)
    cancel(world, parent, recursive=False)
    assert state_and_reason(world.task(parent))[0] == "Killing"
    assert state_and_reason(world.task(child))[0] == "Staging"


def test_recursive_cancel_after_one_of_the_parent_alone_kills_children() -> None:
    world, parent = with_call(slots=3)
    child = spawn(world, parent)
    grandchild = spawn(world, child)
    cancel(world, parent, recursive=False)
    cancel(world, child, recursive=False)
    cancel(world, parent)
    assert state_and_reason(world.task(child)) == ("Killing", "Killed")
    assert state_and_reason(world.task(grandchild)) == ("Killing", "ParentKilled")
    stopped = [send.ref.task for send in world.sent_of(instructions.StopCall)]
    assert stopped == [parent, child, grandchild]


def test_a_driver_cannot_cancel_in_another_namespace() -> None:
    world, task = with_call()
    world.apply(inputs.Attach(300, b"x" * 16, "other"))
    world.apply(inputs.CancelTasks(300, (task,)))
    assert state_and_reason(world.task(task)) == ("Staging", "Starting")


def test_a_call_that_runs_too_long_fails_with_proof() -> None:
    template = spec(timeouts=api_task.Timeouts(running_seconds=3, kill_grace_seconds=1))
    world, task = with_call(template)
    world.started(task)
    world.after(4)
    (stop,) = world.sent_of(instructions.StopCall)
    assert stop.reason == "TimedOut"
    assert state_and_reason(world.task(task)) == ("Running", "TimedOut")
    world.end(task, STOPPED, reason="TimedOut")
    assert state_and_reason(world.task(task)) == ("Failed", "TimedOut")


def test_a_call_that_timed_out_may_be_tried_again() -> None:
    template = spec(
        timeouts=api_task.Timeouts(running_seconds=3, kill_grace_seconds=1),
        retry=api_task.Retry(max_attempts=2, delay_seconds=0),
    )
    world, task = with_call(template)
    world.started(task)
    world.after(4)
    player = world.holder(task)
    world.after(1.5)
    assert world.sent_of(instructions.KillSlot)
    world.die(player, running=task, code=137, asked=True)
    assert world.task(task).attempt == 2
    assert world.holds(task)


def test_a_run_that_takes_too_long_in_all_ends_wherever_it_is() -> None:
    template = spec(timeouts=api_task.Timeouts(total_seconds=3, kill_grace_seconds=1))
    world = world_of(template)
    (running, queued) = world.submit(2)
    world.after(4)
    assert state_and_reason(world.task(queued)) == ("Failed", "TotalTimedOut")
    world.end(running, STOPPED, reason="TotalTimedOut")
    assert state_and_reason(world.task(running)) == ("Failed", "TotalTimedOut")


def test_a_call_that_could_not_start_in_time_fails() -> None:
    template = spec(timeouts=api_task.Timeouts(pending_seconds=3))
    world = world_of(template)
    (running, queued) = world.submit(2)
    world.started(running)
    world.after(4)
    assert state_and_reason(world.task(queued)) == ("Failed", "PendingTimedOut")


def test_a_failed_call_is_tried_again_after_its_delay() -> None:
    retry = api_task.Retry(max_attempts=2, delay_seconds=2, jitter=0)
    world, task = with_call(spec(retry=retry))
    world.end(task, attempts.Ending.FAILED)
    assert state_and_reason(world.task(task)) == ("Pending", "RetryBackoff")
    assert world.task(task).result is None
    world.after(2.1)
    assert world.task(task).attempt == 2
    world.end(task, attempts.Ending.FAILED)
    assert state_and_reason(world.task(task)) == ("Failed", "Raised")
    result = world.result(1)
    assert result is not None
    assert scripted_calls.error_of(result.payload).text == "no"


def test_call_that_never_reports_its_start_still_times_out() -> None:
    """It stops itself, or keeps the interpreter to itself, before its slot has reported it."""
    limits = api_task.Timeouts(running_seconds=10, kill_grace_seconds=5)
    world, task = with_call(spec(timeouts=limits))
    world.after(10.5)
    assert state_and_reason(world.task(task)) == ("Running", "Started")
    world.after(10.5)
    assert state_and_reason(world.task(task)) == ("Running", "TimedOut")
    world.after(5.5)
    assert world.sent_of(instructions.KillSlot)


def test_call_queued_in_a_slot_is_not_running() -> None:
    world, task = with_call(spec(timeouts=api_task.Timeouts(running_seconds=10)))
    world.end(task, seconds=0.001)
    (running, sent) = world.submit(2)
    assert world.holds(sent)
    world.started(running)
    for _ in range(3):
        world.after(9)
        assert state_and_reason(world.task(sent)) == ("Staging", "Starting")


def test_an_exception_that_is_not_to_be_retried_is_final() -> None:
    world, task = with_call(spec(retry=api_task.Retry(max_attempts=5, delay_seconds=0)))
    world.end(task, attempts.Ending.FAILED, may_retry=False)
    assert state_and_reason(world.task(task)) == ("Failed", "Raised")


def test_a_killed_call_that_failed_by_itself_has_failed() -> None:
    world, task = with_call()
    cancel(world, task)
    world.end(task, attempts.Ending.FAILED)
    assert state_and_reason(world.task(task)) == ("Failed", "Raised")
    assert world.task(task).result == scripted_calls.ERROR


@pytest.mark.parametrize("in_place", [True, False])
def test_a_child_that_is_killed_under_its_waiting_parents(in_place: bool) -> None:  # noqa: FBT001
    world, parent = with_call(slots=2)
    child = spawn(world, parent)
    world.wait(parent, child, in_place=in_place)
    cancel(world, child)
    world.end(child, STOPPED, reason="Killed")
    player = world.holder(parent)
    result = world.results[player.link][-1]
    assert (result.state, result.reason) == (api_task.State.KILLED, "Killed")
    world.resume(parent)
    world.end(parent)
    assert state_and_reason(world.task(parent)) == ("Success", "Succeeded")
