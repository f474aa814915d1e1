"""The durable copy of the store: one SQLite file, one thread, group commit.

Used only by `store`. The thread takes all queued writes, commits them in one transaction with
synchronous=FULL and then reports them. So each write costs a share of one fsync, and a reported
write survives kill -9 and power loss. The file is read only at start: the store serves reads from
memory.

Exactly one connection to the file exists, in one thread: the WAL-reset bug of SQLite before 3.51.3
needs two.
"""

import logging
import queue
import re
import threading
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from kilnwork.controlplane import errors, store_types
from kilnwork.kit import database_loss_check

log = logging.getLogger(__name__)

_MIGRATIONS = ("0001_objects.sql",)
_MAX_BATCH = 2000
_COMPACT_STEP = 500
"""How many outdated changes may pile up in the file before a commit deletes them: deleting at each
commit would cost more."""


class QueuedWrite(NamedTuple):
    """A write to the store that waits to be committed."""

    change: store_types.StoreChange
    body: bytes | None
    """The encoded object to store; None deletes it."""
    floor: int
    """Sequence number of the oldest change that the store keeps: older ones may be deleted."""
    epoch: int
    """Number of failed commits that the store knew of when it queued the write.

    After a failed commit all further writes of the same epoch are refused, since they may depend on
    writes that were lost.
    """


class Loaded(NamedTuple):
    """Content of the database file at start: every object, and the change log, oldest change
    first.
    """

    stored: list[store_types.Stored]
    changes: list[store_types.StoreChange]


Committed = Callable[[Sequence[QueuedWrite]], None]
"""Called in the writer thread after the commit, in order."""

Failed = Callable[[int, Exception], None]
"""Called in the writer thread when a commit failed: no further write of this epoch is accepted."""


def _sql(name: str) -> str:
    return resources.files("kilnwork.controlplane").joinpath("sql", name).read_text()


def _queries() -> dict[str, str]:
    text = _sql("queries.sql")
    parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


class Database:
    """The SQLite file behind a store: `start` reads it, `put` queues a write, `stop` closes it."""

    def __init__(self, path: Path, *, committed: Committed, failed: Failed) -> None:
        self._path = path
        self._committed = committed
        self._failed = failed
        self._queue: queue.SimpleQueue[QueuedWrite | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[Loaded | Exception] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="control.db", daemon=True)
        self._queries = _queries()
        self._refused_epoch = -1
        self._floor = 0

    def start(self) -> Loaded:
        """Open or create the file, start the writer thread and return the content of the file.

        Blocks for some µs per object. Raises StoreBroken.
        """
        self._thread.start()
        loaded = self._ready.get()
        if isinstance(loaded, Exception):
            raise loaded
        return loaded

    def put(self, row: QueuedWrite) -> None:
        """Queue a write. Writes are committed in the order in which they are queued."""
        self._queue.put(row)

    def stop(self) -> None:
        """Commit the queued writes and close the file. Blocks until both are done."""
        if not self._thread.is_alive():
            return
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            connection = self._open()
            loaded = self._load(connection)
        except Exception as error:  # noqa: BLE001 - `start` waits for it and raises it
            self._ready.put(self._explain(error))
            return
        self._ready.put(loaded)
        try:
            while self._commit_next_group(connection):
                pass
        finally:
            # The last connection to close moves the WAL into the file and removes it.
            connection.close()

    def _explain(self, error: Exception) -> errors.StoreBroken:
        if isinstance(error, errors.StoreBroken):
            return error
        text = f"cannot use the database {self._path}: {error}"
        damaged = isinstance(error, (apsw.NotADBError, apsw.CorruptError))
        # Any other error is ContentLost, or comes from a row that cannot be read.
        if damaged or not isinstance(error, (apsw.Error, OSError, MemoryError)):
            text += (
                "; nothing was deleted. Put a backup in its place, or move "
                f"{self._path.name}* elsewhere and start again, without any object"
            )
        broken = errors.StoreBroken(text)
        broken.__cause__ = error
        return broken

    def _open(self) -> apsw.Connection:
        database_loss_check.check_content(self._path)
        connection = apsw.Connection(str(self._path))
        connection.set_busy_timeout(2000)
        connection.execute("PRAGMA journal_mode=WAL")
        # In WAL mode, NORMAL could lose the last commits when the power fails.
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        self._path.chmod(0o600)
        self._migrate(connection)
        database_loss_check.write_marker(self._path)
        return connection

    def _migrate(self, connection: apsw.Connection) -> None:
        version = _scalar(connection, "PRAGMA user_version")
        if version > len(_MIGRATIONS):
            raise errors.StoreBroken(
                f"the database {self._path} was written by a newer kilnwork (schema {version}, "
                f"this one knows {len(_MIGRATIONS)}): use that version, or another data directory"
            )
        for number, name in enumerate(_MIGRATIONS[version:], start=version + 1):
            with connection:
                connection.execute(_sql(name))
                # In the transaction of the step: a crash leaves both done or neither.
                connection.execute(f"PRAGMA user_version={number}")

    def _load(self, connection: apsw.Connection) -> Loaded:
        stored = [
            store_types.Stored(store_types.Key(resource, namespace, name), sequence, body)
            for resource, namespace, name, sequence, body in connection.execute(
                self._queries["load_objects"]
            )
        ]
        # The log keeps only the state before each change; the state after it is the state before
        # the next one, so walk backwards from the current objects.
        after = {s.key: s.raw for s in stored}
        changes = []
        for row in connection.execute(self._queries["load_changes"]):
            sequence, action, resource, namespace, name, previous = row
            key = store_types.Key(resource, namespace, name)
            if action == store_types.Action.DELETED:
                raw = store_types.last_state(previous, sequence)
            else:
                raw = after[key]
            changes.append(
                store_types.StoreChange(sequence, store_types.Action(action), key, raw, previous)
            )
            after[key] = previous
        changes.reverse()
        return Loaded(stored, changes)

    def _commit_next_group(self, connection: apsw.Connection) -> bool:
        """Commit one group of writes. Return False after the last group."""
        group, more = self._take_group()
        # These were queued before the event loop learned of the failure.
        group = [row for row in group if row.epoch != self._refused_epoch]
        if not group:
            return more
        try:
            with connection:
                self._write(connection, group)
        except Exception as error:
            # Writes that are already queued may build on the failed ones: refuse the whole epoch.
            log.exception("store write failed", extra={"writes": len(group)})
            self._refused_epoch = group[0].epoch
            self._failed(self._refused_epoch, error)
            return more
        # Only now: nothing of it may be seen before it is on disk.
        self._committed(group)
        return more

    def _take_group(self) -> tuple[list[QueuedWrite], bool]:
        """Return all queued writes, at least one, and whether more may follow."""
        group: list[QueuedWrite] = []
        row = self._queue.get()
        while row is not None:
            group.append(row)
            if len(group) == _MAX_BATCH:
                return group, True
            try:
                row = self._queue.get_nowait()
            except queue.Empty:
                return group, True
        return group, False

    def _write(self, connection: apsw.Connection, group: Sequence[QueuedWrite]) -> None:
        put, remove = self._queries["put_object"], self._queries["remove_object"]
        connection.executemany(self._queries["add_change"], [_change_row(row) for row in group])
        for row in group:
            if row.body is None:
                connection.execute(remove, tuple(row.change.key))
            else:
                connection.execute(put, (*row.change.key, row.change.sequence, row.body))
        floor = group[-1].floor
        if floor >= self._floor + _COMPACT_STEP:
            connection.execute(self._queries["forget_changes"], (floor,))
            self._floor = floor


def _change_row(row: QueuedWrite) -> tuple[Any, ...]:
    change = row.change
    return (change.sequence, str(change.action), *change.key, change.previous)


def _scalar(connection: apsw.Connection, statement: str) -> int:
    for (value,) in connection.execute(statement):
        return int(value)
    return 0
