"""The store of a volatile dispatcher, which ends with its driver: tasks in the process's memory.

Used by `python -m kilnwork.dispatch --volatile`. Keeps the records themselves while they may still
change, so that a batch costs next to nothing, and a short form of finished calls; rows and views
are made on request. It keeps the newest finished tasks up to a number of bytes, and every child
that an unfinished parent may look up. Does not import SQLite.
"""

import heapq
import operator
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.journal import port, row_reader, rows_to_write, task_rows
from kilnwork.dispatch.machine import inputs, instructions, records
from kilnwork.kit import ids

KEEP_BYTES = 256 << 20
"""Maximum bytes of finished tasks that may still be read: half a million calls with small
results.
"""

OVERHEAD = 512
"""Estimated bytes that a finished call takes in memory in addition to its result, rounded up from
measurements. It is added a second time for a call whose arguments are kept.
"""


class _Ended(msgspec.Struct, frozen=True, gc=False):
    """The short form of a successful call that is no child and has no key, without times and
    worker.
    """

    row: int
    id: ids.TaskId
    run: int
    namespace: str
    name: str
    template: records.Template
    state: api_task.State
    reason: str
    message: str
    attempt: int
    result: attempts.Payload | None
    others: tuple[object, ...]
    """The values of the fields `_OTHERS`."""


_DROPPED = frozenset((
    "created", "exit_code", "failures", "finished", "losses", "parent", "source", "started",
    "stopped", "suspended",
))  # fmt: skip
"""Names of the facts about a task that its short form does not have."""
_KEPT = operator.attrgetter(*_Ended.__struct_fields__[:-1])
"""Returns the fields of a record that are kept, in the order of `_Ended`."""
_OTHERS = tuple(
    name
    for name in model.TaskFacts.__struct_fields__
    if name not in _DROPPED and name not in _Ended.__struct_fields__
)
"""Names of all other facts about a task, which are kept too."""


class MemoryStore(row_reader.RowReader):
    """A `port.Store` in memory, which is also its own `port.Reader`.

    `keep_bytes`: as `KEEP_BYTES`.
    """

    def __init__(self, *, keep_bytes: int = KEEP_BYTES) -> None:
        self.epoch = 0
        self.trouble: str | None = None
        self.refused: str | None = None
        self._left = keep_bytes
        self._tasks: dict[ids.TaskId, records.Task] = {}
        self._ended: dict[ids.TaskId, _Ended] = {}
        self._order: deque[tuple[ids.TaskId, int]] = deque()
        self._wanted: dict[ids.TaskId, list[tuple[ids.TaskId, int]]] = {}
        self._keys: dict[tuple[str, str], records.Task] = {}
        self._children: dict[tuple[ids.TaskId, int], dict[str, records.Task]] = {}
        self._past: dict[int, list[records.PastAttempt]] = {}
        """Attempts that did not succeed, by row of their task."""
        self._outputs: dict[int, dict[int, bytes]] = {}
        """Outputs, by row of their task and number of the attempt."""
        self._workers: dict[int, records.Worker] = {}
        self._released: set[ids.TaskId] = set()
        self._cached: dict[tuple[str, bytes], tuple[ids.TaskId, float]] = {}
        self._cache_keys: dict[ids.TaskId, tuple[str, bytes]] = {}

    @property
    def reader(self) -> port.Reader:
        """Return this store, which reads itself."""
        return self

    def open(self, *, lease_s: float = 0.0) -> port.Opened:
        """Return an empty state, since no earlier process can have stored anything."""
        self.epoch = 1
        return port.Opened()

    def start(
        self, call_soon: port.CallSoon, *, on_failure: Callable[[BaseException], None]
    ) -> None:
        """Do nothing, since no write can fail."""

    def used_bytes(self) -> int:
        """Return 0, since nothing is on disk."""
        return 0

    def write(self, batch: instructions.Batch, done: Callable[[port.Written], None]) -> None:
        """Keep the records of a batch, and drop the oldest finished tasks."""
        for worker in batch.workers:
            self._workers[worker.row] = worker
        for past in batch.past:
            self._past.setdefault(past.task_row, []).append(past)
        for row, attempt, data in batch.outputs:
            self._outputs.setdefault(row, {})[attempt] = data
        for task in batch.dirty:
            # Only once: the record itself is kept, so later changes are visible without a write.
            if not task.stored:
                task.stored = task.state
                self._add(task)
        for parent, earlier, run in batch.taken_over:
            self._take_over(parent, earlier, run)
        # After `dirty`: a task may begin and end in one batch.
        for task in batch.finals:
            self._end(task)
        for namespace, key, reusable, finished in batch.cached:
            self._cached[namespace, key] = (reusable, finished)
            self._cache_keys[reusable] = (namespace, key)
        self._released.update(batch.released)
        for forgotten in batch.forgotten:
            self._drop(forgotten)
        # `_left` may stay below 0: children of unfinished parents are set aside, not dropped.
        while self._left < 0 and self._order:
            self._make_room()
        done(
            [
                task_rows.of_record(task)
                for task in batch.dirty
                if task.followed and rows_to_write.is_whole_view(task)
            ]
        )

    def close(self) -> None:
        """Do nothing, since there is nothing to close."""

    def task_row(self, task: ids.TaskId, *, run: int | None = None) -> task_rows.TaskRow | None:
        """Return the row of a task, as `row_reader` documents this and the methods below.

        Earlier runs are not kept.
        """
        found = self._tasks.get(task) or self._ended.get(task)
        if found is None or (run is not None and found.run != run):
            return None
        return _row(found)

    def named_row(self, namespace: str, name: str) -> task_rows.TaskRow | None:
        named = [one for one in self._all() if (one.namespace, one.name) == (namespace, name)]
        newest = max(named, key=lambda one: (_declared(one), one.row), default=None)
        return None if newest is None else _row(newest)

    def keyed_row(self, namespace: str, key: str) -> task_rows.TaskRow | None:
        found = self._keys.get((namespace, key))
        return None if found is None else _row(found)

    def child_row(self, parent: ids.TaskId, run: int, child_key: str) -> task_rows.TaskRow | None:
        found = self._children.get((parent, run), {}).get(child_key)
        return None if found is None else _row(found)

    def cached_result(self, namespace: str, key: bytes) -> inputs.CachedResult | None:
        task, finished = self._cached.get((namespace, key), (None, 0.0))
        value = None if task is None else self.values(namespace, (task,)).get(task)
        # It may have been dropped, or have run again since and failed.
        if value is None or value.state is not api_task.State.SUCCESS:
            return None
        return inputs.CachedResult(value.task, value.payload, finished)

    def child_states(self, parent: ids.TaskId, run: int) -> Iterator[tuple[str, int]]:
        family = self._children.get((parent, run), {})
        return ((child.state.value, 1) for child in family.values())

    def unfinished_children(self, parent: ids.TaskId, run: int) -> list[ids.TaskId]:
        family = self._children.get((parent, run), {})
        return [child.id for child in family.values() if not child.state.final]

    def failed_dependents(self, namespace: str) -> list[tuple[ids.TaskId, tuple[ids.TaskId, ...]]]:
        return [
            (task.id, task.needs)
            # A copy, because this is called in a thread while the loop changes the dict.
            for task in list(self._tasks.values())
            if task.needs and task.namespace == namespace and _has_failed(task)
        ]

    def past_attempts(self, row: task_rows.TaskRow) -> list[model.AttemptView]:
        return [self._attempt(row, past) for past in self._past.get(row.row, ())]

    def output(self, ref: attempts.AttemptRef) -> bytes | None:
        row = self.task_row(ref.task, run=ref.run)
        return None if row is None else self._outputs.get(row.row, {}).get(ref.attempt)

    def declared(self) -> Iterator[task_rows.TaskRow]:
        followed = (task for task in self._tasks.values() if task.declared)
        return (_row(task) for task in followed if task.id not in self._released)

    def page(
        self, namespace: str | None, wanted: model.TaskQuery, *, limit: int, below: int | None
    ) -> tuple[list[task_rows.TaskRow], int | None]:
        found = [
            one
            for one in self._all()
            if namespace in (None, one.namespace)
            and (below is None or one.row < below)
            and _is_wanted(one, wanted)
        ]
        shown = heapq.nlargest(limit, found, key=lambda one: one.row)
        more = shown[-1].row if len(found) > len(shown) else None
        return [_row(one) for one in shown], more

    def counts(self, namespace: str | None = None) -> list[model.TaskCount]:
        """Return how many tasks there are by function and state, by going through all tasks."""
        numbers = Counter(
            (one.namespace, _declared(one), rows_to_write.called(_spec(one)), one.state.value)
            for one in self._all()
            if namespace in (None, one.namespace)
        )
        return rows_to_write.task_counts(numbers.items())

    def stored_calls(self, lookups: inputs.Lookups) -> dict[int, inputs.StoredCall]:
        """Return the calls in a submission that exist already, without making rows.

        It must be fast, since calls are submitted in the meantime.
        """
        found: dict[int, records.Task | None] = {}
        for number, key in lookups.keys:
            found[number] = self._keys.get((lookups.namespace, key))
        for number, parent, run, key in lookups.children:
            found[number] = self._children.get((parent, run), {}).get(key)
        for number, task in lookups.calls:
            ended = self._ended.get(task)
            same = self._tasks.get(task) if ended is None else _record(ended)
            # As in `RowReader`: the very call that was sent before takes precedence.
            found[number] = same or found.get(number)
        return {
            number: self._call_of(task)
            for number, task in found.items()
            if task is not None and task.namespace == lookups.namespace
        }

    def _call_of(self, task: records.Task) -> inputs.StoredCall:
        known = inputs.StoredCall(_value(task), task.arguments, task.spec, _asked_by(task))
        if not _has_failed(task):
            return known
        newest = task if _asked_by(task) else self._tasks.get(task.id, task)
        return msgspec.structs.replace(
            known,
            value=_value(newest),
            run=newest.run,
            earlier=self.earlier(_row(newest)),
            source=newest.source,
        )

    def values(
        self, namespace: str | None, tasks: Iterable[ids.TaskId]
    ) -> dict[ids.TaskId, calls.Value]:
        """Return the ends of tasks, as `Reader.values`."""
        found = {}
        for task in tasks:
            ended = self._ended.get(task)
            if ended is not None:
                if namespace in (None, ended.namespace):
                    found[task] = _value(ended)
                continue
            record = self._tasks.get(task)
            if record is not None and record.state.final and namespace in (None, record.namespace):
                found[task] = _value(record)
        return found

    def old_runs(self, *, before: float, above: int, limit: int) -> list[model.OldRun]:
        """Return an empty list, since old tasks are dropped without a prune."""
        return []

    def blobs_of(self, tasks: Iterable[ids.TaskId]) -> set[tuple[str, bytes]]:
        """Return an empty set, since no task is pruned."""
        return set()

    def referenced(self, digests: Sequence[bytes]) -> set[bytes]:
        """Return the blobs among `digests` to which a task refers, by going through all tasks."""
        used = set[bytes]()
        templates = set[records.Template]()
        # As in `failed_dependents`: this is called in a thread.
        for task in list(self._tasks.values()):
            _use(used, task.arguments)
            _use(used, task.result)
            if task.template is not None:
                templates.add(task.template)
        for ended in list(self._ended.values()):
            _use(used, ended.result)
            templates.add(ended.template)
        for template in templates:
            used.update(rows_to_write.shipped(template.spec))
        return used.intersection(digests)

    def select(self, name: str, *values: instructions.Value) -> list[tuple[Any, ...]]:
        raise NotImplementedError(f"{name}: a store in memory has no tables")

    def _all(self) -> "list[records.Task | _Ended]":
        return [*self._tasks.values(), *self._ended.values()]

    def _attempt(self, row: task_rows.TaskRow, past: records.PastAttempt) -> model.AttemptView:
        worker = self._workers.get(past.worker_row or 0)
        return model.AttemptView(
            ref=attempts.AttemptRef(row.task, row.run, past.attempt),
            worker="" if worker is None else worker.name,
            node="" if worker is None else worker.node,
            ending=attempts.Ending(past.ending),
            reason=past.reason,
            message=past.message,
            exit_code=past.exit_code,
            reserved=past.reserved,
            started=past.started,
            finished=past.finished,
            usage=task_rows.usage(past.cpu_seconds, past.peak_bytes),
        )

    def _add(self, task: records.Task) -> None:
        self._tasks[task.id] = task
        # A run after a success: views show the newest run of the task.
        if self._ended:
            self._ended.pop(task.id, None)
        if task.child_key is None:
            return
        if task.parent is None:
            self._keys[task.namespace, task.child_key] = task
        else:
            family = self._children.setdefault((task.parent.task, task.parent.run), {})
            family[task.child_key] = task

    def _end(self, task: records.Task) -> None:
        """Count a finished run against the limit; keep only the short form of a successful call."""
        template, result = task.template, task.result
        size = OVERHEAD if result is None else OVERHEAD + len(result.data)
        # Otherwise the task may have to run again.
        ended_well = task.state is api_task.State.SUCCESS
        if ended_well and template is not None and task.child_key is None and not task.declared:
            del self._tasks[task.id]
            values: tuple[Any, ...] = (*_KEPT(task), tuple([getattr(task, n) for n in _OTHERS]))
            self._ended[task.id] = _Ended(*values)
        elif task.arguments is not None:
            size += OVERHEAD + len(task.arguments.data) + task.values_bytes
        self._order.append((task.id, size))
        self._left -= size
        # Its children were set aside until now.
        if self._wanted:
            self._order += self._wanted.pop(task.id, ())

    def _take_over(self, parent: ids.TaskId, earlier: int, run: int) -> None:
        """Move the children of an earlier run of `parent` to the run `run`."""
        family = self._children.pop((parent, earlier), {})
        for child in family.values():
            # `families.take_over` has given unfinished children their new parent already.
            if child.parent is None or child.parent.run == earlier:
                child.parent = attempts.AttemptRef(parent, run, 0)
        self._children[parent, run] = family | self._children.get((parent, run), {})

    def _make_room(self) -> None:
        """Drop the oldest finished tasks; a child is kept until its parent has finished."""
        task, size = entry = self._order.popleft()
        # None: a call in its short form, or one that was dropped.
        record = self._tasks.get(task)
        if record is not None and record.parent is not None:
            parent = self._tasks.get(record.parent.task)
            if parent is not None and not parent.state.final:
                self._wanted.setdefault(parent.id, []).append(entry)
                return
        self._left += size
        if record is None or record.state.final:  # otherwise a later run of it goes on
            self._drop(task)

    def _drop(self, task: ids.TaskId) -> None:
        cached = self._cache_keys.pop(task, None)
        if cached is not None:
            found = self._cached.get(cached)
            # A newer success may have taken the key, and may have been dropped.
            if found is not None and found[0] == task:
                del self._cached[cached]
        ended = self._ended.pop(task, None)
        if ended is not None and self._past:
            self._past.pop(ended.row, None)
        dropped = self._tasks.pop(task, None)
        if dropped is None:
            return
        self._past.pop(dropped.row, None)
        self._outputs.pop(dropped.row, None)
        self._released.discard(task)
        self._children.pop((task, dropped.run), None)
        key = dropped.child_key
        if key is None:
            return
        if dropped.parent is None:
            if self._keys.get((dropped.namespace, key)) is dropped:
                del self._keys[dropped.namespace, key]
            return
        family = self._children.get((dropped.parent.task, dropped.parent.run))
        # Another child may have taken the key since.
        if family is not None and family.get(key) is dropped:
            del family[key]


def _declared(task: "records.Task | _Ended") -> bool:
    return isinstance(task, records.Task) and task.declared


def _spec(task: "records.Task | _Ended") -> api_task.TaskSpec:
    return task.spec if isinstance(task, records.Task) else task.template.spec


def _is_wanted(task: "records.Task | _Ended", wanted: model.TaskQuery) -> bool:
    called, parent = _spec(task).call, task.parent if isinstance(task, records.Task) else None
    return (
        wanted.state in (None, task.state)
        and wanted.declared in (None, _declared(task))
        and wanted.parent in (None, None if parent is None else parent.task)
        and wanted.function in (None, None if called is None else called.function)
    )


def _row(found: "records.Task | _Ended") -> task_rows.TaskRow:
    return task_rows.of_record(found if isinstance(found, records.Task) else _record(found))


def _has_failed(task: records.Task) -> bool:
    return task.state.final and task.state is not api_task.State.SUCCESS


def _asked_by(task: records.Task) -> int:
    return 0 if task.parent is None else task.parent.attempt


def _value(task: "records.Task | _Ended") -> calls.Value:
    return calls.Value(task.id, task.state, task.reason, task.message, task.result)


def _use(used: set[bytes], payload: attempts.Payload | None) -> None:
    if payload is not None:
        used.update(payload.digests)


def _record(ended: _Ended) -> records.Task:
    """Return a partial record of a finished call, made from its short form."""
    template = ended.template
    kept: dict[str, Any] = dict(zip(_OTHERS, ended.others, strict=True))
    kept |= zip(_Ended.__struct_fields__[:-1], _KEPT(ended), strict=True)
    return records.Task(
        cluster=template.cluster,
        declared=False,
        spec=template.spec,
        stopped=True,
        **kept,
    )
