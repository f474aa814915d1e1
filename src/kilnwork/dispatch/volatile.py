"""The store of a dispatcher that ends with its driver: the memory of this process.

Used by `python -m kilnwork.dispatch --volatile`. Keeps the records themselves, so that a batch
costs next to nothing; rows and views are made of them when somebody asks. Of what has ended the
newest `KEEP` are kept, and whatever its parent may look for. Imports no SQLite.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from kilnwork.api import calls
from kilnwork.dispatch import inputs, instructions, model, records, store, task_rows
from kilnwork.kit import ids

KEEP = 100_000
"""Tasks that are over and may still be asked for: about a hundred megabytes with small values."""

_encode = msgspec.json.Encoder().encode


class Volatile:
    """A `store.Store`, and its own `store.Reader`. `keep`: see `KEEP`."""

    def __init__(self, *, keep: int = KEEP) -> None:
        self.epoch = 0
        self.trouble: str | None = None
        self._keep = keep
        self._tasks: dict[ids.TaskId, records.Task] = {}
        self._over: deque[records.Task] = deque()
        self._wanted: dict[ids.TaskId, list[records.Task]] = {}
        self._keys: dict[tuple[str, str], records.Task] = {}
        self._children: dict[tuple[ids.TaskId, int], dict[str, records.Task]] = {}

    @property
    def reader(self) -> store.Reader:
        """Itself."""
        return self

    def open(self) -> store.Opened:
        """Nothing is there yet."""
        self.epoch = 1
        return store.Opened()

    def start(self, tell: store.Told, *, on_failure: Callable[[BaseException], None]) -> None:
        """Nothing can fail."""

    def write(self, batch: instructions.Batch, done: Callable[[], None]) -> None:
        """Keep the records of a batch, and let go of the oldest that are over."""
        for task in batch.dirty:
            if not task.stored:
                task.stored = True
                self._add(task)
        self._over += batch.finals
        if self._wanted:
            for task in batch.finals:
                self._over += self._wanted.pop(task.id, ())
        for forgotten in batch.forgotten:
            self._drop(forgotten)
        self._make_room()
        done()

    def close(self) -> None:
        """Nothing is left open."""

    def task_row(self, task: ids.TaskId, *, run: int | None = None) -> task_rows.TaskRow | None:
        """The newest run of a task; older ones are not kept."""
        found = self._tasks.get(task)
        if found is None or (run is not None and found.run != run):
            return None
        return _row(found)

    def view(self, row: task_rows.TaskRow, *, seq: int = 0) -> model.TaskView:
        """The view of a row, with its children counted."""
        family = self._children.get((row.task, row.run), {})
        counted = task_rows.counts((child.state.value, 1) for child in family.values())
        return task_rows.view(row, counted, seq=seq)

    def declared(self) -> Iterator[task_rows.TaskRow]:
        """The newest run of every declared task."""
        return (_row(task) for task in self._tasks.values() if task.declared)

    def child(self, parent: ids.TaskId, run: int, child_key: str) -> inputs.Found | None:
        """The newest child of that key."""
        task = self._children.get((parent, run), {}).get(child_key)
        if task is None:
            return None
        return inputs.Found(task.id, task.digest or b"", _asked_by(task))

    def known(self, asked: inputs.Lookups) -> dict[int, inputs.Known]:
        """By number of the call, those that are over and kept."""
        found = {}
        for number, key in asked.keys:
            found[number] = self._keys.get((asked.namespace, key))
        for number, parent, run, key in asked.children:
            found[number] = self._children.get((parent, run), {}).get(key)
        for number, task in asked.calls:
            found[number] = self._tasks.get(task) or found.get(number)
        return {
            number: _known(task)
            for number, task in found.items()
            if task is not None and task.namespace == asked.namespace
        }

    def values(
        self, namespace: str | None, tasks: Iterable[ids.TaskId]
    ) -> dict[ids.TaskId, calls.Value]:
        """How tasks of that namespace (None: any) ended; those that have not are left out."""
        found = [self._tasks[task] for task in tasks if task in self._tasks]
        return {
            task.id: _value(task)
            for task in found
            if task.state.final and namespace in (None, task.namespace)
        }

    def aged(self, *, before: float, above: int, limit: int) -> list[tuple[int, ids.TaskId, bool]]:
        """Nothing: what is old goes by itself."""
        return []

    def referenced(self, namespace: str, digests: Sequence[bytes]) -> set[bytes]:
        """Which of these blobs some task refers to; a look at all of them."""
        wanted, used = set(digests), set[bytes]()
        for task in list(self._tasks.values()):
            for payload in (task.arguments, task.result):
                if payload is not None and (payload.digest or payload.blobs):
                    used.update(payload.blobs)
                    used.add(payload.digest or b"")
            call = task.spec.call
            if call is not None:
                used.update(_shipped(call.code), _shipped(call.environment))
        return wanted & used

    def _add(self, task: records.Task) -> None:
        self._tasks[task.id] = task
        if task.child_key is None:
            return
        if task.parent is None:
            self._keys[task.namespace, task.child_key] = task
        else:
            family = self._children.setdefault((task.parent.task, task.parent.run), {})
            family[task.child_key] = task

    def _make_room(self) -> None:
        """Forget the oldest that are over; children whose parent may run again wait for its end."""
        over, tasks = self._over, self._tasks
        for _ in range(len(over) - self._keep):
            task = over.popleft()
            if task.parent is not None:
                parent = tasks.get(task.parent.task)
                if parent is not None and not parent.state.final:
                    self._wanted.setdefault(parent.id, []).append(task)
                    continue
            if tasks.get(task.id) is task:
                self._drop(task.id)

    def _drop(self, task: ids.TaskId) -> None:
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


def _value(task: records.Task) -> calls.Value:
    return calls.Value(task.id, task.state, task.reason, task.message, task.result)


def _known(task: records.Task) -> inputs.Known:
    return inputs.Known(_value(task), task.arguments, task.spec, _asked_by(task))


def _shipped(digest: str | None) -> tuple[bytes, ...]:
    kind, _, hexadecimal = (digest or "").partition(":")
    try:
        return (bytes.fromhex(hexadecimal),) if kind == "sha256" else ()
    except ValueError:
        return ()


def _row(task: records.Task) -> task_rows.TaskRow:
    """A record as a journal would show it."""
    worker, parent = task.worker, task.parent
    arguments, result = task.arguments, task.result
    return task_rows.TaskRow(
        row=task.row,
        task=task.id,
        run=task.run,
        namespace=task.namespace,
        name=task.name or None,
        cluster=task.cluster.key[1],
        declared=int(task.declared),
        spec=_encode(task.spec),
        inputs=task.inputs,
        digest=task.digest,
        parent=None if parent is None else parent.task,
        parent_run=None if parent is None else parent.run,
        parent_attempt=None if parent is None else parent.attempt,
        child_key=task.child_key,
        created=task.created,
        state=task.state.value,
        reason=task.reason,
        message=task.message,
        attempt=task.attempt,
        attempt_state=task.attempt_state,
        failures=task.failures,
        losses=task.losses,
        excused=task.excused,
        worker=None if worker is None else worker.row,
        reserved=task.reserved,
        attempt_started=task.attempt_started,
        started=task.started,
        finished=task.finished,
        exit_code=task.exit_code,
        media_type=None if result is None else result.media_type,
        result=None if result is None else result.data,
        stopped=None if task.stopped is None else int(task.stopped),
        due=task.due,
        suspended=int(task.suspended),
        pending_since=task.pending_since,
        released=0,
        template=None if task.template is None else task.template.row,
        arguments_type=None if arguments is None else arguments.media_type,
        arguments=None if arguments is None else arguments.data,
        arguments_digest=None if arguments is None else arguments.digest,
        arguments_size=None if arguments is None else arguments.size,
        arguments_blobs=None if arguments is None else b"".join(arguments.blobs),
        needs=b"".join(task.needs),
        source=task.source,
        delegate=task.delegate,
        result_digest=None if result is None else result.digest,
        result_size=None if result is None else result.size,
        result_blobs=None if result is None else b"".join(result.blobs),
        session=None if worker is None else worker.session,
        worker_name=None if worker is None else worker.name,
        pod_uid=None if worker is None else worker.pod_uid,
        node=None if worker is None else worker.node,
    )
