"""Invariants 1 to 9 of the design, as far as the machine alone decides them, for calls."""

from typing import Any

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import inputs, instructions, views
from support import scripted_calls
from support.scripted_calls import World, spec, state_and_reason

FAILED = attempts.Ending.FAILED
RETRY = api_task.Retry(max_attempts=3, delay_seconds=0)


def world_of(template: api_task.TaskSpec | None = None, **options: Any) -> World:
    return scripted_calls.world_with_driver(
        template or spec(retry=RETRY), **({"slots": 2} | options)
    )


def test_invariant_1_an_accepted_call_is_written_and_repeating_it_changes_nothing() -> None:
    world = world_of()
    item = calls.CallItem(7, scripted_calls.task_id(7), 1, scripted_calls.ARGUMENTS)
    world.machine.handle(inputs.SubmitCalls(scripted_calls.DRIVER, (item, item)), world.now)
    batch = world.machine.take(world.now)
    assert batch.accepted == {scripted_calls.DRIVER: 7}
    assert [task.id for task in batch.dirty] == [item.task]
    assert len(batch.templates) <= 1


def test_invariant_2_an_attempt_is_reserved_before_it_starts_and_only_the_newest_reports() -> None:
    world = world_of()
    (task,) = world.submit()
    player, first = world.holder(task), world.task(task).ref
    assert (world.task(task).attempt, state_and_reason(world.task(task))) == (
        1,
        ("Staging", "Starting"),
    )
    world.end(task, FAILED)
    assert world.task(task).attempt == 2
    late = calls.CallEnd(
        first, attempts.Ending.SUCCEEDED, "Succeeded", "", None, world.now.wall, 0.1
    )
    world.apply(inputs.CallsEnded(player.link, 99, (late,)))
    assert not world.task(task).state.final


def test_invariant_3_a_result_goes_out_with_the_batch_that_writes_it() -> None:
    world = world_of()
    (task,) = world.submit()
    player, ref = world.holder(task), world.task(task).ref
    end = calls.CallEnd(ref, attempts.Ending.SUCCEEDED, "Succeeded", "", None, world.now.wall, 0.1)
    world.machine.handle(inputs.CallsEnded(player.link, 1, (end,)), world.now)
    batch = world.machine.take(world.now)
    assert [one.id for one in batch.dirty] == [task]
    assert [result.number for result in batch.results[scripted_calls.DRIVER]] == [1]
    assert batch.acknowledged == {player.link: 1}


def test_invariant_4_user_code_runs_again_only_after_a_loss_or_an_allowed_retry() -> None:
    world = world_of(spec())
    (task,) = world.submit()
    world.end(task, FAILED)
    assert state_and_reason(world.task(task)) == ("Failed", "Raised")
    assert world.task(task).attempt == 1


def test_invariant_5_killed_means_proof() -> None:
    world = world_of()
    (task,) = world.submit()
    world.apply(inputs.Kill(task, "Killed"))
    assert state_and_reason(world.task(task)) == ("Killing", "Killed")
    world.die(world.holder(task), running=task, code=137, asked=True)
    assert (state_and_reason(world.task(task)), world.task(task).stopped) == (
        ("Killed", "Killed"),
        True,
    )


def test_invariant_6_the_next_attempt_finds_the_children_of_the_one_before() -> None:
    world = world_of()
    (parent,) = world.submit()
    for _ in range(2):
        player = world.holder(parent)
        world.define(spec("m:child"), link=player.link)
        ref = world.task(parent).ref
        world.submit(link=player.link, parent=ref, ordinal=1)
        world.end(parent, FAILED)
    assert len(world.memory.tasks) == 2
    assert len(world.sent_of(instructions.FoundCall)) == 1


def test_invariant_7_children_outlive_their_parent() -> None:
    world = world_of()
    (parent,) = world.submit()
    player = world.holder(parent)
    world.define(spec("m:child"), link=player.link)
    (child,) = world.submit(link=player.link, parent=world.task(parent).ref, ordinal=1)
    world.end(parent)
    world.apply(inputs.Kill(parent, "Killed"))
    assert world.holds(child)
    world.end(child)
    assert state_and_reason(world.task(child)) == ("Success", "Succeeded")


def test_invariant_8_of_two_slots_that_have_an_attempt_only_the_newest_counts() -> None:
    world = world_of()
    (task,) = world.submit()
    player, ref = world.holder(task), world.task(task).ref
    world.give_back(player, [ref])
    assert world.task(task).attempt == 2
    stale = calls.CallEnd(ref, FAILED, "Raised", "", None, world.now.wall, 0.1)
    world.apply(inputs.CallsEnded(player.link, 99, (stale,)))
    assert state_and_reason(world.task(task)) == ("Staging", "Starting")
    assert world.task(task).failures == 0


def test_invariant_9_every_waiting_task_says_why() -> None:
    world = world_of(slots=1)
    (running, queued) = world.submit(2)
    (needing,) = world.submit(needs=(running,))
    world.apply(inputs.Suspend(queued, True))
    assert state_and_reason(world.task(queued)) == ("Pending", "Suspended")
    world.apply(inputs.Suspend(queued, False))
    shown = views.shown_reason(world.task(queued))
    assert shown is not None
    assert str(shown[0]) == "NoFreeSlot"
    shown = views.shown_reason(world.task(needing))
    assert shown is not None
    assert str(shown[0]) == "WaitingForInput"
