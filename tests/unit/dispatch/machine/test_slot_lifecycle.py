"""Slots that die, leave, come back: what they held is settled, once and rightly."""

import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import inputs, instructions
from kilnwork.kit import ids
from support import scripted_calls
from support.scripted_calls import (
    World,
    spawn,
    spec,
    state_and_reason,
    world_of_short_calls,
    world_with_call,
    world_with_driver,
)


def counts(world: World, task: ids.TaskId) -> tuple[int, int, int]:
    record = world.task(task)
    return record.failures, record.losses, record.excused


def test_a_slot_that_exits_fails_what_it_ran() -> None:
    world, task = world_with_call()
    world.die(world.holder(task), running=task, code=1)
    assert state_and_reason(world.task(task)) == ("Failed", "SlotDied")
    assert world.task(task).exit_code == 1
    assert counts(world, task) == (1, 0, 0)
    assert world.memory.links[1].busy == 0
    assert not world.memory.slots


def test_a_slot_that_exits_counts_against_the_attempts() -> None:
    retry = api_task.Retry(max_attempts=2, delay_seconds=0)
    world, task = world_with_call(spec(retry=retry))
    world.die(world.holder(task), running=task, code=139)
    assert counts(world, task) == (1, 0, 0)
    assert world.task(task).attempt == 2
    world.die(world.holder(task), running=task, code=139)
    assert state_and_reason(world.task(task)) == ("Failed", "SlotDied")


def test_a_foreign_sigkill_is_a_loss() -> None:
    world, task = world_with_call(spec(retry=api_task.Retry(max_losses=1)))
    world.die(world.holder(task), running=task, code=137)
    assert counts(world, task) == (0, 1, 0)
    world.die(world.holder(task), running=task, code=137)
    assert state_and_reason(world.task(task)) == ("Failed", "LostTooOften")


def test_calls_queued_behind_it_wait_again_uncounted() -> None:
    world = world_of_short_calls()
    (running, *others) = world.submit(5)
    world.die(world.holder(running), running=running, code=1)
    assert state_and_reason(world.task(running)) == ("Failed", "SlotDied")
    for task in others:
        assert counts(world, task) == (0, 0, 0)
    assert world.holds(others[0])
    assert world.task(others[0]).attempt == 2


def test_calls_that_may_have_run_before_it_run_again_excused() -> None:
    world = world_of_short_calls()
    (first, running, last) = world.submit(3)
    world.die(world.holder(first), running=running, code=1)
    assert counts(world, first) == (0, 0, 1)
    assert counts(world, last) == (0, 0, 0)
    assert state_and_reason(world.task(running)) == ("Failed", "SlotDied")


def test_a_slot_that_dies_between_calls_fails_none() -> None:
    world = world_of_short_calls()
    tasks = world.submit(3)
    world.die(world.holder(tasks[0]), running=None, code=1)
    for task in tasks:
        assert counts(world, task)[:2] == (0, 0)
        assert not world.task(task).state.final


def test_a_slot_is_settled_only_when_its_link_is_read_to_the_end() -> None:
    world, task = world_with_call()
    player = world.holder(task)
    ref = world.task(task).ref
    world.gone(player, running=task, code=0)
    assert not world.task(task).state.final
    player.has.append(ref)
    world.end(task)
    assert state_and_reason(world.task(task)) == ("Success", "Succeeded")
    world.apply(inputs.LinkClosed(player.link))
    assert not world.memory.slots
    assert world.memory.links[1].busy == 0


def test_parents_below_on_the_stack_run_again_uncounted_and_elsewhere() -> None:
    world, top = world_with_call()
    middle = spawn(world, top)
    world.wait(top, middle, in_place=True)
    bottom = spawn(world, middle)
    world.wait(middle, bottom, in_place=True)
    player = world.holder(top)
    world.die(player, running=bottom, code=1)
    assert state_and_reason(world.task(bottom)) == ("Failed", "SlotDied")
    assert counts(world, top) == counts(world, middle) == (0, 0, 1)
    assert world.task(top).alone
    assert world.task(middle).alone
    assert world.memory.links[1].busy == 1


def test_nothing_runs_in_place_on_a_repeated_parent() -> None:
    world, parent = world_with_call()
    child = spawn(world, parent)
    world.wait(parent, child, in_place=True)
    world.die(world.holder(parent), running=child, code=1)
    assert world.task(parent).attempt == 2
    again = spawn(world, parent, ordinal=2)
    world.wait(parent, again, in_place=True)
    assert world.holder(again) is not world.holder(parent)


def test_waiting_parent_that_exits_is_the_one_that_ran() -> None:
    world, parent = world_with_call()
    child = spawn(world, parent)
    world.wait(parent, child)
    world.die(world.holder(parent), running=parent, code=1)
    assert state_and_reason(world.task(parent)) == ("Failed", "SlotDied")
    assert world.holds(child), "children outlive their parent"
    assert not world.memory.waits_by_task


def test_a_lost_worker_loses_what_its_slots_ran() -> None:
    world = world_of_short_calls(spec(retry=api_task.Retry(max_losses=1)))
    (running, queued) = world.submit(2)
    world.started(running)
    world.after(11, renews=())
    assert counts(world, running) == (0, 1, 0)
    assert counts(world, queued) == (0, 0, 1)
    assert not world.memory.slots
    assert {world.task(t).state.value for t in (running, queued)} == {"Pending"}


def test_a_restarted_agent_proves_that_its_slots_are_gone() -> None:
    world, task = world_with_call()
    world.started(task)
    world.worker(2, pod_uid="pod1", session=b"2" * 16)
    assert counts(world, task) == (0, 1, 0)
    assert world.task(task).attempt == 2
    assert world.memory.links[2].busy == 1


def test_a_slot_that_is_cut_off_comes_back_with_what_it_has() -> None:
    world = world_of_short_calls()
    tasks = world.submit(3)
    player = world.holder(tasks[0])
    world.apply(inputs.LinkClosed(player.link))
    assert not world.memory.links[1].idle
    world.join(player)
    (attached,) = [
        send for send in world.sent_of(instructions.AttachPeer) if send.link == player.link
    ]
    assert attached.unknown == ()
    for task in tasks:
        world.end(task)
    assert {world.task(task).attempt for task in tasks} == {1}


def test_calls_that_never_reached_a_slot_are_sent_again() -> None:
    world = world_of_short_calls()
    (first, second) = world.submit(2)
    player = world.holder(first)
    player.has.pop()
    world.apply(inputs.LinkClosed(player.link))
    world.join(player)
    assert [ref.task for ref in player.has] == [first, second]
    assert world.task(second).attempt == 1


def test_slot_drops_attempts_that_it_no_longer_owns() -> None:
    world, task = world_with_call()
    player = world.holder(task)
    stale = attempts.AttemptRef(task, 1, 7)
    world.apply(inputs.LinkClosed(player.link))
    player.has.append(stale)
    world.join(player)
    attached = world.sent_of(instructions.AttachPeer)[-1]
    assert attached.unknown == (stale,)


def test_a_slot_that_does_not_come_back_is_ended() -> None:
    world, task = world_with_call()
    player = world.holder(task)
    world.apply(inputs.LinkClosed(player.link))
    for _ in range(6):
        world.after(2)
    (killed,) = world.sent_of(instructions.KillSlot)
    assert killed.slot == player.name
    world.gone(player, running=task, code=137, asked=True)
    assert counts(world, task) == (0, 0, 1)
    assert world.task(task).attempt == 2


def test_unknown_slot_is_refused() -> None:
    world = world_with_driver()
    world.apply(inputs.SlotJoined(55, b"x" * 16, ()))
    (closed,) = world.sent_of(instructions.CloseLink)
    assert closed.link == 55


def test_a_second_link_of_a_slot_replaces_the_first() -> None:
    world, task = world_with_call()
    player = world.holder(task)
    old = player.link
    world.join(player)
    assert [send.link for send in world.sent_of(instructions.CloseLink)] == [old]
    world.apply(inputs.LinkClosed(old))
    world.end(task)
    assert state_and_reason(world.task(task)) == ("Success", "Succeeded")


def test_a_worker_that_was_cut_off_gets_its_kills_again() -> None:
    world, task = world_with_call(spec(timeouts=api_task.Timeouts(kill_grace_seconds=1)))
    player = world.holder(task)
    world.apply(inputs.LinkClosed(1))
    world.apply(inputs.Kill(task, "Killed"))
    world.after(2, renews=())
    assert not world.sent_of(instructions.KillSlot)
    world.worker(processes=(player.name,))
    assert [send.slot for send in world.sent_of(instructions.KillSlot)] == [player.name]


def test_requested_slot_that_never_opened_is_forgotten() -> None:
    world, task = world_with_call(opens=False)
    world.apply(inputs.LinkClosed(1))
    world.opens = True
    world.worker(processes=())
    assert len(world.sent_of(instructions.OpenSlot)) == 2
    assert world.holds(task)
    assert world.memory.tasks[task].cluster.openings == 0


@pytest.mark.parametrize("asked", [True, False])
def test_gone_is_acknowledged_even_of_an_unknown_slot(asked: bool) -> None:  # noqa: FBT001
    world = world_with_driver()
    world.gone(scripted_calls.SlotPlayer(b"?" * 16), code=1, asked=asked)
    assert instructions.Acknowledge(1, 1) in world.sent


def test_call_running_when_the_agent_lost_its_lease_is_excused() -> None:
    world, task = world_with_call()
    player, ref = world.holder(task), world.task(task).ref
    world.apply(inputs.LinkClosed(player.link))
    world.apply(inputs.SlotGone(1, 9, player.name, ref, 137, False, "", True, "WorkerLost"))
    assert counts(world, task) == (0, 0, 1)
    assert world.task(task).attempt == 2


def test_call_running_when_the_agent_was_asked_to_stop_is_lost() -> None:
    world, task = world_with_call()
    player, ref = world.holder(task), world.task(task).ref
    world.apply(inputs.LinkClosed(player.link))
    world.apply(inputs.SlotGone(1, 9, player.name, ref, 143, False, "", True, "WorkerStopping"))
    assert counts(world, task) == (0, 1, 0)


def test_a_call_that_used_too_much_memory_has_failed() -> None:
    world, task = world_with_call()
    player = world.holder(task)
    world.gone(player, running=task, code=137, reason="OutOfMemory")
    world.apply(inputs.LinkClosed(player.link))
    assert state_and_reason(world.task(task)) == ("Failed", "OutOfMemory")
    assert counts(world, task)[:2] == (1, 0)
