"""The store of a dispatcher that ends with its driver: the memory of this process.

Used by `python -m kilnwork.dispatch --volatile`. Keeps the records themselves while they may still
change, so that a batch costs next to nothing, and a short form of calls that are over; rows and
views are made when somebody asks. The newest of what is over are kept, up to so many bytes, and
whatever an unfinished parent may look for. Imports no SQLite.
"""

import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.journal import port, rows, task_rows
from kilnwork.dispatch.machine import inputs, instructions, records
from kilnwork.kit import ids

KEEP_BYTES = 256 << 20
"""What is over and may still be asked for: half a million calls with small results."""

OVERHEAD = 512
"""Bytes that a call which is over takes beside its values, a little more than measured."""


class _Ended(msgspec.Struct, frozen=True, gc=False):
    """What is left of a call that is over, was nobody's child and had no key: neither times nor
    worker."""

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
    """Values of `_OTHERS`."""


_DROPPED = frozenset((
    "created", "exit_code", "failures", "finished", "losses", "parent", "started", "stopped",
    "suspended",
))  # fmt: skip
"""What is shown of a task and is not left."""
_KEPT = operator.attrgetter(*_Ended.__struct_fields__[:-1])
"""The fields of a record that are left, in that order."""
_OTHERS = tuple(
    name
    for name in model.TaskFacts.__struct_fields__
    if name not in _DROPPED and name not in _Ended.__struct_fields__
)
"""Whatever else is shown of a task is left too."""


class MemoryStore:
    """A `port.Store`, and its own `port.Reader`. `keep_bytes`: see `KEEP_BYTES`."""

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

    @property
    def reader(self) -> port.Reader:
        """Itself."""
        return self

    def open(self, *, lease_s: float = 0.0) -> port.Opened:
        """Nothing is there yet."""
        self.epoch = 1
        return port.Opened()

    def start(self, tell: port.Told, *, on_failure: Callable[[BaseException], None]) -> None:
        """Nothing can fail."""

    def write(self, batch: instructions.Batch, done: Callable[[], None]) -> None:
        """Keep the records of a batch, and let go of the oldest that are over."""
        for task in batch.dirty:
            if not task.stored:
                task.stored = True
                self._add(task)
        for task in batch.finals:
            self._end(task)
        for forgotten in batch.forgotten:
            self._drop(forgotten)
        while self._left < 0 and self._order:
            self._make_room()
        done()

    def close(self) -> None:
        """Nothing is left open."""

    def task_row(self, task: ids.TaskId, *, run: int | None = None) -> task_rows.TaskRow | None:
        """The newest run of a task; older ones are not kept."""
        found = self._tasks.get(task) or self._ended.get(task)
        if found is None or (run is not None and found.run != run):
            return None
        record = found if isinstance(found, records.Task) else _record(found)
        return task_rows.of_record(record)

    def view(self, row: task_rows.TaskRow, *, seq: int = 0) -> model.TaskView:
        """The view of a row, with its children counted."""
        family = self._children.get((row.task, row.run), {})
        counted = task_rows.counts((child.state.value, 1) for child in family.values())
        return task_rows.view(row, counted, seq=seq)

    def declared(self) -> Iterator[task_rows.TaskRow]:
        """The newest run of every declared task."""
        return (task_rows.of_record(task) for task in self._tasks.values() if task.declared)

    def child(self, parent: ids.TaskId, run: int, child_key: str) -> inputs.Found | None:
        """The newest child of that key."""
        task = self._children.get((parent, run), {}).get(child_key)
        if task is None:
            return None
        return inputs.Found(task.id, task.digest or b"", _asked_by(task))

    def known(self, asked: inputs.Lookups) -> dict[int, inputs.Known]:
        """By number of the call, those that are over and kept."""
        found: dict[int, records.Task | None] = {}
        for number, key in asked.keys:
            found[number] = self._keys.get((asked.namespace, key))
        for number, parent, run, key in asked.children:
            found[number] = self._children.get((parent, run), {}).get(key)
        for number, task in asked.calls:
            ended = self._ended.get(task)
            same = self._tasks.get(task) if ended is None else _record(ended)
            found[number] = same or found.get(number)
        return {
            number: inputs.Known(_value(task), task.arguments, task.spec, _asked_by(task))
            for number, task in found.items()
            if task is not None and task.namespace == asked.namespace
        }

    def values(
        self, namespace: str | None, tasks: Iterable[ids.TaskId]
    ) -> dict[ids.TaskId, calls.Value]:
        """How tasks of that namespace (None: any) ended; those that have not are left out."""
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

    def aged(self, *, before: float, above: int, limit: int) -> list[tuple[int, ids.TaskId, bool]]:
        """Nothing: what is old goes by itself."""
        return []

    def referenced(self, digests: Sequence[bytes]) -> set[bytes]:
        """Which of these blobs some task refers to; a look at all of them."""
        used = set[bytes]()
        templates = set[records.Template]()
        for task in list(self._tasks.values()):
            _use(used, task.arguments)
            _use(used, task.result)
            if task.template is not None:
                templates.add(task.template)
        for ended in list(self._ended.values()):
            _use(used, ended.result)
            templates.add(ended.template)
        for template in templates:
            used.update(rows.shipped(template.spec))
        return used.intersection(digests)

    def select(self, name: str, *values: instructions.Value) -> list[tuple[Any, ...]]:
        """Tables of participants need a journal."""
        raise NotImplementedError(f"{name}: a store in memory has no tables")

    def _add(self, task: records.Task) -> None:
        self._tasks[task.id] = task
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
        """It will not change any more: keep as little as can still be asked for."""
        template, result = task.template, task.result
        size = OVERHEAD if result is None else OVERHEAD + len(result.data)
        if template is not None and task.child_key is None and not task.declared:
            del self._tasks[task.id]
            values: tuple[Any, ...] = (*_KEPT(task), tuple([getattr(task, n) for n in _OTHERS]))
            self._ended[task.id] = _Ended(*values)
        elif task.arguments is not None:
            size += OVERHEAD + len(task.arguments.data)
        self._order.append((task.id, size))
        self._left -= size
        if self._wanted:
            self._order += self._wanted.pop(task.id, ())

    def _make_room(self) -> None:
        """Forget the oldest that is over; a child whose parent goes on waits for the end of it."""
        task, size = entry = self._order.popleft()
        record = self._tasks.get(task)
        if record is not None and record.parent is not None:
            parent = self._tasks.get(record.parent.task)
            if parent is not None and not parent.state.final:
                self._wanted.setdefault(parent.id, []).append(entry)
                return
        self._left += size
        if record is None or record.state.final:  # else a later run of it goes on
            self._drop(task)

    def _drop(self, task: ids.TaskId) -> None:
        self._ended.pop(task, None)
        dropped = self._tasks.pop(task, None)
        if dropped is None:
            return
        self._children.pop((task, dropped.run), None)
        key = dropped.child_key
        if key is None:
            return
        if dropped.parent is None:
            if self._keys.get((dropped.namespace, key)) is dropped:
                del self._keys[dropped.namespace, key]
            return
        family = self._children.get((dropped.parent.task, dropped.parent.run))
        if family is not None and family.get(key) is dropped:
            del family[key]


def _asked_by(task: records.Task) -> int:
    return 0 if task.parent is None else task.parent.attempt


def _value(task: "records.Task | _Ended") -> calls.Value:
    return calls.Value(task.id, task.state, task.reason, task.message, task.result)


def _use(used: set[bytes], payload: attempts.Payload | None) -> None:
    if payload is not None:
        used.update(payload.digests)


def _record(ended: _Ended) -> records.Task:
    """As much of a record as is known of a call that is over."""
    template = ended.template
    kept: dict[str, Any] = dict(zip(_OTHERS, ended.others, strict=True))
    kept |= zip(_Ended.__struct_fields__[:-1], _KEPT(ended), strict=True)
    return records.Task(
        row=0,
        cluster=template.cluster,
        declared=False,
        spec=template.spec,
        stopped=True,
        **kept,
    )
