"""A run that is over in the journal, and the run after it: the same task with fresh budgets."""

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
from kilnwork.dispatch.machine import inputs, instructions, lifecycle, machine, memory, records
from kilnwork.kit import ids

CLUSTER = records.Cluster(("ns", "default"))
ADD = api_task.TaskSpec(call=api_task.Call(function="sums:add"))
NOW = inputs.Moment(200.0, 10.0)
TEMPLATE = records.Template(1, CLUSTER, ADD)
ARGUMENTS = attempts.Payload(attempts.JSON, b"[[1],{}]")


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[port.Store]:
    made = journal.Journal(tmp_path / "journal.db")
    made.open()

    def failed(error: BaseException) -> None:
        raise error

    made.start(lambda call: call(), on_failure=failed)
    write(made, instructions.Batch(templates=[TEMPLATE]))
    yield made
    made.close()


@pytest.fixture
def world() -> machine.Machine:
    mem = memory.Memory(lease_s=10.0, entropy=random.Random(0))
    mem.task_rows = iter(range(100, 200))  # type: ignore[assignment]
    mem.template_rows = iter(range(100, 200))  # type: ignore[assignment]
    return machine.Machine(mem)


def write(kept: port.Store, batch: instructions.Batch) -> None:
    ended = threading.Event()
    kept.write(batch, lambda _: ended.set())
    assert ended.wait(30)


def an_id(number: int) -> ids.TaskId:
    return ids.TaskId(number.to_bytes(16, "big"))


def a_call(number: int, **facts: Any) -> records.Task:
    return records.Task(
        number, an_id(number), 1, "ns", "", CLUSTER, False, ADD,
        template=TEMPLATE, arguments=ARGUMENTS, created=100.0, pending_since=100.0, **facts,
    )  # fmt: skip


def end(task: records.Task, state: api_task.State = api_task.State.FAILED) -> None:
    task.state, task.reason, task.message = state, "Raised", "ValueError: bad"
    task.attempt, task.failures, task.finished, task.stopped = 1, 1, 103.0, True


def keep(kept: port.Store, task: records.Task) -> None:
    finals = [task] if task.state.final else []
    write(kept, instructions.Batch(dirty={task: None}, finals=finals))


def again(kept: port.Store, world: machine.Machine, task: ids.TaskId) -> records.Task:
    row = kept.reader.task_row(task)
    assert row is not None
    values = kept.reader.values("ns", row.needed)
    world.handle(restore.rerun(row, values), NOW)
    return world.memory.tasks[task]


def test_a_call_runs_again_as_it_was(kept: port.Store, world: machine.Machine) -> None:
    one = a_call(1, child_key="=k", source=b"d" * 16)
    end(one)
    keep(kept, one)
    task = again(kept, world, one.id)
    assert (task.run, task.attempt, task.failures, task.state) == (2, 0, 0, "Pending")
    assert (task.arguments, task.spec, task.source) == (ARGUMENTS, ADD, b"d" * 16)
    assert world.memory.keys["ns", "=k"] is task, "whoever submits with the key finds this run"
    write(kept, world.take(NOW))
    row = kept.reader.task_row(one.id)
    assert row is not None
    assert (row.run, row.state, row.argument_payload) == (2, "Pending", ARGUMENTS)
    assert kept.reader.view(row).function == "sums:add"


def test_inputs_are_taken_as_they_ended(kept: port.Store, world: machine.Machine) -> None:
    given = a_call(1)
    end(given, api_task.State.SUCCESS)
    given.result = attempts.Payload(attempts.JSON, b"5")
    keep(kept, given)
    one = a_call(2, needs=(given.id,))
    end(one)
    keep(kept, one)
    task = again(kept, world, one.id)
    assert (task.unmet, task.needs) == (0, (given.id,))
    assert task.values is not None
    assert task.values[given.id] == calls.Value(
        given.id, api_task.State.SUCCESS, "Raised", "ValueError: bad", given.result
    )


def test_a_command_runs_again_as_it_was(kept: port.Store, world: machine.Machine) -> None:
    spec = api_task.TaskSpec(command=("true",), cluster_name="small")
    submission = model.Submission(
        task=an_id(1), namespace="ns", name="t", spec=spec, inputs=b"{}", declared=False
    )
    one = lifecycle.new_run(1, submission, CLUSTER)
    one.created = one.pending_since = 100.0
    end(one, api_task.State.KILLED)
    keep(kept, one)
    task = again(kept, world, one.id)
    assert (task.run, task.spec, task.inputs, task.name) == (2, spec, b"{}", "t")
    assert task.cluster.key == ("ns", "small")


def test_a_child_that_runs_again_does_not_count_twice(
    kept: port.Store, world: machine.Machine
) -> None:
    parent = attempts.AttemptRef(an_id(1), 1, 1)
    keep(kept, a_call(1))
    child = a_call(2, parent=parent, child_key="sums:add#1")
    end(child)
    keep(kept, child)
    task = again(kept, world, child.id)
    assert task.parent == parent
    assert task.siblings is None, "the parent's counts stay as they were"
    write(kept, world.take(NOW))
    row = kept.reader.task_row(parent.task)
    assert row is not None
    assert kept.reader.view(row).children == api_task.ChildCounts(total=1, failed=1)


def test_twice_at_once_is_refused(kept: port.Store, world: machine.Machine) -> None:
    one = a_call(1)
    end(one)
    keep(kept, one)
    again(kept, world, one.id)
    with pytest.raises(errors.RunRefused, match="run 2 of it has been started already"):
        again(kept, world, one.id)


@pytest.mark.parametrize(
    ("state", "force", "words"),
    [
        ("Running", True, "is Running, not over"),
        ("Success", False, "kiln retry --force"),
        ("Success", True, ""),
        ("Failed", False, ""),
        ("Killed", False, ""),
    ],
)
def test_who_may_run_again(
    kept: port.Store,
    state: str,
    force: bool,  # noqa: FBT001
    words: str,
) -> None:
    one = a_call(1)
    if state == "Running":
        one.state = api_task.State.RUNNING
    else:
        end(one, api_task.State(state))
    keep(kept, one)
    refusal = restore.rerun_refusal(kept.reader.task_row(one.id), force=force)
    assert bool(refusal) == bool(words)
    assert words in refusal


def test_an_unknown_task_does_not_run_again() -> None:
    assert "does not know" in restore.rerun_refusal(None, force=True)
