"""Where calls run: reservations, slots that open and end, sent ahead, taken back, in turns."""

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import assignment, inputs, instructions, records
from support import scripted_calls
from support.scripted_calls import (
    World,
    spec,
    state_and_reason,
    world_of_short_calls,
    world_with_call,
    world_with_driver,
)


def held(world: World) -> list[int]:
    return sorted(len(player.has) for player in world.slots.values())


def test_calls_of_unknown_length_are_not_sent_ahead() -> None:
    world = world_with_driver()
    world.submit(3)
    assert held(world) == [1]


def test_short_calls_are_sent_ahead_up_to_the_credit() -> None:
    world = world_of_short_calls()
    tasks = world.submit(100)
    assert held(world) == [50]
    world.end(tasks[0], seconds=0.001)
    assert held(world) == [50]


def test_long_calls_are_not_sent_ahead() -> None:
    world, task = world_with_call()
    world.end(task, seconds=0.5)
    world.submit(3)
    assert held(world) == [1]


def test_calls_that_must_start_in_time_are_not_sent_ahead() -> None:
    world = world_with_driver()
    world.define(spec(timeouts=api_task.Timeouts(pending_seconds=5)))
    (task,) = world.submit()
    world.end(task, seconds=0.001)
    world.submit(3)
    assert held(world) == [1]


def test_credit_is_fifty_milliseconds_of_work_within_bounds() -> None:
    assert [assignment.credit(s) for s in (0.0, 0.001, 0.009, 1.0)] == [512, 50, 5, 2]


def test_nothing_is_sent_ahead_behind_a_call_that_turns_out_to_be_long() -> None:
    world = world_of_short_calls()
    (slow,) = world.submit()
    world.started(slow)
    world.submit(2)
    assert held(world) == [1]


def test_short_calls_go_evenly_to_all_slots() -> None:
    world = world_of_short_calls(slots=2)
    world.submit(21)
    assert held(world) == [10, 11]


def test_idle_slot_gets_half_of_the_longest_queue() -> None:
    world = world_of_short_calls(slots=2, opens=True)
    tasks = world.submit(40)
    first, second = world.slots.values()
    for task in [t for t in tasks if world.holder(t) is first][:20]:
        world.end(task, seconds=0.001)
    (asked,) = world.sent_of(instructions.TakeBack)
    assert (asked.link, asked.count) == (second.link, 10)
    world.give_back(second, second.has[-10:])
    assert held(world) == [10, 10]
    assert [world.task(t).excused for t in tasks] == [0] * 40
    moved = [world.task(ref.task) for ref in first.has]
    assert {(task.attempt, task.unstarted) for task in moved} == {(2, 1)}


def test_calls_taken_back_keep_their_order_at_the_front() -> None:
    world = world_of_short_calls()
    tasks = world.submit(60)
    (player,) = world.slots.values()
    world.memory.closing = True
    world.give_back(player, player.has[10:])
    queue = world.memory.tasks[tasks[0]].cluster.queue
    order = [queue.pop() for _ in range(50)]
    assert [task.id for task in order if task is not None] == tasks[10:60]


def test_slot_is_asked_to_return_calls_once_until_it_responds() -> None:
    world = world_of_short_calls(slots=2)
    tasks = world.submit(40)
    first, second = world.slots.values()
    for task in [t for t in tasks if world.holder(t) is first]:
        world.end(task, seconds=0.001)
    assert len(world.sent_of(instructions.TakeBack)) == 1
    world.end(second.has[0].task)
    assert len(world.sent_of(instructions.TakeBack)) == 1, "it has not responded"
    world.give_back(second, [])
    assert len(world.sent_of(instructions.TakeBack)) == 1, "nothing has changed"
    world.end(second.has[0].task)
    assert len(world.sent_of(instructions.TakeBack)) == 2


def test_calls_that_run_in_place_are_not_taken_back() -> None:
    world = world_with_driver(slots=2)
    (parent, other) = world.submit(2)
    player = world.holder(parent)
    world.define(spec("m:child"), link=player.link)
    (child,) = world.submit(link=player.link, parent=world.task(parent).ref, ordinal=1)
    world.wait(parent, child, in_place=True)
    world.end(other, seconds=1)
    assert not world.sent_of(instructions.TakeBack)


def test_little_work_is_not_worth_moving() -> None:
    world = world_of_short_calls(slots=2)
    tasks = world.submit(8)
    first, _ = world.slots.values()
    for task in [t for t in tasks if world.holder(t) is first]:
        world.end(task, seconds=0.001)
    assert not world.sent_of(instructions.TakeBack)


def test_work_behind_a_call_that_turns_out_to_be_long_is_moved() -> None:
    world = world_of_short_calls(slots=2)
    tasks = world.submit(6)
    first, second = world.slots.values()
    for task in [t for t in tasks if world.holder(t) is first]:
        world.end(task, seconds=0.001)
    slow = second.has[0].task
    world.started(slow)
    (asked,) = world.sent_of(instructions.TakeBack)
    assert asked.link == second.link


def test_calls_go_first_to_a_slot_that_is_about_to_open() -> None:
    world = world_of_short_calls(opens=True)
    world.opens = False
    world.worker(2, slots=1, pod_uid="other", session=b"2" * 16)
    world.submit(3)
    assert len(world.sent_of(instructions.OpenSlot)) == 2
    assert held(world) == [2]


def test_commands_and_calls_share_the_reservations() -> None:
    world = world_with_driver(slots=2)
    command = world.declare(900, api_task.TaskSpec(command=("true",)))
    first, second = world.submit(2)
    assert world.holds(first)
    assert not world.holds(second)
    assert world.memory.links[1].busy == 2
    outcome = attempts.Outcome(attempts.Ending.SUCCEEDED, "Succeeded")
    world.apply(inputs.Finished(1, 1, world.task(command).ref, outcome))
    assert world.holds(second)


def test_a_command_waits_for_the_slot_of_a_call_to_be_free() -> None:
    world = world_of_short_calls()
    tasks = world.submit(4)
    command = world.declare(900, api_task.TaskSpec(command=("true",)))
    more = world.submit(4)
    assert not any(world.holds(task) for task in more)
    for task in tasks:
        assert state_and_reason(world.task(command)) == ("Pending", "NoFreeSlot")
        world.end(task)
    assert state_and_reason(world.task(command)) == ("Staging", "Starting")
    assert len(world.sent_of(instructions.RunAttempt)) == 1


def test_two_drivers_take_turns() -> None:
    world, running = world_with_call()
    world.driver(200)
    world.define(spec(), link=200)
    many = world.submit(5)
    few = world.submit(2, link=200)
    order = []
    now = running
    for _ in range(7):
        world.end(now, seconds=1)
        (now,) = [ref.task for player in world.slots.values() for ref in player.has]
        order.append(now)
    assert order == [many[0], few[0], many[1], few[1], *many[2:]]


def test_children_take_the_turns_of_their_driver() -> None:
    world, parent = world_with_call(slots=2)
    player = world.holder(parent)
    world.define(spec("m:child"), link=player.link)
    (child,) = world.submit(link=player.link, parent=world.task(parent).ref, ordinal=1)
    assert world.task(child).source == world.task(parent).source != b""


def test_higher_priority_goes_first() -> None:
    world = world_with_driver()
    world.define(spec(priority=5), number=2)
    (running,) = world.submit()
    low = world.submit(2)
    (high,) = world.submit(template=2)
    world.end(running, seconds=1)
    assert world.holds(high)
    assert not world.holds(low[0])


def test_slots_that_cannot_be_opened_are_requested_with_back_off() -> None:
    world, task = world_with_call(opens=False)
    for number, pause in enumerate((0.1, 0.2, 0.4), start=1):
        asked = world.sent_of(instructions.OpenSlot)
        assert len(asked) == number
        world.gone(scripted_calls.SlotPlayer(asked[-1].slot), code=None)
        world.after(pause * 0.9)
        assert len(world.sent_of(instructions.OpenSlot)) == number
        world.after(pause * 0.2)
    world.opens = True
    last = world.sent_of(instructions.OpenSlot)[-1]
    world.open(last.slot)
    assert world.holds(task)
    assert world.memory.links[1].misses == 0


def test_a_slot_that_never_joins_is_ended_and_replaced() -> None:
    world, task = world_with_call(opens=False)
    (asked,) = world.sent_of(instructions.OpenSlot)
    for _ in range(6):
        world.after(2)
    (killed,) = world.sent_of(instructions.KillSlot)
    assert killed.slot == asked.slot
    world.opens = True
    world.gone(scripted_calls.SlotPlayer(asked.slot), code=137, asked=True)
    world.after(1)
    assert world.holds(task)


def test_idle_slots_beyond_the_reservations_end_after_a_while() -> None:
    world, parent = world_with_call()
    world.wait(parent, scripted_calls.task_id(77))
    (other,) = world.submit()
    assert len(world.slots) == 2
    world.resume(parent)
    world.end(other)
    world.end(parent)
    assert not world.sent_of(instructions.KillSlot)
    world.after(1.5)
    assert len(world.sent_of(instructions.KillSlot)) == 1
    assert len(world.memory.links[1].idle) == 1


def test_nothing_is_assigned_while_the_server_closes() -> None:
    world = world_with_driver()
    world.apply(inputs.Close())
    (task,) = world.submit()
    assert state_and_reason(world.task(task)) == ("Pending", "NoFreeSlot")
    assert not world.sent_of(instructions.OpenSlot)


def busy_of(worker: records.Worker) -> int:
    taken = sum(
        slot.opening or len(slot.held) > len(slot.stack) for slot in worker.processes.values()
    )
    return len(worker.held) + len(worker.unproven) + taken


def test_reservation_counts_are_consistent_after_random_inputs() -> None:
    world = world_of_short_calls(slots=2)
    tasks = world.submit(9)
    world.wait(tasks[0], tasks[8])
    worker = world.memory.links[1]
    assert worker.busy == busy_of(worker)
    for task in list(world.memory.tasks):
        if world.holds(task):
            world.end(task)
            assert worker.busy == busy_of(worker)
    assert worker.busy == 0


def test_submits_are_accepted_only_while_the_queue_is_short() -> None:
    world = world_with_driver(max_backlog=3)
    tasks = world.submit(4)
    assert world.accepted == {scripted_calls.DRIVER: 4}
    world.submit(2)
    assert world.accepted == {scripted_calls.DRIVER: 4}
    world.end(tasks[0], seconds=1)
    world.end(tasks[1], seconds=1)
    assert world.accepted == {scripted_calls.DRIVER: 6}


def test_work_behind_a_long_call_is_worth_a_new_slot() -> None:
    world = world_of_short_calls()
    slow = world.submit(5)[0]
    world.started(slow)
    assert not world.sent_of(instructions.TakeBack)
    world.worker(2, slots=1, pod_uid="other", session=b"2" * 16)
    (asked,) = world.sent_of(instructions.TakeBack)
    player = world.holder(slow)
    assert (asked.link, asked.count) == (player.link, 2)
    world.give_back(player, player.has[-2:])
    assert held(world) == [2, 3]
    assert len(world.slots) == 2


def test_nothing_is_sent_ahead_behind_a_call_that_is_to_end() -> None:
    world = world_of_short_calls()
    (stopped,) = world.submit()
    world.apply(inputs.Kill(stopped, "Killed"))
    world.submit(2)
    assert held(world) == [1]


def test_calls_behind_one_that_is_being_stopped_are_moved() -> None:
    world = world_of_short_calls(slots=2)
    (stopped, *_) = world.submit(2)
    player = world.holder(stopped)
    more = world.submit(2)
    world.apply(inputs.Kill(stopped, "Killed"))
    for task in [ref.task for p in world.slots.values() if p is not player for ref in p.has]:
        world.end(task)
    (asked,) = world.sent_of(instructions.TakeBack)
    assert (asked.link, asked.count) == (player.link, 1)
    world.give_back(player, player.has[1:])
    assert not any(world.holds(task) and world.holder(task) is player for task in more)


def test_commands_do_not_wait_behind_calls_that_have_no_slot() -> None:
    world = world_with_driver(slots=2, opens=False)
    calls = world.submit(3)
    command = world.declare(900, api_task.TaskSpec(command=("true",)))
    assert state_and_reason(world.task(command)) == ("Pending", "NoFreeSlot"), (
        "slots open in both reservations"
    )
    for asked in world.sent_of(instructions.OpenSlot):
        world.gone(scripted_calls.SlotPlayer(asked.slot), code=None)
    assert state_and_reason(world.task(command)) == ("Staging", "Starting")
    assert not any(world.holds(call) for call in calls)
    world.opens = True
    world.after(1)
    world.open(world.sent_of(instructions.OpenSlot)[-1].slot)
    assert world.holds(calls[0])


def test_calls_that_may_wait_for_minutes_are_sent_ahead() -> None:
    world = world_with_driver()
    world.define(spec(timeouts=api_task.Timeouts(pending_seconds=900)))
    (task,) = world.submit()
    world.end(task, seconds=0.001)
    world.submit(100)
    assert held(world) == [50]
