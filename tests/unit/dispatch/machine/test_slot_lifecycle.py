"""Slots that die, leave, come back: what they held is settled, once and rightly."""

import msgspec
import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import inputs, instructions, slot_occupancy, workers
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


def test_calls_behind_an_ended_slot_keep_their_order() -> None:
    world = world_of_short_calls()
    (running, *others) = world.submit(5)
    world.die(world.holder(running), running=running, code=1)
    assert [ref.task for ref in world.holder(others[0]).has] == others


def test_slot_whose_process_never_ran_the_call_is_lost() -> None:
    world, task = world_with_call(spec(retry=api_task.Retry(max_losses=0)))
    world.die(world.holder(task), running=task, code=None)
    assert counts(world, task) == (0, 1, 0)
    assert state_and_reason(world.task(task)) == ("Failed", "LostTooOften")


def test_pauses_between_slots_that_cannot_be_opened_grow() -> None:
    world, _ = world_with_call(opens=False)
    worker, pauses = world.memory.links[1], []
    for number in range(1, 9):
        opened = world.sent_of(instructions.OpenSlot)
        assert len(opened) == number
        world.gone(scripted_calls.SlotPlayer(opened[-1].slot), code=None)
        pauses.append(round(worker.opens_at - world.now.mono, 6))
        world.after(pauses[-1] / 2)
        assert len(world.sent_of(instructions.OpenSlot)) == number
        world.after(pauses[-1] / 2 + 1e-6)
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_slot_that_joins_ends_the_pauses() -> None:
    world, _ = world_with_call(opens=False)
    worker = world.memory.links[1]
    for _ in range(3):
        name = world.sent_of(instructions.OpenSlot)[-1].slot
        world.gone(scripted_calls.SlotPlayer(name), code=None)
        world.after(1)
    world.open(world.sent_of(instructions.OpenSlot)[-1].slot)
    assert (worker.misses, worker.opens_at) == (0, 0.0)


def test_request_to_end_a_call_is_sent_again_to_a_slot_that_is_back() -> None:
    world, task = world_with_call(spec(timeouts=api_task.Timeouts(kill_grace_seconds=60)))
    player = world.holder(task)
    world.started(task)
    world.apply(inputs.CancelTasks(scripted_calls.DRIVER, (task,)))
    world.apply(inputs.LinkClosed(player.link))
    world.join(player)
    stops = world.sent_of(instructions.StopCall)
    assert [stop.ref for stop in stops] == [world.task(task).ref] * 2
    assert stops[-1].link == player.link


def test_cancelled_call_that_never_reached_a_slot_is_not_sent_again() -> None:
    world = world_of_short_calls()
    (first, second) = world.submit(2)
    player = world.holder(first)
    world.apply(inputs.CancelTasks(scripted_calls.DRIVER, (second,)))
    assert world.task(second).state is api_task.State.KILLING
    player.has.pop()
    world.apply(inputs.LinkClosed(player.link))
    world.join(player)
    assert [ref.task for ref in player.has] == [first]
    assert state_and_reason(world.task(second)) == ("Killed", "Killed")


def test_call_in_place_that_never_reached_a_slot_is_sent_as_any_other() -> None:
    world, parent = world_with_call()
    child = spawn(world, parent)
    world.wait(parent, child, in_place=True)
    player = world.holder(child)
    assert world.task(child).in_place
    player.has.pop()
    world.apply(inputs.LinkClosed(player.link))
    world.join(player)
    assert [ref.task for ref in player.has] == [parent, child]
    assert not world.task(child).in_place
    assert world.task(child).attempt == 1


def test_report_about_an_earlier_attempt_does_not_end_the_next() -> None:
    retry = api_task.Retry(max_attempts=2, delay_seconds=0)
    world, task = world_with_call(spec(retry=retry))
    player, first = world.holder(task), world.task(task).ref
    world.end(task, attempts.Ending.FAILED)
    world.after(1)
    assert (world.holder(task), world.task(task).attempt) == (player, 2)
    world.apply(inputs.LinkClosed(player.link))
    player.has.clear()
    world.apply(inputs.SlotGone(1, 9, player.name, first, 1, False, "exit code 1", True))
    assert counts(world, task) == (1, 0, 0)
    assert world.task(task).attempt == 3
    assert world.holds(task)


@pytest.mark.parametrize("proof", [True, False])
def test_end_of_a_slot_proves_that_abandoned_calls_are_gone(*, proof: bool) -> None:
    world, task = world_with_call(spec(timeouts=api_task.Timeouts(kill_grace_seconds=1)))
    player, ref, worker = world.holder(task), world.task(task).ref, world.memory.links[1]
    world.started(task)
    world.apply(inputs.CancelTasks(scripted_calls.DRIVER, (task,)))
    for _ in range(4):
        world.after(5)
    assert (world.task(task).stopped, list(worker.unproven)) == (False, [ref])
    world.die(player, code=137, asked=True, proof=proof)
    assert list(worker.unproven) == ([] if proof else [ref])


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("WorkerLost", "its worker could not renew its lease, so it ended its tasks"),
        ("", "its slot ended under another task"),
    ],
)
def test_excused_call_says_why_its_slot_ended(reason: str, message: str) -> None:
    world, task = world_with_call()
    world.started(task)
    world.opens = False
    world.apply(inputs.LinkClosed(1))
    player = world.holder(task)
    world.worker()
    world.apply(inputs.LinkClosed(player.link))
    ref = world.task(task).ref
    world.machine.handle(
        inputs.SlotGone(1, 9, player.name, ref, 137, True, "", True, reason), world.now
    )
    (ended,) = world.machine.take(world.now).past
    assert ended.message == message
    assert ended.reason == ("DispatcherAway" if reason else "WorkerLost")


def test_silent_call_behind_another_starts_when_it_is_the_first() -> None:
    limits = api_task.Timeouts(running_seconds=5)
    world = world_of_short_calls(spec(timeouts=limits))
    (first, second) = world.submit(2)
    world.after(5)
    states = [world.task(task).state for task in (first, second)]
    assert states == [api_task.State.RUNNING, api_task.State.STAGING]
    world.after(1)
    world.end(first, seconds=6)
    world.after(3)
    assert world.task(second).state is api_task.State.STAGING
    world.after(1)
    assert world.task(second).state is api_task.State.RUNNING
    world.after(5)
    assert world.task(second).reason == "TimedOut"


def test_slot_that_is_back_is_asked_again_to_return_calls() -> None:
    world = world_of_short_calls(slots=2)
    tasks = world.submit(40)
    first, second = world.slots.values()
    for task in [task for task in tasks if world.holder(task) is first]:
        world.end(task, seconds=0.001)
    assert [asked.link for asked in world.sent_of(instructions.TakeBack)] == [second.link]
    world.apply(inputs.LinkClosed(second.link))
    world.join(second)
    assert [asked.link for asked in world.sent_of(instructions.TakeBack)][1:] == [second.link]


# After a restart of the dispatcher


def world_after_restart(count: int) -> tuple[World, list[ids.TaskId]]:
    """Return a world with a slot for each call; the machine does not know which has which."""
    world = world_with_driver(slots=count)
    tasks = world.submit(count)
    for task in tasks:
        world.started(task)
    mem = world.memory
    for slot in list(mem.slots.values()):
        mem.slot_links.pop(slot.link)
        for record in slot.held.values():
            record.slot = None
            workers.expect(slot.worker, record)
        slot.held.clear()
        slot_occupancy.remove(mem, slot)
    world.worker(slots=count, processes=tuple(world.slots))
    return world, tasks


def test_slots_claim_their_calls_after_a_restart() -> None:
    world, tasks = world_after_restart(2)
    worker = world.memory.links[1]
    for task in tasks:
        assert task in worker.unclaimed
        world.join(world.holder(task))
        assert task not in worker.unclaimed
    assert [world.task(task).attempt for task in tasks] == [1, 1]
    world.end(tasks[0])
    assert state_and_reason(world.task(tasks[0])) == ("Success", "Succeeded")


def test_call_that_no_slot_claims_is_excused() -> None:
    world, (claimed, other) = world_after_restart(2)
    player = world.holder(other)
    world.join(world.holder(claimed))
    assert counts(world, other) == (0, 0, 0)
    player.has.clear()
    world.join(player)
    assert counts(world, other) == (0, 0, 1)
    assert counts(world, claimed) == (0, 0, 0)


@pytest.mark.parametrize(("newer", "failures"), [(0, 1), (1, 0)])
def test_slot_that_ended_during_a_restart_settles_its_own_call(newer: int, failures: int) -> None:
    world, (task, other) = world_after_restart(2)
    player, ref = world.holder(task), world.task(task).ref
    ref = msgspec.structs.replace(ref, attempt=ref.attempt + newer)
    player.has.clear()
    world.apply(inputs.SlotGone(1, 9, player.name, ref, 1, False, "exit code 1", True))
    assert counts(world, task) == (failures, 0, 0)
    assert counts(world, other) == (0, 0, 0)
