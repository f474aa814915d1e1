"""What every store promises: a batch that is kept is read as it was, by whoever may look for it."""

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
from kilnwork.dispatch.machine import inputs, instructions, lifecycle, records, transitions
from kilnwork.kit import ids

CLUSTER = records.Cluster(("ns", "default"))
ELSEWHERE = records.Cluster(("other", "default"))
WORKER = records.Worker(CLUSTER, b"s" * 16, row=1, name="w", pod_uid="u", node="n")
CODE, DATA, RESULT, INNER = (bytes([number]) * 32 for number in range(1, 5))
ADD = api_task.TaskSpec(call=api_task.Call(function="sums:add"))


@pytest.fixture(params=["journal", "volatile"])
def kept(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[port.Store]:
    made: port.Store
    durable = request.param == "journal"
    made = journal.Journal(tmp_path / "journal.db") if durable else memory_store.MemoryStore()
    made.open()

    def failed(error: BaseException) -> None:
        raise error

    made.start(lambda call: call(), on_failure=failed)
    yield made
    made.close()


def write(kept: port.Store, **parts: Any) -> port.Written:
    """Keep one batch and wait until that is told; return what is told of it."""
    ended: queue.SimpleQueue[port.Written] = queue.SimpleQueue()
    dirty = dict.fromkeys(parts.pop("tasks", ()))
    finals = [task for task in dirty if task.state.final]
    kept.write(instructions.Batch(dirty=dirty, finals=finals, **parts), ended.put)
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
    task = lifecycle.new_run(number, submission, CLUSTER)
    task.created = task.pending_since = 100.0
    return task


def a_template(row: int = 1, *, cluster: records.Cluster = CLUSTER) -> records.Template:
    return records.Template(row, cluster, ADD)


def a_call(number: int, template: records.Template, **facts: Any) -> records.Task:
    """A pending call; its row has the same number."""
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
    task.state, task.attempt_state = api_task.State.STAGING, transitions.AttemptState.RESERVED
    task.attempt, task.worker, task.reserved = 1, WORKER, 101.0
    task.reason, task.message = "Starting", ""


def succeed(task: records.Task, data: bytes = b"3", **payload: Any) -> None:
    task.state, task.attempt_state = api_task.State.SUCCESS, transitions.AttemptState.SUCCEEDED
    task.reason, task.started, task.attempt_started = "Succeeded", 102.0, 102.0
    task.finished, task.stopped = 103.0, True
    task.result = attempts.Payload(attempts.JSON, data, **payload)


def lookups(**asked: Any) -> inputs.Lookups:
    given: dict[str, Any] = {"calls": [], "children": [], "keys": [], "values": set()}
    return inputs.Lookups(namespace="ns", **{**given, **asked})


def test_a_command_is_read_as_it_was(kept: port.Store) -> None:
    task = a_command(1)
    write(kept, tasks=[task])
    row = kept.reader.task_row(task.id)
    assert row is not None
    assert (row.state, row.shown_name, row.spec) == ("Pending", "t-1", b'{"command":["true"]}')
    assert [found.task for found in kept.reader.declared()] == [task.id]
    task.state, task.finished, task.exit_code = api_task.State.FAILED, 103.0, 3
    write(kept, tasks=[task])
    view = kept.reader.view(kept.reader.task_row(task.id) or row)
    assert (view.state, view.exit_code, view.finished) == (api_task.State.FAILED, 3, 103.0)


def test_rows_of_declared_tasks_are_told_as_they_are_read(kept: port.Store) -> None:
    template, command, call = a_template(), a_command(1), a_command(2)
    call.spec = api_task.TaskSpec(call=api_task.Call(function="sums:add", args=(1, 2)))
    call.template, call.arguments = template, attempts.Payload(attempts.JSON, b"[[1,2],{}]")
    written = write(kept, tasks=[command, call, a_call(3, template)], templates=[template])
    assert written == [kept.reader.task_row(command.id), kept.reader.task_row(call.id)]
    reserve(command)
    succeed(command)
    written = write(kept, tasks=[command], workers=[WORKER])
    assert written == [kept.reader.task_row(command.id)]
    assert (written[0].state, written[0].worker_name, written[0].result) == ("Success", "w", b"3")


def test_rows_that_do_not_make_a_view_alone_are_not_told(kept: port.Store) -> None:
    parent, lost, excused = a_command(1), a_command(2), a_command(3)
    parent.family = records.Family(parent.id, 1, declared=True)
    lost.losses = excused.excused = 1
    assert write(kept, tasks=[parent, lost, excused]) == []
    assert len(list(kept.reader.declared())) == 3


def test_a_call_with_a_spec_of_its_own_has_no_arguments_beside_it(kept: port.Store) -> None:
    task = a_command(1)
    task.spec = api_task.TaskSpec(call=api_task.Call(function="sums:add", args=(1, 2)))
    task.template = a_template()
    task.arguments = attempts.Payload(attempts.JSON, b"[[1,2],{}]")
    write(kept, tasks=[task])
    row = kept.reader.task_row(task.id)
    assert row is not None
    assert (row.template, row.argument_payload, row.decoded_spec()) == (None, None, task.spec)


def test_a_call_is_read_at_each_stage(kept: port.Store) -> None:
    template = a_template()
    task = a_call(1, template, needs=(an_id(8), an_id(9)), name="sum")
    write(kept, tasks=[task], templates=[template], workers=[WORKER])
    row = kept.reader.task_row(task.id)
    assert row is not None
    assert (row.state, row.name, row.template) == ("Pending", "sum", 1)
    assert (row.argument_payload, row.needed) == (task.arguments, task.needs)
    assert (row.decoded_spec(), row.source) == (ADD, b"d" * 16)
    reserve(task)
    write(kept, tasks=[task])
    row = kept.reader.task_row(task.id)
    assert row is not None
    assert (row.state, row.attempt, row.attempt_state) == ("Staging", 1, "Reserved")
    assert (row.session, row.worker_name, row.reason) == (b"s" * 16, "w", "Starting")
    succeed(task)
    write(kept, tasks=[task])
    row = kept.reader.task_row(task.id)
    assert row is not None
    assert (row.state, row.reason, row.payload) == ("Success", "Succeeded", task.result)
    assert kept.reader.view(row).function == "sums:add"


def test_a_call_that_is_new_and_over_at_once_is_kept(kept: port.Store) -> None:
    template = a_template()
    task = a_call(1, template)
    task.state, task.finished, task.reason = api_task.State.FAILED, 100.0, "InputFailed"
    task.result = attempts.Payload(attempts.ERROR, b"error")
    write(kept, tasks=[task], templates=[template])
    value = calls.Value(task.id, api_task.State.FAILED, "InputFailed", "", task.result)
    assert kept.reader.values("ns", [task.id]) == {task.id: value}


def test_facts_without_a_narrow_statement_are_kept(kept: port.Store) -> None:
    template = a_template()
    parent = attempts.AttemptRef(an_id(7), 1, 2)
    task = a_call(1, template, parent=parent, child_key="f#1")
    write(kept, tasks=[task], templates=[template], workers=[WORKER])
    reserve(task)
    task.attempt, task.losses, task.excused = 3, 1, 1
    write(kept, tasks=[task])
    row = kept.reader.task_row(task.id)
    assert row is not None
    assert (row.attempt, row.losses, row.excused, row.parent_ref) == (3, 1, 1, parent)
    task.state, task.attempt_state = api_task.State.RUNNING, transitions.AttemptState.SUCCEEDED
    task.delegate = an_id(5)
    write(kept, tasks=[task])
    row = kept.reader.task_row(task.id)
    assert row is not None
    assert row.delegate == an_id(5)


@pytest.mark.parametrize("count", [1, 4, 255, 256, 600])
def test_many_calls_in_one_batch_are_all_kept(kept: port.Store, count: int) -> None:
    template = a_template()
    tasks = [a_call(number, template) for number in range(1, count + 1)]
    write(kept, tasks=tasks, templates=[template], workers=[WORKER])
    for change in (reserve, succeed):
        for task in tasks:
            change(task)
        write(kept, tasks=tasks)
    values = kept.reader.values(None, [task.id for task in tasks])
    assert [values[task.id].payload for task in tasks] == [task.result for task in tasks]


def test_only_what_is_over_has_a_value_and_only_in_its_namespace(kept: port.Store) -> None:
    template = a_template()
    going, over = a_call(1, template), a_call(2, template)
    write(kept, tasks=[going, over], templates=[template], workers=[WORKER])
    succeed(over)
    write(kept, tasks=[over])
    asked = [going.id, over.id, an_id(99)]
    assert set(kept.reader.values("ns", asked)) == {over.id}
    assert set(kept.reader.values(None, asked)) == {over.id}
    assert kept.reader.values("other", asked) == {}


def test_calls_are_found_by_id_by_key_and_as_children(kept: port.Store) -> None:
    here, there = a_template(1), a_template(2, cluster=ELSEWHERE)
    plain = a_call(1, here)
    keyed = a_call(2, here, child_key="=daily")
    child = a_call(3, here, child_key="sums:add#1", parent=attempts.AttemptRef(an_id(7), 1, 2))
    foreign = a_call(4, there, child_key="=daily")
    tasks = [plain, keyed, child, foreign]
    write(kept, tasks=tasks, templates=[here, there], workers=[WORKER])
    for task in tasks:
        succeed(task)
    write(kept, tasks=tasks)
    found = kept.reader.known(
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


def test_the_newest_child_of_a_key_counts(kept: port.Store) -> None:
    template = a_template()
    parent = attempts.AttemptRef(an_id(7), 1, 1)
    old = a_call(1, template, child_key="=k", parent=parent)
    new = a_call(2, template, child_key="=k", parent=parent)
    write(kept, tasks=[old, new], templates=[template])
    found = kept.reader.child(an_id(7), 1, "=k")
    assert found is not None
    assert found.task == new.id
    assert kept.reader.child(an_id(7), 2, "=k") is None


def test_a_task_whose_object_is_gone_is_declared_no_more(kept: port.Store) -> None:
    task, other = a_command(1), a_command(2)
    write(kept, tasks=[task, other])
    write(kept, released=[task.id])
    assert [row.task for row in kept.reader.declared()] == [other.id]
    assert kept.reader.task(task.id) is not None


def test_attempts_that_are_over_are_listed_and_losses_are_counted(kept: port.Store) -> None:
    task = a_command(1)
    lost = records.PastAttempt(1, 1, 1, 90.0, 91.0, 92.0, "Lost", "WorkerLost", "gone", 137)
    unstarted = records.PastAttempt(1, 2, 1, 93.0, None, 94.0, "Lost", "TakenBack", "", None)
    reserve(task)
    task.attempt, task.losses, task.excused = 3, 1, 1
    write(kept, tasks=[task], workers=[WORKER], past=[lost, unstarted])
    first, second, third = kept.reader.attempts(task.id)
    assert (first.ending, first.exit_code, first.worker) == (attempts.Ending.LOST, 137, "w")
    assert (second.ref.attempt, second.started, second.finished) == (2, None, 94.0)
    assert (third.ref.attempt, third.ending, third.node) == (3, None, "n")
    view = kept.reader.find("ns", "t-1")
    assert view == kept.reader.task(task.id)
    assert view is not None
    assert (view.losses, view.loss) == (1, "WorkerLost: gone")
    assert kept.reader.tasks("ns") == ([view], None)
    assert kept.reader.attempts(an_id(2)) == []
    write(kept, forgotten={task.id: None})
    assert kept.reader.attempts(task.id) == []


def test_what_attempts_have_used_is_kept(kept: port.Store) -> None:
    template = a_template()
    call, command = a_call(1, template), a_command(2)
    write(kept, tasks=[call, command], templates=[template])
    reserve(call)
    reserve(command)
    write(kept, tasks=[call, command], workers=[WORKER])
    succeed(call)
    succeed(command)
    call.usage = attempts.Usage(0.5, 1 << 30)
    command.attempt, command.unstarted = 3, 1
    command.usage = attempts.Usage(1.5)
    lost = records.PastAttempt(
        2, 2, 1, 90.0, 91.0, 92.0, "Lost", "WorkerLost", "gone", 137, cpu_seconds=2.5,
        peak_bytes=7,
    )  # fmt: skip
    write(kept, tasks=[call, command], past=[lost])
    views = [kept.reader.task(task.id) for task in (call, command)]
    assert [view and view.usage for view in views] == [call.usage, command.usage]
    assert [view and view.attempts for view in views] == [1, 2]
    used = [attempt.usage for attempt in kept.reader.attempts(command.id)]
    assert used == [attempts.Usage(2.5, 7), command.usage]


def test_an_id_that_is_taken_spoils_no_batch(kept: port.Store) -> None:
    template = a_template()
    first = a_call(1, template)
    write(kept, tasks=[first], templates=[template], workers=[WORKER])
    succeed(first)
    write(kept, tasks=[first])
    second, third = a_call(2, template), a_call(3, template)
    second.id = first.id
    write(kept, tasks=[second, third])
    for task in (second, third):
        succeed(task, b"4")
    write(kept, tasks=[second, third])
    assert kept.reader.values("ns", [third.id])[third.id].payload == third.result
    assert first.id in kept.reader.values("ns", [first.id])


def test_blobs_are_referenced_while_their_task_is_kept(kept: port.Store) -> None:
    call = api_task.Call(function="f", code=f"sha256:{CODE.hex()}")
    template = records.Template(1, CLUSTER, api_task.TaskSpec(call=call))
    arguments = attempts.Payload(attempts.PICKLE, b"", DATA, 100_000)
    parent = attempts.AttemptRef(an_id(7), 1, 1)
    task = a_call(1, template, arguments=arguments, parent=parent, child_key="=k")
    write(kept, tasks=[task], templates=[template], workers=[WORKER])
    every = [CODE, DATA, RESULT, INNER, b"x" * 32]
    assert kept.reader.referenced(every) == {CODE, DATA}
    reserve(task)
    write(kept, tasks=[task])
    succeed(task, b"", digest=RESULT, size=70_000, blobs=(INNER,))
    write(kept, tasks=[task])
    assert kept.reader.referenced(every) == {CODE, DATA, RESULT, INNER}
    row = kept.reader.task_row(task.id)
    assert row is not None
    assert (row.payload, row.argument_payload) == (task.result, arguments)
    write(kept, forgotten={task.id: None})
    assert kept.reader.referenced([DATA, RESULT, INNER]) == set()
    assert kept.reader.task_row(task.id) is None


def test_what_is_forgotten_is_found_no_more(kept: port.Store) -> None:
    template = a_template()
    task = a_call(1, template, child_key="=daily")
    write(kept, tasks=[task], templates=[template])
    succeed(task)
    write(kept, tasks=[task])
    write(kept, forgotten={task.id: None})
    assert kept.reader.values(None, [task.id]) == {}
    assert kept.reader.known(lookups(calls=[(1, task.id)], keys=[(2, "=daily")])) == {}


@pytest.mark.parametrize("known", [True, False])
def test_only_what_is_forgotten_goes(kept: port.Store, *, known: bool) -> None:
    """All runs of some tasks among others. `known`: the only rows of those that have one are."""
    template = a_template()
    blobs = [bytes([number]) * 32 for number in range(1, 10)]
    tasks = [a_call(number, template) for number in range(1, 10)]
    tasks[3].run, tasks[3].id = 2, tasks[2].id
    for task, blob in zip(tasks, blobs, strict=True):
        succeed(task, b"", digest=blob, size=9)
    outputs = [(task.row, 1, b"printed") for task in tasks]
    write(kept, tasks=tasks[:3], templates=[template], outputs=outputs)
    write(kept, tasks=tasks[3:])
    gone = {task.id: task.row if known else None for task in (tasks[1], tasks[4], tasks[7])}
    gone[tasks[2].id] = None
    write(kept, forgotten=gone)
    left = [task for task in tasks if task.id not in gone]
    assert kept.reader.values(None, [task.id for task in tasks]).keys() == {one.id for one in left}
    assert kept.reader.referenced(blobs) == {blobs[task.row - 1] for task in left}
    assert [kept.reader.output(attempts.AttemptRef(task.id, 1, 1)) for task in left] == [
        b"printed" for _ in left
    ]
    assert [count.number for count in kept.reader.counts()] == [len(left)]


def test_what_attempts_printed_is_kept_until_their_task_is_forgotten(kept: port.Store) -> None:
    task, other = a_command(1), a_command(2)
    write(kept, tasks=[task, other], outputs=[(1, 1, b"one"), (1, 2, b"two"), (2, 1, b"other")])
    write(kept, outputs=[(1, 2, b"two")])  # said again
    found = [kept.reader.output(attempts.AttemptRef(an_id(1), 1, number)) for number in (1, 2, 3)]
    assert found == [b"one", b"two", None]
    write(kept, forgotten={task.id: None})
    assert kept.reader.output(attempts.AttemptRef(an_id(1), 1, 1)) is None
    assert kept.reader.output(attempts.AttemptRef(an_id(2), 1, 1)) == b"other"


def test_a_result_is_found_by_its_key_until_its_task_is_forgotten(kept: port.Store) -> None:
    key, other = b"k" * 32, b"o" * 32

    def found(namespace: str, key: bytes, *, age_s: float = 60.0) -> inputs.CachedResult | None:
        lookups = inputs.Lookups(namespace, [], [], [], set(), [(7, key, age_s)])
        return kept.reader.cached(lookups, now=150.0).get(7)

    template = a_template()
    first, second = a_call(1, template), a_call(2, template)
    write(kept, tasks=[first, second], templates=[template])
    for number, task in enumerate((first, second)):
        succeed(task)
        write(kept, tasks=[task], cached=[("ns", key, task.id, 100.0 + number)])
    newest = found("ns", key)
    assert newest is not None
    assert (newest.task, newest.payload) == (second.id, second.result)
    assert newest.finished == 101.0
    assert found("ns", other) is None
    assert found("other", key) is None
    assert found("ns", key, age_s=48.0) is None
    write(kept, forgotten={first.id: None})
    assert found("ns", key) is not None
    write(kept, forgotten={second.id: None})
    assert found("ns", key) is None
