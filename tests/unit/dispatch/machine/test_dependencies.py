"""Calls that take the results of others, and tasks that return another one's future."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import attempts, calls, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import dependencies, inputs, views
from kilnwork.kit import ids
from support import scripted_calls
from support.scripted_calls import World, error_of, spawn, spec, state_and_reason, task_id

FAILED = attempts.Ending.FAILED
_S = api_task.State


def world_of(template: api_task.TaskSpec | None = None, **options: Any) -> World:
    return scripted_calls.world_with_driver(template, **({"slots": 4} | options))


def with_call(
    template: api_task.TaskSpec | None = None, **options: Any
) -> tuple[World, ids.TaskId]:
    return scripted_calls.world_with_call(template, **({"slots": 4} | options))


def values_of(world: World, task: ids.TaskId) -> dict[ids.TaskId, calls.Value]:
    return world.task(task).values or {}


def test_a_call_waits_for_what_it_needs_and_says_so() -> None:
    world = world_of()
    first, second = world.submit(2)
    (task,) = world.submit(needs=(first, second))
    assert state_and_reason(world.task(task)) == ("Pending", "WaitingForInput")
    shown = views.shown_reason(world.task(task))
    assert shown == (reasons.Reason.WAITING_FOR_INPUT, "2 of its 2 inputs are not over yet")
    world.end(first)
    assert state_and_reason(world.task(task)) == ("Pending", "WaitingForInput")
    world.end(second)
    assert world.holds(task)


def test_results_are_sent_along_with_the_call() -> None:
    world, first = with_call()
    (task,) = world.submit(needs=(first,))
    world.end(first)
    value = values_of(world, task)[first]
    assert (value.state, value.payload) == (_S.SUCCESS, scripted_calls.RESULT)


def test_finished_dependency_does_not_delay_the_call() -> None:
    world = world_of()
    world.forgets = False
    (first,) = world.submit()
    world.end(first)
    (task,) = world.submit(needs=(first,))
    assert world.holds(task)
    assert values_of(world, task)[first].payload == scripted_calls.RESULT


def test_dependency_that_only_the_journal_has() -> None:
    world = world_of()
    over = calls.Value(task_id(500), _S.SUCCESS, "Succeeded", "", scripted_calls.RESULT)
    (task,) = world.submit(needs=(task_id(500),), values={task_id(500): over})
    assert world.holds(task)
    assert values_of(world, task) == {task_id(500): over}


def test_results_that_are_too_large_together_are_left_to_the_slot() -> None:
    world = world_of(slots=8)
    needs = world.submit(6)
    (task,) = world.submit(needs=tuple(needs))
    big = attempts.Payload(attempts.PICKLE, bytes(60_000))
    for need in needs:
        world.end(need, payload=big)
    assert world.holds(task)
    assert len(values_of(world, task)) == dependencies.MAX_VALUES_BYTES // 60_000


def test_a_failed_input_fails_the_call_and_is_its_cause() -> None:
    world, first = with_call()
    (task,) = world.submit(needs=(first,))
    world.end(first, FAILED)
    assert state_and_reason(world.task(task)) == ("Failed", "InputFailed")
    error = error_of(world.task(task).result)
    assert error.type == "kilnwork.InputFailed"
    assert ids.task_text(first) in error.text
    assert error.cause == scripted_calls.RAISED
    result = world.result(2)
    assert result is not None
    assert result.reason == "InputFailed"


def test_a_killed_input_has_a_cause_that_says_so() -> None:
    world = world_of(slots=1)
    (_, first) = world.submit(2)
    (task,) = world.submit(needs=(first,))
    world.apply(inputs.CancelTasks(scripted_calls.DRIVER, (first,)))
    error = error_of(world.task(task).result)
    assert error.cause is not None
    assert error.cause.type == "kilnwork.Cancelled"


def test_failures_pass_along_a_long_chain() -> None:
    world, first = with_call()
    last = first
    for _ in range(3000):
        (last,) = world.submit(needs=(last,))
    world.end(first, FAILED)
    assert state_and_reason(world.task(last)) == ("Failed", "InputFailed")
    assert error_of(world.task(last).result).cause == scripted_calls.RAISED
    assert not world.memory.tasks


def test_all_inputs_are_waited_for_before_a_failure_counts() -> None:
    world = world_of()
    first, second = world.submit(2)
    (task,) = world.submit(needs=(first, second))
    world.end(first, FAILED)
    assert state_and_reason(world.task(task)) == ("Pending", "WaitingForInput")
    world.end(second)
    assert state_and_reason(world.task(task)) == ("Failed", "InputFailed")


def test_a_call_that_accepts_failures_runs_with_them() -> None:
    world = world_of()
    world.define(spec("m:any", accept_failures=True), number=2)
    (first,) = world.submit()
    (task,) = world.submit(needs=(first,), template=2)
    world.end(first, FAILED)
    assert world.holds(task)
    value = values_of(world, task)[first]
    assert (value.state, value.payload) == (_S.FAILED, scripted_calls.ERROR)


def test_unknown_dependency_fails_the_call() -> None:
    world = world_of()
    (task,) = world.submit(needs=(task_id(999),))
    assert state_and_reason(world.task(task)) == ("Failed", "InputFailed")
    assert "not known" in world.task(task).message


def test_a_call_that_needs_itself_fails() -> None:
    world = world_of()
    (task,) = world.submit(task=task_id(50), needs=(task_id(50),))
    assert state_and_reason(world.task(task)) == ("Failed", "InputFailed")


def test_dependency_in_another_namespace_is_unknown() -> None:
    world, first = with_call()
    world.apply(inputs.Attach(300, b"x" * 16, "other"))
    world.define(spec(), link=300)
    (task,) = world.submit(link=300, needs=(first,))
    assert state_and_reason(world.task(task)) == ("Failed", "InputFailed")


def test_a_call_that_waits_for_inputs_can_be_suspended_and_resumed() -> None:
    world, first = with_call()
    (task,) = world.submit(needs=(first,))
    world.apply(inputs.Suspend(task, True))
    assert state_and_reason(world.task(task)) == ("Pending", "Suspended")
    world.apply(inputs.Suspend(task, False))
    assert state_and_reason(world.task(task)) == ("Pending", "WaitingForInput")
    world.apply(inputs.Suspend(task, True))
    world.end(first)
    assert state_and_reason(world.task(task)) == ("Pending", "Suspended")
    world.apply(inputs.Suspend(task, False))
    assert world.holds(task)


def test_input_values_are_kept_for_the_next_attempt() -> None:
    world, first = with_call(spec(retry=api_task.Retry(max_attempts=2, delay_seconds=0)))
    (task,) = world.submit(needs=(first,))
    world.end(first)
    world.end(task, FAILED)
    assert world.holds(task)
    assert first in values_of(world, task)


def test_a_task_that_returns_a_future_ends_as_that_task_does() -> None:
    world, parent = with_call()
    child = spawn(world, parent)
    world.end(parent, delegate=child, payload=None)
    assert state_and_reason(world.task(parent)) == ("Running", "Delegated")
    assert world.result(1) is None
    assert world.task(parent).slot is None
    world.end(child)
    assert state_and_reason(world.task(parent)) == ("Success", "Succeeded")
    result = world.result(1)
    assert result is not None
    assert result.payload == scripted_calls.RESULT


def test_a_task_that_delegated_holds_no_slot() -> None:
    world, parent = with_call(slots=1)
    child = spawn(world, parent)
    world.end(parent, delegate=child, payload=None)
    assert world.holds(child)
    assert len(world.slots) == 1


def test_delegation_is_followed_transitively() -> None:
    world, task = with_call(slots=1)
    chain = [task]
    for _ in range(50):
        child = spawn(world, chain[-1])
        world.end(chain[-1], delegate=child, payload=None)
        chain.append(child)
    world.end(chain[-1])
    assert {world.task(one).state for one in chain} == {_S.SUCCESS}


def test_a_failure_of_the_delegate_is_its_own_without_another_attempt() -> None:
    world, parent = with_call(spec(retry=api_task.Retry(max_attempts=3, delay_seconds=0)))
    child = spawn(world, parent)
    world.end(parent, delegate=child, payload=None)
    world.end(child, FAILED)
    assert state_and_reason(world.task(parent)) == ("Failed", "Raised")
    assert error_of(world.task(parent).result) == scripted_calls.RAISED


def test_killed_delegate_kills_the_task() -> None:
    world, parent = with_call()
    child = spawn(world, parent)
    world.end(parent, delegate=child, payload=None)
    world.apply(inputs.Kill(child, "Killed"))
    world.end(child, attempts.Ending.STOPPED, reason="Killed")
    assert state_and_reason(world.task(parent)) == ("Killed", "Killed")


def test_a_task_that_delegated_is_killed_at_once_and_its_child_with_proof() -> None:
    world, parent = with_call()
    child = spawn(world, parent)
    world.end(parent, delegate=child, payload=None)
    world.apply(inputs.Kill(parent, "Killed"))
    assert state_and_reason(world.task(parent)) == ("Killed", "Killed")
    assert state_and_reason(world.task(child)) == ("Killing", "ParentKilled")
    world.end(child, attempts.Ending.STOPPED, reason="Killed")
    assert state_and_reason(world.task(child)) == ("Killed", "ParentKilled")
    assert not world.memory.tasks


def test_delegating_to_a_finished_task() -> None:
    world = world_of()
    world.forgets = False
    (parent,) = world.submit()
    child = spawn(world, parent)
    world.end(child)
    world.end(parent, delegate=child, payload=None)
    assert state_and_reason(world.task(parent)) == ("Success", "Succeeded")
    assert world.task(parent).result == scripted_calls.RESULT


def test_delegating_to_a_task_that_only_the_journal_has() -> None:
    world, parent = with_call()
    child = spawn(world, parent)
    world.end(child)
    player, ref = world.holder(parent), world.task(parent).ref
    end = calls.CallEnd(
        ref, attempts.Ending.SUCCEEDED, "Succeeded", "", None, world.now.wall, 0.1, delegate=child
    )
    item = inputs.CallsEnded(player.link, 9, (end,))
    asked = world.machine.lookups(item)
    assert asked is not None
    assert (asked.namespace, asked.values) == ("ns", {child})
    over = calls.Value(child, _S.SUCCESS, "Succeeded", "", scripted_calls.RESULT)
    world.apply(msgspec.structs.replace(item, values={child: over}))
    assert state_and_reason(world.task(parent)) == ("Success", "Succeeded")


def test_delegating_to_a_task_that_is_forgotten_just_after() -> None:
    world = world_of()
    world.forgets = False
    (parent,) = world.submit()
    child = spawn(world, parent)
    world.end(child)
    ref, now = world.task(parent).ref, world.now.wall
    done = attempts.Ending.SUCCEEDED
    end = calls.CallEnd(ref, done, "Succeeded", "", None, now, 0.1, delegate=child)
    item = inputs.CallsEnded(world.holder(parent).link, 9, (end,))
    assert world.machine.lookups(item) is None
    world.machine.handle(item, world.now)
    world.machine.forget([world.task(child)])  # its end has just come to the disk
    world.settle()
    assert state_and_reason(world.task(parent)) == ("Success", "Succeeded")
    assert world.task(parent).result == scripted_calls.RESULT


def test_delegating_to_an_unknown_task_fails() -> None:
    world, parent = with_call()
    world.end(parent, delegate=task_id(999), payload=None)
    assert state_and_reason(world.task(parent)) == ("Failed", "InputFailed")


@pytest.mark.parametrize("far", [0, 1, 3])
def test_returning_its_own_future_fails_instead_of_waiting_forever(far: int) -> None:
    world, task = with_call()
    chain = [task]
    for _ in range(far):
        child = spawn(world, chain[-1])
        world.end(chain[-1], delegate=child, payload=None)
        chain.append(child)
    world.end(chain[-1], delegate=task, payload=None)
    assert {world.task(one).state for one in chain} == {_S.FAILED}


def test_a_dependent_of_a_task_that_delegated_waits_for_the_outcome() -> None:
    world, parent = with_call()
    (after,) = world.submit(needs=(parent,))
    child = spawn(world, parent)
    world.end(parent, delegate=child, payload=None)
    assert state_and_reason(world.task(after)) == ("Pending", "WaitingForInput")
    world.end(child)
    assert world.holds(after)
    assert values_of(world, after)[parent].payload == scripted_calls.RESULT
