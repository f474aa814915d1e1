"""Subscribers hear of the changes of their tasks, once those are stored."""

from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import subscriptions
from kilnwork.dispatch.journal import task_rows
from kilnwork.dispatch.machine import records
from support import scripted_calls

_S = api_task.State


def test_subscribers_get_changes_of_their_tasks_until_they_unsubscribe() -> None:
    world = scripted_calls.World(slots=0)
    world.driver()
    world.define(scripted_calls.spec())
    one, two = world.submit(2)
    batch = world.memory.batch
    world.memory.mark(world.task(one))
    world.memory.mark(world.task(two))
    heard: list[subscriptions.Change] = []
    every = subscriptions.Subscriptions()
    stop = every.follow({one}, heard.extend)
    every.follow(set(), heard.extend)
    every.publish(batch)
    assert [change.task for change in heard] == [one]
    stop()
    every.publish(batch)
    assert len(heard) == 1


def test_end_is_published_only_with_its_batch() -> None:
    world, task = scripted_calls.world_with_call(slots=0)
    record, batch = world.task(task), world.memory.batch
    world.memory.mark(record)
    record.state = _S.SUCCESS
    assert subscriptions.of_batch(batch, {task}) == []
    batch.finals.append(record)
    (change,) = subscriptions.of_batch(batch, {task})
    assert change.over


def stored(record: records.Task) -> subscriptions.Change:
    """Return the change of a record that only the journal has."""
    row = task_rows.of_record(record)
    return subscriptions.of_row(row, task_rows.view(row, api_task.ChildCounts()))


def test_states_of_a_change() -> None:
    world, task = scripted_calls.world_with_call(slots=0)
    record = world.task(task)
    for state in _S:
        record.state = state
        change = stored(record)
        assert change.over is state.final
        assert change.active is (state in (_S.STAGING, _S.RUNNING, _S.KILLING))


def test_row_and_record_give_the_same_change() -> None:
    world, task = scripted_calls.world_with_call(slots=1)
    record = world.task(task)
    record.attempt, record.unstarted, record.failures, record.losses = 3, 1, 1, 2
    record.started, record.attempt_started = 5.0, 7.0
    change = stored(record)
    assert (change.attempt, change.failures, change.losses, change.worker) == (2, 1, 2, "w1")
    assert (change.started, change.parent) == (7.0, False)
    assert change == subscriptions.of_record(record)


def test_finished_and_unknown_tasks_are_left_out() -> None:
    world, task = scripted_calls.world_with_call(slots=0)
    record = world.task(task)
    assert [one.task for one in subscriptions.of_memory([record, None])] == [task]
    record.state = _S.KILLED
    assert subscriptions.of_memory([record]) == []


def test_refused_task_has_failed() -> None:
    spec = api_task.TaskSpec(command=("true",), run=3)
    submission = model.Submission(
        task=scripted_calls.task_id(1), namespace="ns", name="t", spec=spec
    )
    change = subscriptions.refused(submission, "too large")
    assert (change.run, change.state, change.message) == (3, _S.FAILED, "too large")
