"""Tasks that are forgotten: at once when they are over, and unwritten if nothing has their end."""

from kilnwork.api import attempts, calls
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import inputs, instructions
from kilnwork.kit import ids
from support import scripted_calls


def forgotten(world: scripted_calls.World, task: ids.TaskId) -> instructions.Batch:
    """The batch in which it is to be forgotten."""
    world.machine.handle(inputs.Forget((task,)), world.now)
    return world.machine.take(world.now)


def with_call() -> tuple[scripted_calls.World, ids.TaskId]:
    """A world in which a slot has a call, whose row is stored."""
    world = scripted_calls.World()
    world.driver()
    world.define(scripted_calls.spec())
    (task,) = world.submit()
    world.task(task).stored = world.task(task).state
    return world, task


def end(world: scripted_calls.World, task: ids.TaskId) -> None:
    """It ends in the batch at hand."""
    player, record = world.holder(task), world.task(task)
    over = calls.CallEnd(
        record.ref, attempts.Ending.SUCCEEDED, "Succeeded", "", scripted_calls.RESULT, 1.0, 0.001
    )
    world.machine.handle(inputs.CallsEnded(player.link, 1, (over,)), world.now)


def test_end_of_a_forgotten_task_is_not_written() -> None:
    world, task = with_call()
    record = world.task(task)
    end(world, task)
    batch = forgotten(world, task)
    assert (batch.forgotten, list(batch.dirty)) == ({task: record.row}, [])
    assert batch.finals == [record]  # memory drops it, and drivers get their result
    assert [result.number for result in batch.results[scripted_calls.DRIVER]] == [record.number]


def test_unfinished_task_is_not_forgotten() -> None:
    world, task = with_call()
    batch = forgotten(world, task)
    assert batch.forgotten == {}
    assert world.machine.task(task) is not None


def test_end_that_is_being_written_is_kept() -> None:
    world, task = with_call()
    end(world, task)
    world.machine.take(world.now)
    assert forgotten(world, task).forgotten == {}


def test_end_of_a_task_without_a_row_is_written() -> None:
    world, task = with_call()
    record = world.task(task)
    record.stored = None
    end(world, task)
    batch = forgotten(world, task)
    assert (batch.forgotten, list(batch.dirty)) == ({}, [record])


def test_task_that_is_not_in_memory_is_forgotten() -> None:
    world, task = with_call()
    end(world, task)
    world.machine.forget(world.machine.take(world.now).finals)
    assert forgotten(world, task).forgotten == {task: None}


def test_new_tasks_that_share_a_spec_share_a_template() -> None:
    world = scripted_calls.World(slots=0)
    spec = scripted_calls.spec()
    new = [
        model.Submission(
            task=scripted_calls.task_id(number), namespace="ns", name=f"t-{number}", spec=spec,
            arguments=scripted_calls.ARGUMENTS, declared=False,
        )
        for number in range(2)
    ]  # fmt: skip
    assert not any(map(world.machine.refusal, new))
    world.machine.handle(inputs.SubmitNew(new), world.now)
    batch = world.machine.take(world.now)
    one, other = batch.dirty
    assert one.has_template_spec
    assert (one.template, [one.name, other.name]) == (other.template, ["t-0", "t-1"])
    assert batch.templates == [one.template]
