"""Attempts that wait for other tasks: what they reserve is free, and may run those in place."""

from kilnwork.api import attempts, reasons
from kilnwork.dispatch.machine import inputs, instructions, views
from kilnwork.kit import ids
from support import scripted_calls
from support.scripted_calls import (
    World,
    spawn,
    spec,
    state_and_reason,
    world_with_call,
    world_with_driver,
)


def runs_in_place(world: World, task: ids.TaskId) -> bool:
    return world.task(task).ref in world.holder(task).in_place


def test_child_shows_that_its_parent_has_started() -> None:
    world, parent = world_with_call()
    spawn(world, parent)
    assert state_and_reason(world.task(parent)) == ("Running", "Started")


def test_a_parent_that_waits_frees_its_reservation() -> None:
    world = world_with_driver()
    (parent, other) = world.submit(2)
    assert not world.holds(other)
    world.wait(parent, scripted_calls.task_id(77))
    assert world.holds(other)
    assert len(world.slots) == 2
    assert world.memory.links[1].busy == 1


def test_a_waiting_parent_says_so_without_a_row() -> None:
    world, parent = world_with_call()
    child = spawn(world, parent)
    player, ref = world.holder(parent), world.task(parent).ref
    world.written.clear()
    world.apply(inputs.Waiting(player.link, ref, (child,), in_place=False))
    shown = views.shown_reason(world.memory.tasks[parent])
    assert shown is not None
    assert shown[0] == reasons.Reason.WAITING_FOR_CHILD
    assert parent not in world.written


def test_an_awaited_child_runs_in_place_in_the_same_slot() -> None:
    world, parent = world_with_call()
    child = spawn(world, parent)
    world.wait(parent, child, in_place=True)
    assert world.holder(child) is world.holder(parent)
    assert runs_in_place(world, child)
    assert len(world.slots) == 1
    assert world.memory.links[1].busy == 1
    world.end(child)
    world.resume(parent)
    world.end(parent)
    assert state_and_reason(world.task(parent)) == ("Success", "Succeeded")
    assert len(world.sent_of(instructions.OpenSlot)) == 1
    assert world.memory.links[1].busy == 0


def test_without_in_place_the_child_runs_in_another_slot() -> None:
    world, parent = world_with_call()
    child = spawn(world, parent)
    world.wait(parent, child)
    assert world.holder(child) is not world.holder(parent)
    world.end(child)
    world.resume(parent)
    assert world.memory.links[1].busy == 1


def test_a_thousand_levels_deep_in_one_slot() -> None:
    world, task = world_with_call()
    stack = [task]
    for _ in range(1000):
        child = spawn(world, stack[-1])
        world.wait(stack[-1], child, in_place=True)
        stack.append(child)
    assert len(world.slots) == 1
    while True:
        world.end(stack.pop())
        if not stack:
            break
        world.resume(stack[-1])
    assert not world.memory.tasks
    assert not world.memory.waits_by_task


def test_children_run_in_place_one_after_the_other() -> None:
    world, parent = world_with_call()
    children = [spawn(world, parent, ordinal=number) for number in (1, 2, 3)]
    world.wait(parent, *children, in_place=True)
    for child in children:
        assert [c for c in children if world.holds(c)] == [child]
        assert runs_in_place(world, child)
        world.end(child)
    assert len(world.slots) == 1


def test_in_place_goes_before_the_queue() -> None:
    world = world_with_driver()
    (parent, *others) = world.submit(4)
    child = spawn(world, parent)
    world.wait(parent, child, in_place=True)
    assert runs_in_place(world, child)
    assert not any(world.holds(other) for other in others)


def test_dependency_of_an_awaited_task_runs_in_place() -> None:
    world, parent = world_with_call()
    first = spawn(world, parent, ordinal=1)
    second = spawn(world, parent, ordinal=2, needs=(first,))
    third = spawn(world, parent, ordinal=3, needs=(second,))
    world.wait(parent, third, in_place=True)
    for task in (first, second, third):
        assert runs_in_place(world, task)
        world.end(task)


def test_delegate_of_an_awaited_task_runs_in_place() -> None:
    world, parent = world_with_call()
    middle = spawn(world, parent)
    world.wait(parent, middle, in_place=True)
    last = spawn(world, middle)
    world.end(middle, delegate=last, payload=None)
    assert runs_in_place(world, last)
    world.end(last)
    assert state_and_reason(world.task(middle)) == ("Success", "Succeeded")


def test_a_retried_child_runs_in_place_again() -> None:
    world, parent = world_with_call()
    player = world.holder(parent)
    child = spawn(world, parent)
    world.wait(parent, child, in_place=True)
    world.give_back(player, [world.task(child).ref])
    assert world.task(child).attempt == 2
    assert runs_in_place(world, child)


def test_task_that_becomes_ready_waits_for_a_reservation_even_in_place() -> None:
    world, parent = world_with_call()
    (blocker,) = world.submit()
    child = spawn(world, parent, needs=(blocker,))
    world.wait(parent, child, in_place=False)
    assert world.holds(blocker)
    world.wait(parent, child, in_place=True)
    world.end(blocker)
    assert runs_in_place(world, child)


def test_a_child_of_another_environment_does_not_run_in_place() -> None:
    world, parent = world_with_call()
    player = world.holder(parent)
    world.define(spec("m:child", environment="sha256:1"), link=player.link)
    ref = world.task(parent).ref
    (child,) = world.submit(link=player.link, parent=ref, ordinal=1)
    world.wait(parent, child, in_place=True)
    assert world.holder(child) is not player


def test_resumed_parent_may_exceed_the_capacity_for_a_while() -> None:
    world = world_with_driver()
    (parent, other) = world.submit(2)
    world.wait(parent, scripted_calls.task_id(77))
    (queued,) = world.submit()
    world.resume(parent)
    assert world.memory.links[1].busy == 2
    world.end(other, seconds=1)
    assert not world.holds(queued)
    world.end(parent, seconds=1)
    assert world.holds(queued)


def test_no_more_than_eight_slots_for_each_reservation_unless_all_of_them_wait() -> None:
    world = world_with_driver()
    tasks = world.submit(9)
    for task in tasks[:7]:
        world.wait(task, scripted_calls.task_id(777))
    assert len(world.slots) == 8
    assert world.holds(tasks[7])
    assert not world.holds(tasks[8])
    world.wait(tasks[7], scripted_calls.task_id(777))
    assert len(world.slots) == 9, "everybody waits, perhaps for that one"
    assert world.holds(tasks[8])


def test_all_slots_waiting_is_no_deadlock() -> None:
    world = world_with_driver(slots=2)
    left = dict.fromkeys(world.submit(2), 40)
    while left:
        running = [task for task in left if world.holds(task)]
        assert running, "everybody waits, and nothing runs"
        for parent in running:
            depth = left.pop(parent)
            if not depth:
                world.end(parent)
                continue
            child = spawn(world, parent)
            left[child] = depth - 1
            world.wait(parent, child)


def test_rejoined_slot_has_no_waits_until_it_reports_them() -> None:
    world, parent = world_with_call()
    player = world.holder(parent)
    world.wait(parent, scripted_calls.task_id(77))
    assert world.memory.links[1].busy == 0
    world.apply(inputs.LinkClosed(player.link))
    world.join(player)
    assert world.memory.links[1].busy == 1
    world.wait(parent, scripted_calls.task_id(77))
    assert world.memory.links[1].busy == 0


def test_a_parent_keeps_its_reservation_between_two_children_in_place() -> None:
    world, parent = world_with_call()
    (other,) = world.submit()
    first, second = (spawn(world, parent, ordinal=number) for number in (1, 2))
    world.wait(parent, first, in_place=True)
    world.end(first)
    assert world.memory.links[1].busy == 1
    world.resume(parent)
    world.wait(parent, second, in_place=True)
    assert runs_in_place(world, second)
    world.end(second)
    world.resume(parent)
    assert not world.holds(other)
    assert len(world.sent_of(instructions.OpenSlot)) == 1


def test_parent_that_waits_for_any_gets_no_more_children_after_one_ended() -> None:
    world, parent = world_with_call()
    player, ref = world.holder(parent), world.task(parent).ref
    first, second = (spawn(world, parent, ordinal=number) for number in (1, 2))
    world.apply(inputs.Waiting(player.link, ref, (first, second), in_place=True, first=True))
    assert runs_in_place(world, first)
    world.end(first)
    assert not world.holds(second)
    assert world.memory.links[1].busy == 1
    world.resume(parent)
    world.apply(inputs.Waiting(player.link, ref, (second,), in_place=True, first=True))
    assert runs_in_place(world, second)


def test_parent_that_waits_for_more_tasks_may_go_on_waiting() -> None:
    world, parent = world_with_call()
    player, ref = world.holder(parent), world.task(parent).ref
    named, _ = (spawn(world, parent, ordinal=number) for number in (1, 2))
    world.apply(inputs.Waiting(player.link, ref, (named,), in_place=True, more=True))
    assert runs_in_place(world, named)
    world.end(named)
    assert len(world.sent_of(instructions.OpenSlot)) == 2, "the other one gets a slot of its own"


def test_wait_for_a_finished_task_keeps_the_reservation() -> None:
    world, parent = world_with_call()
    world.wait(parent, scripted_calls.task_id(77), in_place=True)
    assert world.memory.links[1].busy == 1


def test_new_wait_replaces_the_previous_one() -> None:
    world = world_with_driver(slots=2)
    (parent, blocker) = world.submit(2)
    first = spawn(world, parent, ordinal=1, needs=(blocker,))
    second = spawn(world, parent, ordinal=2, needs=(blocker,))
    world.wait(parent, first, in_place=True)
    world.wait(parent, second, in_place=True)
    world.end(blocker)
    assert runs_in_place(world, second)
    assert not runs_in_place(world, first)
    assert len(world.memory.slots[world.holder(parent).name].stack) == 1


def test_waiting_attempt_may_end_without_resuming() -> None:
    world, parent = world_with_call()
    child = spawn(world, parent)
    world.wait(parent, child)
    world.end(parent, attempts.Ending.FAILED)
    assert state_and_reason(world.task(parent)) == ("Failed", "Raised")
    assert not world.memory.waits_by_task
    world.end(child)
    assert world.memory.links[1].busy == 0
