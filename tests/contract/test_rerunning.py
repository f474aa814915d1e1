"""The run after one that has ended in the journal: the same task with fresh retry budgets."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.journal import port, restore
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.dispatch.machine import inputs, instructions, machine, memory, records, task_starts
from kilnwork.kit import ids

CLUSTER = records.Cluster(("ns", "default"))
ADD = api_task.TaskSpec(call=api_task.Call(function="sums:add"))
NOW = inputs.Moment(200.0, 10.0)
TEMPLATE = records.Template(1, CLUSTER, ADD)
ARGUMENTS = attempts.Payload(attempts.JSON, b"[[1],{}]")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[port.Store]:
    made = journal.Journal(tmp_path / "journal.db")
    made.open()

    def failed(error: BaseException) -> None:
        raise error

    made.start(lambda call: call(), on_failure=failed)
    write(made, instructions.Batch(templates=[TEMPLATE]))
    yield made
    made.close()


@pytest.fixture
def dispatcher() -> machine.Machine:
    mem = memory.Memory(lease_s=10.0, entropy=random.Random(0))
    mem.task_rows = iter(range(100, 200))  # type: ignore[assignment]
    mem.template_rows = iter(range(100, 200))  # type: ignore[assignment]
    return machine.Machine(mem)


def write(store: port.Store, batch: instructions.Batch) -> None:
    ended = threading.Event()
    store.write(batch, lambda _: ended.set())
    assert ended.wait(30)


def an_id(number: int) -> ids.TaskId:
    return ids.TaskId(number.to_bytes(16, "big"))


def a_call(number: int, **facts: Any) -> records.Task:
    return records.Task(
        number, an_id(number), 1, "ns", "", CLUSTER, False, ADD,
        template=TEMPLATE, arguments=ARGUMENTS, created=100.0, pending_since=100.0, **facts,
    )  # fmt: skip


def finish(task: records.Task, state: api_task.State = api_task.State.FAILED) -> None:
    task.state, task.reason, task.message = state, "Raised", "ValueError: bad"
    task.attempt, task.failures, task.finished, task.stopped = 1, 1, 103.0, True


def write_task(store: port.Store, task: records.Task) -> None:
    finals = [task] if task.state.final else []
    write(store, instructions.Batch(dirty={task: None}, finals=finals))


def rerun(store: port.Store, dispatcher: machine.Machine, task: ids.TaskId) -> records.Task:
    row = store.reader.task_row(task)
    assert row is not None
    values = store.reader.values("ns", row.needed)
    dispatcher.handle(restore.rerun(row, values), NOW)
    return dispatcher.memory.tasks[task]


def test_rerun_of_a_call_keeps_its_arguments_and_key(
    store: port.Store, dispatcher: machine.Machine
) -> None:
    one = a_call(1, child_key="=k", source=b"d" * 16)
    finish(one)
    write_task(store, one)
    task = rerun(store, dispatcher, one.id)
    assert (task.run, task.attempt, task.failures, task.state) == (2, 0, 0, "Pending")
    assert (task.arguments, task.spec, task.source) == (ARGUMENTS, ADD, b"d" * 16)
    assert dispatcher.memory.keys["ns", "=k"] is task, "a submission with the key finds this run"
    write(store, dispatcher.take(NOW))
    row = store.reader.task_row(one.id)
    assert row is not None
    assert (row.run, row.state, row.argument_payload) == (2, "Pending", ARGUMENTS)
    assert store.reader.view(row).function == "sums:add"


def test_rerun_uses_the_recorded_values_of_its_inputs(
    store: port.Store, dispatcher: machine.Machine
) -> None:
    given = a_call(1)
    finish(given, api_task.State.SUCCESS)
    given.result = attempts.Payload(attempts.JSON, b"5")
    write_task(store, given)
    one = a_call(2, needs=(given.id,))
    finish(one)
    write_task(store, one)
    task = rerun(store, dispatcher, one.id)
    assert (task.unmet, task.needs) == (0, (given.id,))
    assert task.values is not None
    assert task.values[given.id] == calls.Value(
        given.id, api_task.State.SUCCESS, "Raised", "ValueError: bad", given.result
    )


def test_rerun_of_a_command_keeps_its_spec_and_inputs(
    store: port.Store, dispatcher: machine.Machine
) -> None:
    spec = api_task.TaskSpec(command=("true",), cluster_name="small")
    submission = model.Submission(
        task=an_id(1), namespace="ns", name="t", spec=spec, inputs=b"{}", declared=False
    )
    one = task_starts.new_run(1, submission, CLUSTER)
    one.created = one.pending_since = 100.0
    finish(one, api_task.State.KILLED)
    write_task(store, one)
    task = rerun(store, dispatcher, one.id)
    assert (task.run, task.spec, task.inputs, task.name) == (2, spec, b"{}", "t")
    assert task.cluster.key == ("ns", "small")


def test_rerun_of_a_child_is_counted_once_by_its_parent(
    store: port.Store, dispatcher: machine.Machine
) -> None:
    parent = attempts.AttemptRef(an_id(1), 1, 1)
    write_task(store, a_call(1))
    child = a_call(2, parent=parent, child_key="sums:add#1")
    finish(child)
    write_task(store, child)
    task = rerun(store, dispatcher, child.id)
    assert task.parent == parent
    assert task.siblings is None, "the counts of the parent are unchanged"
    write(store, dispatcher.take(NOW))
    row = store.reader.task_row(parent.task)
    assert row is not None
    assert store.reader.view(row).children == api_task.ChildCounts(total=1, failed=1)


def test_second_rerun_of_the_same_task_is_refused(
    store: port.Store, dispatcher: machine.Machine
) -> None:
    one = a_call(1)
    finish(one)
    write_task(store, one)
    rerun(store, dispatcher, one.id)
    with pytest.raises(errors.RunRefused, match="run 2 of it has been started already"):
        rerun(store, dispatcher, one.id)


@pytest.mark.parametrize(
    ("state", "force", "message"),
    [
        ("Running", True, "is Running, not over"),
        ("Success", False, "kiln retry --force"),
        ("Success", True, ""),
        ("Failed", False, ""),
        ("Killed", False, ""),
    ],
)
def test_rerun_is_refused_unless_the_task_ended_or_force_is_given(
    store: port.Store,
    state: str,
    force: bool,  # noqa: FBT001
    message: str,
) -> None:
    one = a_call(1)
    if state == "Running":
        one.state = api_task.State.RUNNING
    else:
        finish(one, api_task.State(state))
    write_task(store, one)
    refusal = restore.rerun_refusal(store.reader.task_row(one.id), force=force)
    assert bool(refusal) == bool(message)
    assert message in refusal


def test_rerun_of_an_unknown_task_is_refused() -> None:
    assert "does not know" in restore.rerun_refusal(None, force=True)
