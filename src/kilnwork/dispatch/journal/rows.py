"""Rows of the journal: what a batch writes, as SQL values. Pure.

Used by the journal, which makes the rows of a batch on its owner's thread, since records change
under it; `memory_store` gets from it which blobs a template needs. What is stored of a task is
declared in `task_rows`.

A call whose row is new, that is reserved for the first time or that ends well has a narrow
statement of its own: that is all that happens to nearly every one of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from kilnwork.api import attempts, names
from kilnwork.api import task as api_task
from kilnwork.dispatch.journal import task_counts, task_rows
from kilnwork.dispatch.machine import instructions, records, transitions
from kilnwork.kit import ids

Value = task_rows.Value
_encode = msgspec.json.Encoder().encode
# What every call passes: a member by way of its class takes ten times as long to look up.
_PENDING, _STAGING = api_task.State.PENDING, api_task.State.STAGING
_SUCCESS = api_task.State.SUCCESS
_RESERVED = transitions.AttemptState.RESERVED
_NO_INTENT = records.Intent.NONE


@dataclass(slots=True)
class Rows:
    """What one transaction writes, by statement.

    `calls`, `arguments`, `outputs`, `reserved` and `finished` are flat: the values of all rows, one
    row after the other, for statements that write many rows in one step.
    """

    workers: list[tuple[Value, ...]] = field(default_factory=list)
    templates: list[tuple[Value, ...]] = field(default_factory=list)
    inserts: list[tuple[Value, ...]] = field(default_factory=list)
    followed: list[task_rows.TaskRow] = field(default_factory=list)
    """Whole rows of tasks that others follow, for their views."""
    calls: list[Value] = field(default_factory=list)
    arguments: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    reserved: list[Value] = field(default_factory=list)
    finished: list[Value] = field(default_factory=list)
    updates: list[tuple[Value, ...]] = field(default_factory=list)
    blobs: list[tuple[Value, ...]] = field(default_factory=list)
    past: list[records.PastAttempt] = field(default_factory=list)
    cached: list[tuple[Value, ...]] = field(default_factory=list)
    released: list[tuple[Value, ...]] = field(default_factory=list)
    taken_over: Sequence[tuple[Value, ...]] = ()
    superseded: Sequence[tuple[Value, ...]] = ()
    forgotten: Sequence[Value] = ()
    writes: list[tuple[str, Iterable[instructions.Row]]] = field(default_factory=list)
    moves: list[task_counts.Move] = field(default_factory=list)
    """How states change, for the counts."""
    moved: list[int] = field(default_factory=list)
    """The rows of the tasks that change their state, in the same order."""
    reruns: list[tuple[ids.TaskId, int, int]] = field(default_factory=list)
    """Tasks with a new run: its number and its row. The run before is not counted any more."""


def of_batch(batch: instructions.Batch) -> Rows:
    """The rows of a batch, as its records are now."""
    rows = Rows(
        workers=[_worker(worker) for worker in batch.workers],
        outputs=[value for output in batch.outputs for value in output],
        past=batch.past,
        cached=list(batch.cached),
        released=[(task,) for task in batch.released],
        taken_over=batch.taken_over,
        superseded=batch.superseded,
        forgotten=batch.forgotten,
        writes=batch.writes,
    )
    for template in batch.templates:
        _add_template(rows, template)
    rows.moves, rows.moved = task_counts.moves(batch.dirty)
    for task in batch.dirty:
        of_call = task.template
        if of_call is not None and task.spec is of_call.spec:
            _add_call(rows, task)
            if task.shown and is_whole_view(task):
                rows.followed.append(task_rows.of_record(task))
        elif task.followed:
            _add_followed(rows, task)
        elif task.stored is not None:
            _add_update(rows, task)
        else:
            rows.inserts.append(task_rows.values(task))
            _use(rows, task.row, task.result)
        if task.stored is None and task.run > 1:
            rows.reruns.append((task.id, task.run, task.row))
        task.stored = task.state
    return rows


def _worker(worker: records.Worker) -> tuple[Value, ...]:
    namespace, cluster = worker.cluster.key
    return (
        worker.row,
        worker.session,
        namespace,
        cluster,
        worker.name,
        worker.pod_uid,
        worker.node,
    )


def _add_template(rows: Rows, template: records.Template) -> None:
    rows.templates.append((template.row, template.cluster.key[0], _encode(template.spec)))
    rows.blobs += [(digest, -template.row) for digest in shipped(template.spec)]


def shipped(spec: api_task.TaskSpec) -> Iterator[bytes]:
    """Digests of the blobs that hold the function and the environment of calls."""
    call = spec.call
    for name in () if call is None else (call.code, call.environment):
        if found := names.digest(name):
            yield found


def _use(rows: Rows, row: int, payload: attempts.Payload | None) -> None:
    """The blobs that a value is, or refers to, are needed while the row is there."""
    if payload is None:
        return
    if payload.digest is not None:
        rows.blobs.append((payload.digest, row))
    rows.blobs += [(digest, row) for digest in payload.blobs]


def _add_followed(rows: Rows, task: records.Task) -> None:
    """The whole row, of which the statement takes its part."""
    row = task_rows.of_record(task)
    if task.stored:
        rows.updates.append(task_rows.changed_values_of_row(row))
    else:
        rows.inserts.append(task_rows.values_of_row(row))
    _use(rows, task.row, task.result)
    if is_whole_view(task):
        rows.followed.append(row)


def is_whole_view(task: records.Task) -> bool:
    """Return whether the row of a record is all that its view shows: it has no children, and no
    loss to be told of."""
    return task.family is None and not (task.losses or task.excused)


def _add_update(rows: Rows, task: records.Task) -> None:
    rows.updates.append(task_rows.changed_values(task))
    _use(rows, task.row, task.result)


def _add_call(rows: Rows, task: records.Task) -> None:
    """By the narrowest statement that holds all that can have changed."""
    state = task.state
    if task.stored is None:
        rows.calls += task_rows.new_call_values(task)
        arguments = task.arguments
        _use(rows, task.row, arguments)
        if arguments is not None and len(arguments.data) > task_rows.MAX_ROW_ARGUMENTS:
            rows.arguments += (task.row, arguments.data)
        if state is not _PENDING and state is not _STAGING:
            _add_update(rows, task)
    elif state is _SUCCESS and task.intent is _NO_INTENT and task_rows.unchanged(task):
        rows.finished += task_rows.finished_values(task)
    elif (
        state is _STAGING
        and task.attempt_state is _RESERVED
        and task.intent is _NO_INTENT
        and task_rows.unchanged(task)
    ):
        rows.reserved += task_rows.reserved_values(task)
    else:
        _add_update(rows, task)
