"""Tasks that wait for their own outcome are failed, and do not wait for ever."""

import pytest

from kilnwork.api import attempts
from kilnwork.dispatch.machine import inputs, instructions
from kilnwork.kit import ids
from support import scripted_calls
from support.scripted_calls import World, state_and_reason, world_with_call

STOPPED = attempts.Ending.STOPPED


def spawn(world: World, parent: ids.TaskId, *needs: ids.TaskId) -> ids.TaskId:
    return scripted_calls.spawn(world, parent, needs=needs)


def asked_to_stop(world: World) -> list[ids.TaskId]:
    return [sent.ref.task for sent in world.sent_of(instructions.StopCall)]


@pytest.mark.parametrize("far", [0, 1, 3])
def test_a_task_that_waits_for_itself_or_its_parents_fails(far: int) -> None:
    world, first = world_with_call(slots=4)
    last = first
    for _ in range(far):
        child = spawn(world, last)
        world.wait(last, child, in_place=True)
        last = child
    world.wait(last, first, in_place=True)
    assert asked_to_stop(world) == [last]
    world.end(last, STOPPED, reason="Deadlock", payload=None)
    assert state_and_reason(world.task(last)) == ("Failed", "Deadlock")
    awaited = ids.task_text(first) if far else "itself"
    assert world.task(last).message.startswith(f"it waits for {awaited}")


def test_a_task_that_waits_for_one_that_needs_its_result_fails() -> None:
    world, parent = world_with_call(slots=4)
    child = spawn(world, parent, parent)
    world.wait(parent, child, in_place=True)
    world.end(parent, STOPPED, reason="Deadlock", payload=None)
    assert state_and_reason(world.task(parent)) == ("Failed", "Deadlock")
    assert state_and_reason(world.task(child)) == ("Failed", "InputFailed")


def test_delegating_to_one_that_needs_its_result_fails() -> None:
    world, parent = world_with_call(slots=4)
    child = spawn(world, parent, parent)
    world.end(parent, delegate=child, payload=None)
    assert state_and_reason(world.task(parent)) == ("Failed", "InputFailed")
    assert state_and_reason(world.task(child)) == ("Failed", "InputFailed")


def test_delegating_to_one_that_waits_for_it_fails() -> None:
    world, parent = world_with_call(slots=4)
    child = spawn(world, parent)
    world.wait(child, parent, in_place=True)
    assert not asked_to_stop(world)
    world.end(parent, delegate=child, payload=None)
    assert state_and_reason(world.task(parent)) == ("Failed", "InputFailed")
    assert world.holds(child)


@pytest.mark.parametrize("how", [{"in_place": False}, {"in_place": True, "first": True}])
def test_wait_that_may_end_otherwise_is_no_cycle(how: dict[str, bool]) -> None:
    world, parent = world_with_call(slots=4)
    child = spawn(world, parent)
    player, ref = world.holder(parent), world.task(parent).ref
    world.apply(inputs.Waiting(player.link, ref, (parent, child), **how))
    assert not asked_to_stop(world)


def test_waiting_for_a_task_that_no_longer_waits_is_no_cycle() -> None:
    world, parent = world_with_call(slots=4)
    child = spawn(world, parent)
    world.wait(parent, child)
    world.resume(parent)
    world.wait(child, parent, in_place=True)
    assert not asked_to_stop(world)
