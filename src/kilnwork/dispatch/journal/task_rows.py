"""Declares the stored form of a task: each run is one row, from which its view is made.

Does no I/O. Used by the hub and by the other modules of `journal`. `TaskRow` is the declaration:
statements, the row of a record and the record of a row follow from its fields
(`row_codec_generator`). A new field of a task is a field of the record (`machine.records.Task`, or
`model.TaskFacts` if callers see it), a field of `TaskRow`, and a migration that adds the column.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable
from typing import Annotated, Any, NamedTuple

import msgspec

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.journal import row_codec_generator
from kilnwork.dispatch.machine import records
from kilnwork.kit import ids

Value = str | int | float | bytes | None
"""A value of a column."""

_decode_spec: msgspec.json.Decoder[api_task.TaskSpec] = msgspec.json.Decoder(api_task.TaskSpec)
_ID_BYTES = 16
_DIGEST_BYTES = 32


class _Function(msgspec.Struct):
    function: str = ""


class _Called(msgspec.Struct):
    """The part of a spec that names the function of a call, so that lists need not decode the
    rest.
    """

    call: _Function | None = None


_decode_called = msgspec.json.Decoder(_Called).decode


def _called(spec: bytes) -> str:
    try:
        call = _decode_called(spec).call
    except msgspec.MsgspecError:
        return ""
    return "" if call is None else call.function


_C = row_codec_generator.Column
SPEC = "CASE WHEN t.template IS NULL THEN t.spec ELSE p.spec END"
"""SQL expression for the spec of a task: its own, or that of its template."""


def _part(field: str, of: str, **how: Any) -> row_codec_generator.Column:
    """Return one column of a record's field that is stored in several columns.

    All these columns are null if the field is None. `of`: a field of its value, or an expression in
    which `{}` is the value.
    """
    value = of.format(field) if "{}" in of else f"{field}.{of}"
    return _C(f"None if {field} is None else {value}", **how)


_BLOBS = 'b"".join({}.blobs) or None'
_worker = functools.partial(_part, "worker", stored=False)
_parent = functools.partial(_part, "parent")
_arguments = functools.partial(_part, "arguments", calls_only=True)
_usage = functools.partial(_part, "usage", changes=True, new_call=None, unchanged="")
_result = functools.partial(_part, "result", changes=True, new_call=None, unchanged="")


class TaskRow(NamedTuple):
    """A run of a task as stored in the journal, with the fields of its newest worker and its
    template's spec.

    A field that has the name of a field of the record, and a type that SQL has, needs no `Column`
    unless its value changes.
    """

    row: int
    task: Annotated[ids.TaskId, _C("task.id")]
    run: Annotated[int, _C(restored=True)]
    namespace: Annotated[str, _C(restored=False)]
    name: Annotated[
        str | None,
        _C(
            # The length first: it spares most tasks the text of their id.
            "task.name if task.name and (task.declared or len(task.name) != TEXT_LENGTH"
            " or task.name != task_text(task.id)) else None",
            restored=False,
        ),
    ]
    """The name; None: the id is the name."""
    cluster: Annotated[str, _C("task.cluster.key[1]")]
    declared: Annotated[int, _C(read="bool(row.declared)", restored=False, new_call=0)]
    spec: Annotated[bytes, _C("encode(task.spec)", new_call=b"", select=SPEC)]
    inputs: Annotated[bytes | None, _C(restored=False, new_call=None)]
    digest: Annotated[bytes | None, _C(new_call=None)]
    parent: Annotated[ids.TaskId | None, _parent("task")]
    parent_run: Annotated[int | None, _parent("run")]
    parent_attempt: Annotated[
        int | None,
        _parent("attempt", changes=True, unchanged="(parent is None or parent.attempt == 1)"),
    ]
    """The newest attempt of the parent that requested the task."""
    child_key: str | None
    created: float
    state: Annotated[str, _C(read="State(row.state)", restored=False, changes=True, unchanged="")]
    reason: Annotated[str, _C(changes=True, unchanged="")]
    message: Annotated[str, _C(changes=True, unchanged="")]
    attempt: Annotated[int, _C(changes=True, unchanged="task.attempt == 1")]
    attempt_state: Annotated[str | None, _C(restored=False, changes=True, unchanged="")]
    failures: Annotated[int, _C(changes=True, new_call=0, unchanged="")]
    losses: Annotated[int, _C(changes=True, new_call=0, unchanged="")]
    excused: Annotated[int, _C(changes=True, new_call=0, unchanged="")]
    unstarted: Annotated[int, _C(changes=True, new_call=None, unchanged="task.attempt == 1")]
    worker: Annotated[
        int | None, _C("None if worker is None else worker.row", changes=True, unchanged="")
    ]
    reserved: Annotated[float | None, _C(changes=True, unchanged="")]
    attempt_started: Annotated[float | None, _C(changes=True, new_call=None, unchanged="")]
    started: Annotated[float | None, _C(changes=True, new_call=None, unchanged="")]
    finished: Annotated[float | None, _C(restored=False, changes=True, new_call=None, unchanged="")]
    exit_code: Annotated[int | None, _C(changes=True, new_call=None)]
    cpu_seconds: Annotated[float | None, _usage("cpu_s")]
    peak_bytes: Annotated[int | None, _usage("peak_bytes")]
    media_type: Annotated[str | None, _result("media_type")]
    result: Annotated[bytes | None, _result("data")]
    stopped: Annotated[
        int | None,
        _C(
            read="None if row.stopped is None else bool(row.stopped)",
            changes=True,
            new_call=None,
            unchanged="",
        ),
    ]
    due: Annotated[float, _C(restored=False, changes=True, new_call=0.0, unchanged="")]
    suspended: Annotated[
        int,
        _C(
            read="bool(row.suspended)",
            changes=True,
            new_call=None,
            unchanged="not task.suspended and not task.resumptions",
        ),
    ]
    pending_since: Annotated[
        float | None,
        _C(
            "None if task.pending_since == task.created else task.pending_since",
            read="row.created if row.pending_since is None else row.pending_since",
            restored=True,
            changes=True,
            unchanged="",
        ),
    ]
    """Wall time; None: `created`. It changes when a suspended task is resumed."""
    placed: Annotated[str, _C(changes=True, new_call=None)]
    handover: Annotated[bytes | None, _C(changes=True, new_call=None)]
    released: Annotated[int, _C("0", stored=False)]
    """1 once its object is deleted."""
    template: Annotated[
        int | None, _C("template.row if task.has_template_spec else None", calls_only=True)
    ]
    """Row of the template; None: the task has a spec of its own."""
    arguments_type: Annotated[str | None, _arguments("media_type")]
    arguments: Annotated[
        bytes | None,
        _arguments(
            "data",
            read="row.argument_payload",
            restored=True,
            select="coalesce(t.arguments, a.data)",
        ),
    ]
    arguments_digest: Annotated[bytes | None, _arguments("digest")]
    arguments_size: Annotated[int | None, _arguments("size or None")]
    arguments_blobs: Annotated[bytes | None, _arguments(_BLOBS)]
    needs: Annotated[
        bytes | None,
        _C('b"".join(task.needs) or None', read="row.needed", restored=True, calls_only=True),
    ]
    source: Annotated[
        bytes | None, _C("task.source or None", read='row.source or b""', restored=True)
    ]
    delegate: Annotated[ids.TaskId | None, _C(changes=True, new_call=None)]
    result_digest: Annotated[
        bytes | None,
        _result("digest", unchanged="(result is None or not (result.digest or result.blobs))"),
    ]
    result_size: Annotated[int | None, _result("size or None")]
    result_blobs: Annotated[bytes | None, _result(_BLOBS)]
    session: Annotated[bytes | None, _worker("session", select="w.session")]
    worker_name: Annotated[str | None, _worker("name", select="w.name")]
    pod_uid: Annotated[str | None, _worker("pod_uid", select="w.pod_uid")]
    node: Annotated[str | None, _worker("node", select="w.node")]

    @property
    def shown_name(self) -> str:
        """Return the name of the task, or its id if it was given no name."""
        return self.name or ids.task_text(self.task)

    @property
    def parent_ref(self) -> attempts.AttemptRef | None:
        """Return the newest attempt that requested the task, or None if it has no parent."""
        if self.parent is None:
            return None
        return attempts.AttemptRef(self.parent, self.parent_run or 0, self.parent_attempt or 0)

    @property
    def payload(self) -> attempts.Payload | None:
        """Return the result of the run, or its error."""
        return payload_of(
            self.media_type, self.result, self.result_digest, self.result_size, self.result_blobs
        )

    @property
    def usage(self) -> attempts.Usage | None:
        """Return the CPU time and memory that the newest attempt has used, or None if unknown."""
        return usage(self.cpu_seconds, self.peak_bytes)

    @property
    def argument_payload(self) -> attempts.Payload | None:
        """Return the arguments of a call, or None for any other task."""
        return payload_of(
            self.arguments_type,
            self.arguments,
            self.arguments_digest,
            self.arguments_size,
            self.arguments_blobs,
        )

    @property
    def needed(self) -> tuple[ids.TaskId, ...]:
        """Return the tasks whose results this task takes."""
        return tasks(self.needs)

    @property
    def value(self) -> calls.Value:
        """Return the outcome of the finished run, with its result or error, for the tasks that take
        the result.
        """
        return calls.Value(
            self.task, api_task.State(self.state), self.reason, self.message, self.payload
        )

    def decoded_spec(self) -> api_task.TaskSpec:
        """Return the spec of the run. Raises `msgspec.ValidationError` if another version wrote
        it.
        """
        return decode_spec(self.spec)


def decode_spec(spec: bytes) -> api_task.TaskSpec:
    """Decode a spec from the journal.

    Raises `msgspec.ValidationError` if another version of kilnwork wrote it.
    """
    return _decode_spec.decode(spec)


def usage(cpu_seconds: float | None, peak_bytes: int | None) -> attempts.Usage | None:
    """Return the usage of an attempt from its two columns, or None."""
    return None if cpu_seconds is None else attempts.Usage(cpu_seconds, peak_bytes)


def payload_of(
    media_type: str | None,
    data: bytes | None,
    digest: bytes | None,
    size: int | None,
    blobs: bytes | None,
) -> attempts.Payload | None:
    """Return the payload that is stored in these columns, or None if there is no media type."""
    if media_type is None:
        return None
    blobs_of = _cut(blobs, _DIGEST_BYTES)
    return attempts.Payload(media_type, data or b"", digest, size or 0, blobs_of)


def tasks(packed: bytes | None) -> tuple[ids.TaskId, ...]:
    """Return the ids of tasks that are stored one after the other in one value."""
    return tuple(ids.TaskId(task) for task in _cut(packed, _ID_BYTES))


def _cut(packed: bytes | None, size: int) -> tuple[bytes, ...]:
    """Split a value that consists of parts of one size."""
    if not packed:
        return ()
    return tuple(packed[at : at + size] for at in range(0, len(packed), size))


_FAILED = (api_task.State.FAILED.value, api_task.State.KILLED.value)


def counts(states: Iterable[tuple[str, int]]) -> api_task.ChildCounts:
    """Return the sums of children by state, as the parent's status shows them."""
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
    """Return the view of a run, from its row and the counts of its children."""
    view: model.TaskView = _view(
        row,
        name=row.shown_name,
        worker=row.worker_name or "",
        node=row.node or row.placed,
        result=row.payload,
        children=children,
        progress=None,
        parent=row.parent_ref,
        usage=row.usage,
        function=_called(row.spec),
        seq=seq,
    )
    return view


MAX_ROW_ARGUMENTS = 100
"""Maximum bytes of arguments that are in the row of a new call. Longer ones have a row of their
own, in `argument`: the row of the task is written three times, each time with its whole page.
"""


def _of_new_call(column: row_codec_generator.Column) -> row_codec_generator.Column:
    if column.name != "arguments":
        return column
    value = (
        "None if arguments is None or len(arguments.data) > MAX_ROW_ARGUMENTS else arguments.data"
    )
    return dataclasses.replace(column, value=value)


COLUMNS = row_codec_generator.columns(TaskRow)
STORED = tuple(column for column in COLUMNS if column.stored)
OWN_SPEC = tuple(column for column in STORED if not column.calls_only)
CHANGING = tuple(column for column in STORED if column.changes)
_CHANGED = (*CHANGING, *row_codec_generator.pick(COLUMNS, "row"))
NEW_CALL = tuple(_of_new_call(column) for column in STORED if column.new_call is ...)
CALL_CONSTANTS = tuple(column for column in STORED if column.new_call not in (..., None))
RESERVED = row_codec_generator.pick(COLUMNS, "row reason worker reserved")
"""Columns that the first reservation of a call changes, besides those that are the same for all
calls.
"""
FINISHED = row_codec_generator.pick(
    COLUMNS,
    "row reason message attempt_started started finished cpu_seconds peak_bytes media_type result",
)
"""Columns that a call changes when it succeeds, besides those that are the same for all calls."""

_SCOPE = {
    "MAX_ROW_ARGUMENTS": MAX_ROW_ARGUMENTS,
    "State": api_task.State,
    "encode": msgspec.json.Encoder().encode,
    "TEXT_LENGTH": len(ids.task_text(ids.TaskId(bytes(_ID_BYTES)))),
    "task_text": ids.task_text,
}
_GIVEN = (
    "usage",
    "name",
    "worker",
    "node",
    "result",
    "children",
    "progress",
    "parent",
    "function",
    "seq",
)

_Encode = Callable[[records.Task], tuple[Value, ...]]
values: _Encode = row_codec_generator.encoder(OWN_SPEC, _SCOPE)
changed_values: _Encode = row_codec_generator.encoder(_CHANGED, _SCOPE)
new_call_values: _Encode = row_codec_generator.encoder(NEW_CALL, _SCOPE)
reserved_values: _Encode = row_codec_generator.encoder(RESERVED, _SCOPE)
finished_values: _Encode = row_codec_generator.encoder(FINISHED, _SCOPE)
unchanged: Callable[[records.Task], bool] = row_codec_generator.unchanged_check(
    CHANGING, records.Task, _SCOPE
)
"""Returns whether the statements for reserved and finished calls write all values that can have
changed.
"""
restore: Callable[[records.Task, TaskRow], None] = row_codec_generator.restorer(COLUMNS, _SCOPE)
"""Sets the fields of a record whose columns are `restored`; the caller sets the others, such as the
state.
"""
of_record: Callable[[records.Task], TaskRow] = row_codec_generator.row_maker(
    TaskRow, COLUMNS, _SCOPE
)
"""Returns the row of a record, as the journal would read it."""
_Part = Callable[[TaskRow], tuple[Value, ...]]
values_of_row: _Part = operator.itemgetter(*map(COLUMNS.index, OWN_SPEC))
"""Returns for a row what `values` returns for a record."""
changed_values_of_row: _Part = operator.itemgetter(*map(COLUMNS.index, _CHANGED))
"""Returns for a row what `changed_values` returns for a record."""
_view = row_codec_generator.viewer(COLUMNS, model.TaskView, _GIVEN, _SCOPE)
