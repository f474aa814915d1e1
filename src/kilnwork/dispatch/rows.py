"""Rows of the journal: records to SQL values and back. Pure.

Used by the hub, which makes the rows of a batch on its own thread (records change under it), and by
`queries` and `restoring`, which read them. The order of columns is that of `sql/queries.sql`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import instructions, model, records
from kilnwork.kit import ids

Value = str | int | float | bytes | None
_encode = msgspec.json.Encoder().encode
_decode_spec: msgspec.json.Decoder[api_task.TaskSpec] = msgspec.json.Decoder(api_task.TaskSpec)


@dataclass(slots=True)
class Rows:
    """What one transaction writes, by statement."""

    workers: list[tuple[Value, ...]] = field(default_factory=list)
    inserts: list[tuple[Value, ...]] = field(default_factory=list)
    updates: list[tuple[Value, ...]] = field(default_factory=list)
    past: list[records.PastAttempt] = field(default_factory=list)
    released: list[tuple[Value, ...]] = field(default_factory=list)
    forgotten: list[tuple[Value, ...]] = field(default_factory=list)


class TaskRow(NamedTuple):
    """A run as the journal has it, with the facts of its newest worker."""

    row: int
    task: ids.TaskId
    run: int
    namespace: str
    name: str | None
    cluster: str
    declared: int
    spec: bytes
    inputs: bytes | None
    digest: bytes | None
    parent: ids.TaskId | None
    parent_run: int | None
    parent_attempt: int | None
    child_key: str | None
    created: float
    state: str
    reason: str
    message: str
    attempt: int
    attempt_state: str | None
    failures: int
    losses: int
    excused: int
    worker: int | None
    reserved: float | None
    attempt_started: float | None
    started: float | None
    finished: float | None
    exit_code: int | None
    media_type: str | None
    result: bytes | None
    stopped: int | None
    due: float
    suspended: int
    pending_since: float | None
    session: bytes | None
    worker_name: str | None
    pod_uid: str | None
    node: str | None

    @property
    def shown_name(self) -> str:
        """Its name, which is its id when it was given none."""
        return ids.task_text(self.task) if self.name is None else self.name

    @property
    def parent_ref(self) -> attempts.AttemptRef | None:
        """The newest attempt that asked for it."""
        if self.parent is None:
            return None
        return attempts.AttemptRef(self.parent, self.parent_run or 0, self.parent_attempt or 0)

    @property
    def payload(self) -> attempts.Payload | None:
        """Its result."""
        if self.media_type is None:
            return None
        return attempts.Payload(self.media_type, self.result or b"")

    def decoded_spec(self) -> api_task.TaskSpec:
        """Its spec; raises `msgspec.ValidationError` when another version wrote it."""
        return _decode_spec.decode(self.spec)


def of_batch(batch: instructions.Batch) -> Rows:
    """The rows of a batch, as its records are now."""
    rows = Rows(
        past=batch.past,
        released=[(task,) for task in batch.released],
        forgotten=[(task,) for task in batch.forgotten],
    )
    for worker in batch.workers:
        namespace, cluster = worker.cluster.key
        rows.workers.append(
            (
                worker.row,
                worker.session,
                namespace,
                cluster,
                worker.name,
                worker.pod_uid,
                worker.node,
            )
        )
    inserts, updates = rows.inserts, rows.updates
    for task in batch.dirty:
        if task.stored:
            updates.append((*_mutable(task), task.row))
        else:
            inserts.append((*_mutable(task), *_fixed(task)))
            task.stored = True
    return rows


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
    )


_FAILED = (api_task.State.FAILED.value, api_task.State.KILLED.value)


def counts(states: Iterable[tuple[str, int]]) -> api_task.ChildCounts:
    """Children by state, summed as the status shows them."""
    total = succeeded = failed = 0
    for state, number in states:
        total += number
        if state == api_task.State.SUCCESS.value:
            succeeded += number
        elif state in _FAILED:
            failed += number
    return api_task.ChildCounts(
        total=total, running=total - succeeded - failed, succeeded=succeeded, failed=failed
    )


def view(row: TaskRow, children: api_task.ChildCounts, *, seq: int = 0) -> model.TaskView:
    """A run as others see it."""
    return model.TaskView(
        task=row.task,
        namespace=row.namespace,
        name=row.shown_name,
        cluster=row.cluster,
        declared=bool(row.declared),
        run=row.run,
        state=api_task.State(row.state),
        reason=row.reason,
        message=row.message,
        attempt=row.attempt,
        failures=row.failures,
        losses=row.losses,
        worker=row.worker_name or "",
        node=row.node or "",
        exit_code=row.exit_code,
        result=row.payload,
        created=row.created,
        started=row.started,
        finished=row.finished,
        stopped=None if row.stopped is None else bool(row.stopped),
        children=children,
        progress=None,
        parent=row.parent_ref,
        suspended=bool(row.suspended),
        seq=seq,
    )
