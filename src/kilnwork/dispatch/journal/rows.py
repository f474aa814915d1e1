"""Rows of the journal: what a batch writes, as SQL values. Pure.

Used by the journal, which makes the rows of a batch on its owner's thread, since records change
under it; `volatile` asks it which blobs a template needs. The order of values
is that of `sql/queries.sql`.

A call whose row is new, that is reserved for the first time or that ends well has a narrow
statement of its own: that is all that happens to nearly every one of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from kilnwork.api import attempts, names
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import instructions, records, transitions
from kilnwork.kit import ids

Value = str | int | float | bytes | None
_encode = msgspec.json.Encoder().encode
_S = api_task.State
_A = transitions.AttemptState
_I = records.Intent


@dataclass(slots=True)
class Rows:
    """What one transaction writes, by statement.

    `calls`, `reserved` and `finished` are flat: the values of all rows, one row after the other,
    for statements that write many rows in one step.
    """

    workers: list[tuple[Value, ...]] = field(default_factory=list)
    templates: list[tuple[Value, ...]] = field(default_factory=list)
    inserts: list[tuple[Value, ...]] = field(default_factory=list)
    calls: list[Value] = field(default_factory=list)
    reserved: list[Value] = field(default_factory=list)
    finished: list[Value] = field(default_factory=list)
    updates: list[tuple[Value, ...]] = field(default_factory=list)
    blobs: list[tuple[Value, ...]] = field(default_factory=list)
    past: list[records.PastAttempt] = field(default_factory=list)
    released: list[tuple[Value, ...]] = field(default_factory=list)
    forgotten: list[tuple[Value, ...]] = field(default_factory=list)


def of_batch(batch: instructions.Batch) -> Rows:
    """The rows of a batch, as its records are now."""
    rows = Rows(
        workers=[_worker(worker) for worker in batch.workers],
        past=batch.past,
        released=[(task,) for task in batch.released],
        forgotten=[(task,) for task in batch.forgotten],
    )
    for template in batch.templates:
        _add_template(rows, template)
    for task in batch.dirty:
        if task.narrow:
            _add_call(rows, task)
        elif task.stored:
            _add_update(rows, task)
        else:
            task.stored = True
            rows.inserts.append((*_mutable(task), *_fixed(task)))
            _use(rows, task.row, task.result)
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


def _add_update(rows: Rows, task: records.Task) -> None:
    rows.updates.append((*_mutable(task), task.row))
    _use(rows, task.row, task.result)


def _add_call(rows: Rows, task: records.Task) -> None:
    """By the narrowest statement that holds all that can have changed."""
    state = task.state
    if not task.stored:
        task.stored = True
        rows.calls += _new_call(task)
        _use(rows, task.row, task.arguments)
        if state is not _S.PENDING and state is not _S.STAGING:
            _add_update(rows, task)
    elif state is _S.SUCCESS and _ordinary(task):
        result = task.result
        rows.finished += (
            task.row,
            task.reason,
            task.message,
            task.attempt_started,
            task.started,
            task.finished,
            None if result is None else result.media_type,
            None if result is None else result.data,
        )
    elif state is _S.STAGING and task.attempt_state is _A.RESERVED and _ordinary(task):
        worker = task.worker
        reserved_by = None if worker is None else worker.row
        rows.reserved += (task.row, task.reason, reserved_by, task.reserved)
    else:
        _add_update(rows, task)


def _ordinary(task: records.Task) -> bool:
    """Nothing has happened to it that the narrow statements have no column for."""
    result, parent = task.result, task.parent
    return (
        task.attempt == 1
        and task.exit_code is None
        and task.delegate is None
        and task.intent is _I.NONE
        and not task.suspended
        and (result is None or not (result.digest or result.blobs))
        and (parent is None or parent.attempt == 1)
    )


def _new_call(task: records.Task) -> tuple[Value, ...]:
    arguments, parent, worker, template = task.arguments, task.parent, task.worker, task.template
    created, since = task.created, task.pending_since
    media_type = data = digest = size = blobs = None
    if arguments is not None:
        media_type, data, digest = arguments.media_type, arguments.data, arguments.digest
        size, blobs = arguments.size or None, b"".join(arguments.blobs) or None
    return (
        task.row,
        task.id,
        task.run,
        task.namespace,
        task.name or None,
        task.cluster.key[1],
        created,
        None if since == created else since,
        task.state,
        task.reason,
        task.message,
        task.attempt,
        task.attempt_state,
        None if worker is None else worker.row,
        task.reserved,
        None if template is None else template.row,
        media_type,
        data,
        digest,
        size,
        blobs,
        b"".join(task.needs) or None,
        None if parent is None else parent.task,
        None if parent is None else parent.run,
        None if parent is None else parent.attempt,
        task.child_key,
        task.source or None,
    )


def _mutable(task: records.Task) -> tuple[Value, ...]:
    result, worker, parent, stopped = task.result, task.worker, task.parent, task.stopped
    return (
        task.state.value,
        task.reason,
        task.message,
        task.attempt,
        task.attempt_state,
        task.failures,
        task.losses,
        task.excused,
        None if worker is None else worker.row,
        task.reserved,
        task.attempt_started,
        task.started,
        task.finished,
        task.exit_code,
        None if result is None else result.media_type,
        None if result is None else result.data,
        None if stopped is None else int(stopped),
        task.due,
        int(task.suspended),
        task.pending_since,
        None if parent is None else parent.attempt,
        task.delegate,
        None if result is None else result.digest,
        None if result is None else result.size or None,
        None if result is None else b"".join(result.blobs) or None,
    )


def _fixed(task: records.Task) -> tuple[Value, ...]:
    parent = task.parent
    return (
        task.row,
        task.id,
        task.run,
        task.namespace,
        None if not task.declared and task.name == ids.task_text(task.id) else task.name,
        task.cluster.key[1],
        int(task.declared),
        _encode(task.spec),
        task.inputs,
        task.digest,
        None if parent is None else parent.task,
        None if parent is None else parent.run,
        task.child_key,
        task.created,
        task.source or None,
    )
