"""What is read of the journal: a run as one row, and the view of it that others get. Pure.

Used by the hub, `queries`, `restore` and `volatile`. The order of columns is that of the view
`task_facts` (`sql/003_calls.sql`).
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.kit import ids

_decode_spec: msgspec.json.Decoder[api_task.TaskSpec] = msgspec.json.Decoder(api_task.TaskSpec)
_ID_BYTES = 16
_DIGEST_BYTES = 32


class _Function(msgspec.Struct):
    function: str = ""


class _Called(msgspec.Struct):
    """As much of a spec as tells what is called: the rest need not be read for a list."""

    call: _Function | None = None


_decode_called = msgspec.json.Decoder(_Called).decode


def _called(spec: bytes) -> str:
    try:
        call = _decode_called(spec).call
    except msgspec.MsgspecError:
        return ""
    return "" if call is None else call.function


class TaskRow(NamedTuple):
    """A run as the journal has it, with the facts of its newest worker and its template's spec."""

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
    released: int
    template: int | None
    arguments_type: str | None
    arguments: bytes | None
    arguments_digest: bytes | None
    arguments_size: int | None
    arguments_blobs: bytes | None
    needs: bytes | None
    source: bytes | None
    delegate: ids.TaskId | None
    result_digest: bytes | None
    result_size: int | None
    result_blobs: bytes | None
    session: bytes | None
    worker_name: str | None
    pod_uid: str | None
    node: str | None

    @property
    def shown_name(self) -> str:
        """Its name, which is its id when it was given none."""
        return self.name or ids.task_text(self.task)

    @property
    def parent_ref(self) -> attempts.AttemptRef | None:
        """The newest attempt that asked for it."""
        if self.parent is None:
            return None
        return attempts.AttemptRef(self.parent, self.parent_run or 0, self.parent_attempt or 0)

    @property
    def payload(self) -> attempts.Payload | None:
        """Its result, or its error."""
        if self.media_type is None:
            return None
        return attempts.Payload(
            self.media_type,
            self.result or b"",
            self.result_digest,
            self.result_size or 0,
            _cut(self.result_blobs, _DIGEST_BYTES),
        )

    @property
    def argument_payload(self) -> attempts.Payload | None:
        """Arguments of a call."""
        if self.arguments_type is None:
            return None
        return attempts.Payload(
            self.arguments_type,
            self.arguments or b"",
            self.arguments_digest,
            self.arguments_size or 0,
            _cut(self.arguments_blobs, _DIGEST_BYTES),
        )

    @property
    def needed(self) -> tuple[ids.TaskId, ...]:
        """Tasks whose results it takes."""
        return tuple(ids.TaskId(task) for task in _cut(self.needs, _ID_BYTES))

    @property
    def value(self) -> calls.Value:
        """How it ended, for those that need it."""
        return calls.Value(
            self.task, api_task.State(self.state), self.reason, self.message, self.payload
        )

    def decoded_spec(self) -> api_task.TaskSpec:
        """Its spec; raises `msgspec.ValidationError` when another version wrote it."""
        return decode_spec(self.spec)


def decode_spec(spec: bytes) -> api_task.TaskSpec:
    """A spec of the journal; raises `msgspec.ValidationError` when another version wrote it."""
    return _decode_spec.decode(spec)


def _cut(packed: bytes | None, size: int) -> tuple[bytes, ...]:
    """Values of one size that were written one after the other."""
    if not packed:
        return ()
    return tuple(packed[at : at + size] for at in range(0, len(packed), size))


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
        function=_called(row.spec),
        seq=seq,
    )
