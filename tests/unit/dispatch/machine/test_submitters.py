"""Drivers attach, name templates, watch tasks and cancel them."""

from kilnwork.api import calls
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import inputs, instructions, submitters
from support import scripted_calls

DRIVER = scripted_calls.DRIVER


def test_reconnected_session_replaces_its_link() -> None:
    world = scripted_calls.World(slots=0)
    world.driver(7, session=b"s" * 16)
    first = world.memory.submitters[7]
    world.driver(8, session=b"s" * 16)
    assert list(world.memory.submitters) == [8]
    assert first.link == 0
    (closed,) = world.sent_of(instructions.CloseLink)
    assert (closed.link, closed.reason) == (7, "replaced")


def test_templates_have_numbers_of_their_link() -> None:
    world = scripted_calls.world_with_driver(slots=0)
    submitter = world.memory.submitters[DRIVER]
    assert list(submitter.templates) == [1]
    world.apply(inputs.Undefine(DRIVER, (1, 2)))
    assert submitter.templates == {}
    world.apply(inputs.Define(DRIVER, 3, api_task.TaskSpec(command=("true",))))
    (closed,) = world.sent_of(instructions.CloseLink)
    assert closed.message == "template 3 is of a task with a program, and has no call"


def test_watcher_gets_the_result_or_learns_that_there_is_none() -> None:
    world, task = scripted_calls.world_with_call()
    world.driver(7)
    other = scripted_calls.task_id(99)
    known = calls.Value(other, api_task.State.SUCCESS, "", "", scripted_calls.RESULT)
    watched = (calls.Watched(1, task), calls.Watched(2, other), calls.Watched(3, other))
    world.apply(inputs.WatchTasks(7, watched[:2], {other: known}))
    world.apply(inputs.WatchTasks(7, watched[2:], {}))
    world.end(task)
    assert [(one.number, one.state) for one in world.results[7]] == [
        (2, api_task.State.SUCCESS),
        (3, api_task.State.PENDING),
        (1, api_task.State.SUCCESS),
    ]


def test_results_of_other_namespaces_are_unknown() -> None:
    world, task = scripted_calls.world_with_call(slots=0)
    record, submitter = world.task(task), world.memory.submitters[DRIVER]
    record.namespace = "other"
    submitters.subscribe(world.memory, record, submitter, 9)
    (result,) = world.memory.batch.results[DRIVER]
    assert (result.number, result.message) == (9, "there is no such task")
    world.apply(inputs.CancelTasks(DRIVER, (task,), True))
    assert not record.state.final


def test_a_cancelled_task_is_killed() -> None:
    world, task = scripted_calls.world_with_call(slots=0)
    record = world.task(task)
    world.apply(inputs.CancelTasks(DRIVER, (task, scripted_calls.task_id(99)), True))
    assert record.state is api_task.State.KILLED
