"""Rows of the journal: the SQL values that a batch writes. No I/O.

Used by `sqlite.journal`, which makes the rows of a batch on its owner's thread, since records
change afterwards. `memory_store` and `sqlite.queries` use some of the functions, such as the counts
of tasks. `task_rows` declares the columns of a task.

A call whose row is new, that is reserved for the first time, or that succeeds has a narrow
statement of its own: nearly every call needs only these three.

The number of tasks by function and state is stored too: this module gives the state changes of a
batch and their sums, which the journal writes in the same transaction. A task is counted by its
newest run, as lists show it.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from kilnwork.api import attempts, names
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.journal import task_rows
from kilnwork.dispatch.machine import instructions, records, transition_table
from kilnwork.kit import ids

Value = task_rows.Value
_encode = msgspec.json.Encoder().encode
# Used for each call: a member by way of its class takes ten times as long to look up.
_PENDING, _STAGING = api_task.State.PENDING, api_task.State.STAGING
_SUCCESS = api_task.State.SUCCESS
_RESERVED = transition_table.AttemptState.RESERVED
_NO_INTENT = records.Intent.NONE


CountKey = tuple[str, bool, str, str]
"""Namespace, whether the task is declared, the function that it calls ("": it is no call), and
state.
"""


class Move(NamedTuple):
    """A state change that a number of consecutive tasks in a batch have in common."""

    what: records.Template | str
    """The template of a call, or the name of its function ("": it is no call)."""
    declared: bool
    namespace: str
    before: str | None
    """The state before; None: the tasks are new."""
    after: str
    number: int

    @property
    def of_one(self) -> Iterator["Move"]:
        """Yield the state change of a single task, once for each of the tasks."""
        return itertools.repeat(self._replace(number=1), self.number)


@dataclass(slots=True)
class Rows:
    """The rows that one transaction writes, by statement.

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
    forgotten: list[Value] = field(default_factory=list)
    """Ids of the tasks to be deleted whose row numbers are not known."""
    dropped: list[int] = field(default_factory=list)
    """Row numbers of the tasks to be deleted whose rows are known."""
    writes: list[tuple[str, Iterable[instructions.Row]]] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    """The changes of state, from which the new counts of tasks are computed."""
    moved: list[int] = field(default_factory=list)
    """Row numbers of the tasks whose state changes, in the order of `moves`."""
    reruns: list[tuple[ids.TaskId, int, int]] = field(default_factory=list)
    """Tasks with a new run, its number and its row. The run before is not counted any more."""


def of_batch(batch: instructions.Batch) -> Rows:
    """Return the rows of a batch, from its records as they are now; sets `stored` of the
    records.
    """
    rows = Rows(
        workers=[_worker(worker) for worker in batch.workers],
        outputs=[value for output in batch.outputs for value in output],
        past=batch.past,
        cached=list(batch.cached),
        released=[(task,) for task in batch.released],
        taken_over=batch.taken_over,
        superseded=batch.superseded,
        forgotten=[task for task, row in batch.forgotten.items() if row is None],
        dropped=[row for row in batch.forgotten.values() if row is not None],
        writes=batch.writes,
    )
    for template in batch.templates:
        _add_template(rows, template)
    # Before the loop, which sets `stored`.
    rows.moves, rows.moved = state_moves(batch.dirty)
    for task in batch.dirty:
        of_call = task.template
        # The same as `Task.has_template_spec`, without its cost: nearly every task of a batch comes
        # here.
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
        # Before the commit: batches are written in order, and no batch follows one that fails.
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
    # Negative, because rows of tasks and of templates refer to blobs in one table.
    rows.blobs += [(digest, -template.row) for digest in shipped(template.spec)]


def shipped(spec: api_task.TaskSpec) -> Iterator[bytes]:
    """Yield the digests of the blobs with the function and the environment that calls of a spec
    need.
    """
    call = spec.call
    for name in () if call is None else (call.code, call.environment):
        if found := names.digest(name):
            yield found


def _use(rows: Rows, row: int, payload: attempts.Payload | None) -> None:
    """Record that a row needs the blobs that hold a payload or to which the payload refers."""
    if payload is None:
        return
    # The payload is a blob itself; `blobs` are those to which its value refers.
    if payload.digest is not None:
        rows.blobs.append((payload.digest, row))
    rows.blobs += [(digest, row) for digest in payload.blobs]


def _add_followed(rows: Rows, task: records.Task) -> None:
    """Add the whole row of a followed task; the statement uses a part of it."""
    row = task_rows.of_record(task)
    if task.stored:
        rows.updates.append(task_rows.changed_values_of_row(row))
    else:
        rows.inserts.append(task_rows.values_of_row(row))
    _use(rows, task.row, task.result)
    if is_whole_view(task):
        rows.followed.append(row)


def is_whole_view(task: records.Task) -> bool:
    """Return whether the view of a task needs only its row: it has no children and no losses, not
    even excused ones.
    """
    return task.family is None and not (task.losses or task.excused)


def _add_update(rows: Rows, task: records.Task) -> None:
    rows.updates.append(task_rows.changed_values(task))
    _use(rows, task.row, task.result)


def _add_call(rows: Rows, task: records.Task) -> None:
    """Add a call to the narrowest statement that covers all columns that can have changed."""
    state = task.state
    if task.stored is None:
        rows.calls += task_rows.new_call_values(task)
        arguments = task.arguments
        _use(rows, task.row, arguments)
        if arguments is not None and len(arguments.data) > task_rows.MAX_ROW_ARGUMENTS:
            rows.arguments += (task.row, arguments.data)
        # The narrow statement has no columns for an end, and a cached result ends at once.
        if state is not _PENDING and state is not _STAGING:
            _add_update(rows, task)
    # `unchanged`: a column that no narrow statement names would keep an old value.
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


def called(spec: api_task.TaskSpec) -> str:
    """Return the name of the function of a call, or "" for any other task."""
    return "" if spec.call is None else spec.call.function


def state_moves(tasks: Iterable[records.Task]) -> tuple[list[Move], list[int]]:
    """Return the state changes of a batch, in order, and the row numbers of the tasks that change.

    Equal changes of consecutive tasks are one `Move`, since most neighbours are calls of the same
    function with the same change.
    """
    found: list[Move] = []
    rows: list[int] = []
    what: records.Template | str = ""
    declared, namespace, number = False, "", 0
    before = after = None
    for task in tasks:
        stored, state = task.stored, task.state
        # A change that leaves the state unchanged changes no count.
        if stored is state:
            continue
        rows.append(task.row)
        template = task.template
        if (
            template is not what
            or stored is not before
            or state is not after
            or task.declared is not declared
            or task.namespace != namespace
        ):
            if after is not None:
                found.append(Move(what, declared, namespace, before, after, number))
            what = called(task.spec) if template is None else template
            declared, namespace, before, after = task.declared, task.namespace, stored, state
            number = 0
        number += 1
    if after is not None:
        found.append(Move(what, declared, namespace, before, after, number))
    return found, rows


def count_deltas(moved: Iterable[Move]) -> Counter[CountKey]:
    """Return the differences that state changes make to the stored counts of tasks."""
    changed = Counter[CountKey]()
    for what, declared, namespace, before, after, number in moved:
        function = what if isinstance(what, str) else called(what.spec)
        changed[namespace, declared, function, after] += number
        if before is not None:
            changed[namespace, declared, function, before] -= number
    return changed


def counts_of(found: Iterable[tuple[str, int, str, str, int]]) -> Counter[CountKey]:
    """Return counts of tasks from rows of the journal, each of which has a number of tasks."""
    counted = Counter[CountKey]()
    for namespace, declared, function, state, number in found:
        counted[namespace, bool(declared), function, state] += number
    return counted


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each run of consecutive numbers.

    `numbers` must be sorted.
    """
    found: list[tuple[int, int]] = []
    for number in numbers:
        first, last = found[-1] if found else (0, 0)
        # Tasks that end together were mostly submitted together, so there are few ranges.
        if found and number == last + 1:
            found[-1] = (first, number)
        else:
            found.append((number, number))
    return found


def task_counts(numbers: Iterable[tuple[CountKey, int]]) -> list[model.TaskCount]:
    """Return counts of tasks in the sorted form that callers get."""
    return sorted(
        (
            model.TaskCount(namespace, declared, function, api_task.State(state), number)
            for (namespace, declared, function, state), number in numbers
            if number
        ),
        key=lambda one: (one.namespace, one.declared, one.function, one.state),
    )
