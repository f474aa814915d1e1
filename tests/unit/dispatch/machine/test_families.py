"""Children of one run of a task, and how a later run takes them over."""

from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import families, inputs, records
from support import scripted_calls


def with_children() -> tuple[scripted_calls.World, records.Task, list[records.Task]]:
    world, parent = scripted_calls.world_with_call(slots=1)
    task = world.task(parent)
    children = [world.task(scripted_calls.spawn(world, parent, ordinal=n)) for n in (1, 2)]
    return world, task, children


def test_a_run_has_one_family() -> None:
    _, task, children = with_children()
    family = families.of_run(task)
    assert family is families.of_run(task)
    assert (family.parent, family.run, family.total) == (task.id, 1, 2)
    assert list(family.members.values()) == children
    assert all(child.siblings is family for child in children)


def test_children_of_an_earlier_run_are_known() -> None:
    _, task, children = with_children()
    family = families.of_run(task)
    family.succeeded, family.failed = 3, 1
    earlier = families.earlier_of(task)
    unfinished = tuple(child.id for child in children)
    assert earlier == inputs.Earlier(1, 2, 3, 1, unfinished)
    children[0].state = api_task.State.SUCCESS
    again = families.earlier_of(task)
    assert again is not None
    assert again.unfinished == unfinished[1:]


def test_a_new_run_takes_over_the_children() -> None:
    world, task, children = with_children()
    earlier = families.earlier_of(task)
    old, task.family, task.run = task.family, None, 2
    families.take_over(world.memory, task, earlier)
    family = families.of_run(task)
    assert family is not old
    assert (family.total, family.run) == (2, 2)
    assert {child.siblings for child in children} == {family}
    assert {child.parent.attempt for child in children if child.parent} == {0}
    assert world.memory.batch.taken_over == [(task.id, 1, 2)]


def test_a_run_without_children_takes_nothing_over() -> None:
    world, task = scripted_calls.world_with_call()
    record = world.task(task)
    for earlier in (None, inputs.Earlier(1, 0, 0, 0, ())):
        families.take_over(world.memory, record, earlier)
    assert record.family is None
    assert world.memory.batch.taken_over == []


def test_a_new_run_of_a_failed_child_counts_instead() -> None:
    world, task, children = with_children()
    family = families.of_run(task)
    family.failed, family.declared = 1, True
    families.replace_failed(world.memory, children[0], family)
    assert family.failed == 0
    assert world.memory.batch.superseded == [(children[0].id, children[0].run)]
    assert world.memory.batch.published == {task.id}
