"""The contract of every store: a written batch is read back unchanged, by every way of looking it
up.
"""

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.journal import memory_store, port
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.dispatch.machine import inputs, instructions, records, task_starts, transition_table
from kilnwork.kit import ids

CLUSTER = records.Cluster(("ns", "default"))
ELSEWHERE = records.Cluster(("other", "default"))
WORKER = records.Worker(CLUSTER, b"s" * 16, row=1, name="w", pod_uid="u", node="n")
CODE, DATA, RESULT, INNER = (bytes([number]) * 32 for number in range(1, 5))
ADD = api_task.TaskSpec(call=api_task.Call(function="sums:add"))


@pytest.fixture(params=["journal", "volatile"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[port.Store]:
    made: port.Store
    durable = request.param == "journal"
    made = journal.Journal(tmp_path / "journal.db") if durable else memory_store.MemoryStore()
    made.open()

    def failed(error: BaseException) -> None:
        raise error

    made.start(lambda call: call(), on_failure=failed)
    yield made
    made.close()


def write(store: port.Store, **parts: Any) -> port.Written:
    """Write one batch, wait for it, and return the rows that the store reports."""
    ended: queue.SimpleQueue[port.Written] = queue.SimpleQueue()
    dirty = dict.fromkeys(parts.pop("tasks", ()))
    finals = [task for task in dirty if task.state.final]
    store.write(instructions.Batch(dirty=dirty, finals=finals, **parts), ended.put)
    return ended.get(timeout=30)


def an_id(number: int) -> ids.TaskId:
    return ids.TaskId(number.to_bytes(16, "big"))


def a_command(number: int) -> records.Task:
    submission = model.Submission(
        task=an_id(number),
        namespace="ns",
        name=f"t-{number}",
        spec=api_task.TaskSpec(command=("true",)),
    )
    task = task_starts.new_run(number, submission, CLUSTER)
    task.created = task.pending_since = 100.0
    return task


def a_template(row: int = 1, *, cluster: records.Cluster = CLUSTER) -> records.Template:
    return records.Template(row, cluster, ADD)


def a_call(number: int, template: records.Template, **facts: Any) -> records.Task:
    """Return a pending call whose row number equals its number."""
    given: dict[str, Any] = {
        "name": "",
        "arguments": attempts.Payload(attempts.JSON, b"[[%d],{}]" % number),
        "created": 100.0,
        "pending_since": 100.0,
        "reason": "NoFreeSlot",
        "source": b"d" * 16,
    }
    return records.Task(
        row=number,
        id=an_id(number),
        run=1,
        namespace=template.cluster.key[0],
        cluster=template.cluster,
        declared=False,
        spec=template.spec,
        template=template,
        **{**given, **facts},
    )


def reserve(task: records.Task) -> None:
    task.state, task.attempt_state = api_task.State.STAGING, transition_table.AttemptState.RESERVED
    task.attempt, task.worker, task.reserved = 1, WORKER, 101.0
    task.reason, task.message = "Starting", ""


def succeed(task: records.Task, data: bytes = b"3", **payload: Any) -> None:
    task.state, task.attempt_state = api_task.State.SUCCESS, transition_table.AttemptState.SUCCEEDED
    task.reason, task.started, task.attempt_started = "Succeeded", 102.0, 102.0
    task.finished, task.stopped = 103.0, True
    task.result = attempts.Payload(attempts.JSON, data, **payload)


def lookups(**asked: Any) -> inputs.Lookups:
    given: dict[str, Any] = {"calls": [], "children": [], "keys": [], "values": set()}
    return inputs.Lookups(namespace="ns", **{**given, **asked})


def test_command_is_read_as_written(store: port.Store) -> None:
    task = a_command(1)
    write(store, tasks=[task])
    row = store.reader.task_row(task.id)
    assert row is not None
    assert (row.state, row.shown_name, row.spec) == ("Pending", "t-1", b'{"command":["true"]}')
    assert [found.task for found in store.reader.declared()] == [task.id]
    task.state, task.finished, task.exit_code = api_task.State.FAILED, 103.0, 3
    write(store, tasks=[task])
    view = store.reader.view(store.reader.task_row(task.id) or row)
    assert (view.state, view.exit_code, view.finished) == (api_task.State.FAILED, 3, 103.0)


def test_write_returns_the_rows_of_declared_tasks(store: port.Store) -> None:
    template, command, call = a_template(), a_command(1), a_command(2)
    call.spec = api_task.TaskSpec(call=api_task.Call(function="sums:add", args=(1, 2)))
    call.template, call.arguments = template, attempts.Payload(attempts.JSON, b"[[1,2],{}]")
    written = write(store, tasks=[command, call, a_call(3, template)], templates=[template])
    assert written == [store.reader.task_row(command.id), store.reader.task_row(call.id)]
    reserve(command)
    succeed(command)
    written = write(store, tasks=[command], workers=[WORKER])
    assert written == [store.reader.task_row(command.id)]
    assert (written[0].state, written[0].worker_name, written[0].result) == ("Success", "w", b"3")


def test_write_omits_rows_whose_view_needs_other_rows(store: port.Store) -> None:
    parent, lost, excused = a_command(1), a_command(2), a_command(3)
    parent.family = records.Family(parent.id, 1, declared=True)
    lost.losses = excused.excused = 1
    assert write(store, tasks=[parent, lost, excused]) == []
    assert len(list(store.reader.declared())) == 3


def test_call_with_its_own_spec_has_no_separate_arguments(store: port.Store) -> None:
    task = a_command(1)
    task.spec = api_task.TaskSpec(call=api_task.Call(function="sums:add", args=(1, 2)))
    task.template = a_template()
    task.arguments = attempts.Payload(attempts.JSON, b"[[1,2],{}]")
    write(store, tasks=[task])
    row = store.reader.task_row(task.id)
    assert row is not None
    assert (row.template, row.argument_payload, row.decoded_spec()) == (None, None, task.spec)


def test_call_is_read_as_written_at_each_stage(store: port.Store) -> None:
    template = a_template()
    task = a_call(1, template, needs=(an_id(8), an_id(9)), name="sum")
    write(store, tasks=[task], templates=[template], workers=[WORKER])
    row = store.reader.task_row(task.id)
    assert row is not None
    assert (row.state, row.name, row.template) == ("Pending", "sum", 1)
    assert (row.argument_payload, row.needed) == (task.arguments, task.needs)
    assert (row.decoded_spec(), row.source) == (ADD, b"d" * 16)
    reserve(task)
    write(store, tasks=[task])
    row = store.reader.task_row(task.id)
    assert row is not None
    assert (row.state, row.attempt, row.attempt_state) == ("Staging", 1, "Reserved")
    assert (row.session, row.worker_name, row.reason) == (b"s" * 16, "w", "Starting")
    succeed(task)
    write(store, tasks=[task])
    row = store.reader.task_row(task.id)
    assert row is not None
    assert (row.state, row.reason, row.payload) == ("Success", "Succeeded", task.result)
    assert store.reader.view(row).function == "sums:add"


def test_call_that_ends_in_the_batch_of_its_submission_is_stored(store: port.Store) -> None:
    template = a_template()
    task = a_call(1, template)
    task.state, task.finished, task.reason = api_task.State.FAILED, 100.0, "InputFailed"
    task.result = attempts.Payload(attempts.ERROR, b"error")
    write(store, tasks=[task], templates=[template])
    value = calls.Value(task.id, api_task.State.FAILED, "InputFailed", "", task.result)
    assert store.reader.values("ns", [task.id]) == {task.id: value}


def test_rarely_set_fields_are_stored(store: port.Store) -> None:
    template = a_template()
    parent = attempts.AttemptRef(an_id(7), 1, 2)
    task = a_call(1, template, parent=parent, child_key="f#1")
    write(store, tasks=[task], templates=[template], workers=[WORKER])
    reserve(task)
    task.attempt, task.losses, task.excused = 3, 1, 1
    write(store, tasks=[task])
    row = store.reader.task_row(task.id)
    assert row is not None
    assert (row.attempt, row.losses, row.excused, row.parent_ref) == (3, 1, 1, parent)
    task.state, task.attempt_state = api_task.State.RUNNING, transition_table.AttemptState.SUCCEEDED
    task.delegate = an_id(5)
    write(store, tasks=[task])
    row = store.reader.task_row(task.id)
    assert row is not None
    assert row.delegate == an_id(5)


@pytest.mark.parametrize("count", [1, 4, 255, 256, 600])
def test_all_calls_of_a_large_batch_are_stored(store: port.Store, count: int) -> None:
    template = a_template()
    tasks = [a_call(number, template) for number in range(1, count + 1)]
    write(store, tasks=tasks, templates=[template], workers=[WORKER])
    for change in (reserve, succeed):
        for task in tasks:
            change(task)
        write(store, tasks=tasks)
    values = store.reader.values(None, [task.id for task in tasks])
    assert [values[task.id].payload for task in tasks] == [task.result for task in tasks]


def test_values_are_of_finished_tasks_in_their_own_namespace(store: port.Store) -> None:
    template = a_template()
    running, finished = a_call(1, template), a_call(2, template)
    write(store, tasks=[running, finished], templates=[template], workers=[WORKER])
    succeed(finished)
    write(store, tasks=[finished])
    asked = [running.id, finished.id, an_id(99)]
    assert set(store.reader.values("ns", asked)) == {finished.id}
    assert set(store.reader.values(None, asked)) == {finished.id}
    assert store.reader.values("other", asked) == {}


def test_calls_are_found_by_id_by_key_and_as_children(store: port.Store) -> None:
    here, there = a_template(1), a_template(2, cluster=ELSEWHERE)
    plain = a_call(1, here)
    keyed = a_call(2, here, child_key="=daily")
    child = a_call(3, here, child_key="sums:add#1", parent=attempts.AttemptRef(an_id(7), 1, 2))
    foreign = a_call(4, there, child_key="=daily")
    tasks = [plain, keyed, child, foreign]
    write(store, tasks=tasks, templates=[here, there], workers=[WORKER])
    for task in tasks:
        succeed(task)
    write(store, tasks=tasks)
    found = store.reader.stored_calls(
        lookups(
            calls=[(10, plain.id), (11, foreign.id), (12, an_id(99))],
            keys=[(20, "=daily"), (21, "=weekly")],
            children=[(30, an_id(7), 1, "sums:add#1"), (31, an_id(7), 2, "sums:add#1")],
        )
    )
    assert {number: known.value.task for number, known in found.items()} == {
        10: plain.id,
        20: keyed.id,
        30: child.id,
    }
    assert found[30].requested_by == 2
    assert (found[20].arguments, found[20].spec) == (keyed.arguments, ADD)


def test_lookup_of_a_child_key_returns_the_newest_child(store: port.Store) -> None:
    template = a_template()
    parent = attempts.AttemptRef(an_id(7), 1, 1)
    old = a_call(1, template, child_key="=k", parent=parent)
    new = a_call(2, template, child_key="=k", parent=parent)
    write(store, tasks=[old, new], templates=[template])
    found = store.reader.child(an_id(7), 1, "=k")
    assert found is not None
    assert found.task == new.id
    assert store.reader.child(an_id(7), 2, "=k") is None


def test_released_task_is_no_longer_declared(store: port.Store) -> None:
    task, other = a_command(1), a_command(2)
    write(store, tasks=[task, other])
    write(store, released=[task.id])
    assert [row.task for row in store.reader.declared()] == [other.id]
    assert store.reader.task(task.id) is not None


def test_ended_attempts_are_listed_and_losses_counted(store: port.Store) -> None:
    task = a_command(1)
    lost = records.PastAttempt(1, 1, 1, 90.0, 91.0, 92.0, "Lost", "WorkerLost", "gone", 137)
    unstarted = records.PastAttempt(1, 2, 1, 93.0, None, 94.0, "Lost", "TakenBack", "", None)
    reserve(task)
    task.attempt, task.losses, task.excused = 3, 1, 1
    write(store, tasks=[task], workers=[WORKER], past=[lost, unstarted])
    first, second, third = store.reader.attempts(task.id)
    assert (first.ending, first.exit_code, first.worker) == (attempts.Ending.LOST, 137, "w")
    assert (second.ref.attempt, second.started, second.finished) == (2, None, 94.0)
    assert (third.ref.attempt, third.ending, third.node) == (3, None, "n")
    view = store.reader.find("ns", "t-1")
    assert view == store.reader.task(task.id)
    assert view is not None
    assert (view.losses, view.loss) == (1, "WorkerLost: gone")
    assert store.reader.tasks("ns") == ([view], None)
    assert store.reader.attempts(an_id(2)) == []
    write(store, forgotten={task.id: None})
    assert store.reader.attempts(task.id) == []


def test_resource_usage_of_attempts_is_stored(store: port.Store) -> None:
    template = a_template()
    call, command = a_call(1, template), a_command(2)
    write(store, tasks=[call, command], templates=[template])
    reserve(call)
    reserve(command)
    write(store, tasks=[call, command], workers=[WORKER])
    succeed(call)
    succeed(command)
    call.usage = attempts.Usage(0.5, 1 << 30)
    command.attempt, command.unstarted = 3, 1
    command.usage = attempts.Usage(1.5)
    lost = records.PastAttempt(
        2, 2, 1, 90.0, 91.0, 92.0, "Lost", "WorkerLost", "gone", 137, cpu_seconds=2.5,
        peak_bytes=7,
    )  # fmt: skip
    write(store, tasks=[call, command], past=[lost])
    views = [store.reader.task(task.id) for task in (call, command)]
    assert [view and view.usage for view in views] == [call.usage, command.usage]
    assert [view and view.attempts for view in views] == [1, 2]
    used = [attempt.usage for attempt in store.reader.attempts(command.id)]
    assert used == [attempts.Usage(2.5, 7), command.usage]


def test_duplicate_id_does_not_spoil_the_batch(store: port.Store) -> None:
    template = a_template()
    first = a_call(1, template)
    write(store, tasks=[first], templates=[template], workers=[WORKER])
    succeed(first)
    write(store, tasks=[first])
    second, third = a_call(2, template), a_call(3, template)
    second.id = first.id
    write(store, tasks=[second, third])
    for task in (second, third):
        succeed(task, b"4")
    write(store, tasks=[second, third])
    assert store.reader.values("ns", [third.id])[third.id].payload == third.result
    assert first.id in store.reader.values("ns", [first.id])


def test_blobs_are_referenced_until_their_task_is_deleted(store: port.Store) -> None:
    call = api_task.Call(function="f", code=f"sha256:{CODE.hex()}")
    template = records.Template(1, CLUSTER, api_task.TaskSpec(call=call))
    arguments = attempts.Payload(attempts.PICKLE, b"", DATA, 100_000)
    parent = attempts.AttemptRef(an_id(7), 1, 1)
    task = a_call(1, template, arguments=arguments, parent=parent, child_key="=k")
    write(store, tasks=[task], templates=[template], workers=[WORKER])
    all_blobs = [CODE, DATA, RESULT, INNER, b"x" * 32]
    assert store.reader.referenced(all_blobs) == {CODE, DATA}
    reserve(task)
    write(store, tasks=[task])
    succeed(task, b"", digest=RESULT, size=70_000, blobs=(INNER,))
    write(store, tasks=[task])
    assert store.reader.referenced(all_blobs) == {CODE, DATA, RESULT, INNER}
    row = store.reader.task_row(task.id)
    assert row is not None
    assert (row.payload, row.argument_payload) == (task.result, arguments)
    write(store, forgotten={task.id: None})
    assert store.reader.referenced([DATA, RESULT, INNER]) == set()
    assert store.reader.task_row(task.id) is None


def test_deleted_task_is_not_found(store: port.Store) -> None:
    template = a_template()
    task = a_call(1, template, child_key="=daily")
    write(store, tasks=[task], templates=[template])
    succeed(task)
    write(store, tasks=[task])
    write(store, forgotten={task.id: None})
    assert store.reader.values(None, [task.id]) == {}
    assert store.reader.stored_calls(lookups(calls=[(1, task.id)], keys=[(2, "=daily")])) == {}


@pytest.mark.parametrize("known", [True, False])
def test_delete_leaves_other_tasks_intact(store: port.Store, *, known: bool) -> None:
    """Delete all runs of some tasks among others.

    `known`: the row number is given, for tasks that have one row only.
    """
    template = a_template()
    blobs = [bytes([number]) * 32 for number in range(1, 10)]
    tasks = [a_call(number, template) for number in range(1, 10)]
    tasks[3].run, tasks[3].id = 2, tasks[2].id
    for task, blob in zip(tasks, blobs, strict=True):
        succeed(task, b"", digest=blob, size=9)
    outputs = [(task.row, 1, b"printed") for task in tasks]
    write(store, tasks=tasks[:3], templates=[template], outputs=outputs)
    write(store, tasks=tasks[3:])
    deleted = {task.id: task.row if known else None for task in (tasks[1], tasks[4], tasks[7])}
    deleted[tasks[2].id] = None
    write(store, forgotten=deleted)
    remaining = [task for task in tasks if task.id not in deleted]
    assert store.reader.values(None, [task.id for task in tasks]).keys() == {
        one.id for one in remaining
    }
    assert store.reader.referenced(blobs) == {blobs[task.row - 1] for task in remaining}
    assert [store.reader.output(attempts.AttemptRef(task.id, 1, 1)) for task in remaining] == [
        b"printed" for _ in remaining
    ]
    assert [count.number for count in store.reader.counts()] == [len(remaining)]


def test_output_of_attempts_is_stored_until_their_task_is_deleted(store: port.Store) -> None:
    task, other = a_command(1), a_command(2)
    write(store, tasks=[task, other], outputs=[(1, 1, b"one"), (1, 2, b"two"), (2, 1, b"other")])
    write(store, outputs=[(1, 2, b"two")])  # reported twice
    found = [store.reader.output(attempts.AttemptRef(an_id(1), 1, number)) for number in (1, 2, 3)]
    assert found == [b"one", b"two", None]
    write(store, forgotten={task.id: None})
    assert store.reader.output(attempts.AttemptRef(an_id(1), 1, 1)) is None
    assert store.reader.output(attempts.AttemptRef(an_id(2), 1, 1)) == b"other"


def test_cached_result_is_found_by_its_key_until_its_task_is_deleted(store: port.Store) -> None:
    key, other = b"k" * 32, b"o" * 32

    def found(namespace: str, key: bytes, *, age_s: float = 60.0) -> inputs.CachedResult | None:
        lookups = inputs.Lookups(namespace, [], [], [], set(), [(7, key, age_s)])
        return store.reader.cached(lookups, now=150.0).get(7)

    template = a_template()
    first, second = a_call(1, template), a_call(2, template)
    write(store, tasks=[first, second], templates=[template])
    for number, task in enumerate((first, second)):
        succeed(task)
        write(store, tasks=[task], cached=[("ns", key, task.id, 100.0 + number)])
    newest = found("ns", key)
    assert newest is not None
    assert (newest.task, newest.payload) == (second.id, second.result)
    assert newest.finished == 101.0
    assert found("ns", other) is None
    assert found("other", key) is None
    assert found("ns", key, age_s=48.0) is None
    write(store, forgotten={first.id: None})
    assert found("ns", key) is not None
    write(store, forgotten={second.id: None})
    assert found("ns", key) is None
