"""The durable copy of the store: one SQLite file, one thread, group commit.

Used by `store` only. The thread takes everything that waits, writes it in one transaction with
synchronous=FULL and then reports; so a write costs a share of one fsync, and what was reported
survives kill -9 and power loss. It reads only at start: the store reads from memory.

There is exactly one connection to the file, in one thread (the WAL-reset bug of SQLite before
3.51.3 needs two).
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

from kilnwork.controlplane import errors, objects
from kilnwork.kit import database_marker

log = logging.getLogger(__name__)

_MIGRATIONS = ("0001_objects.sql",)
_MAX_BATCH = 2000
_COMPACT_STEP = 500
"""Changes that may be overdue before they are deleted, so that not every commit has to."""


class Row(NamedTuple):
    """One write: the change, the bytes to keep (None: the object is gone), the log's new floor."""

    change: objects.Change
    body: bytes | None
    floor: int
    epoch: int


class Loaded(NamedTuple):
    """What the file held: every object, and the log, oldest first."""

    stored: list[objects.Stored]
    changes: list[objects.Change]


Committed = Callable[[Sequence[Row]], None]
"""Called in the writer thread after the commit, in order."""

Failed = Callable[[int, Exception], None]
"""Called in the writer thread: nothing of this epoch is written from now on."""


def _sql(name: str) -> str:
    return resources.files("kilnwork.controlplane").joinpath("sql", name).read_text()


def _queries() -> dict[str, str]:
    text = _sql("queries.sql")
    parts = re.split(r"^-- name: (\w+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


class Database:
    """The file behind a store: `start` reads it, `put` queues a write, `stop` closes it."""

    def __init__(self, path: Path, *, committed: Committed, failed: Failed) -> None:
        self._path = path
        self._committed = committed
        self._failed = failed
        self._queue: queue.SimpleQueue[Row | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[Loaded | Exception] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="control.db", daemon=True)
        self._queries = _queries()
        self._refused_epoch = -1
        self._floor = 0

    def start(self) -> Loaded:
        """Open or create the file and read it; raises StoreBroken. Blocks: some µs an object."""
        self._thread.start()
        loaded = self._ready.get()
        if isinstance(loaded, Exception):
            raise loaded
        return loaded

    def put(self, row: Row) -> None:
        """Queue a write. Writes are committed in this order."""
        self._queue.put(row)

    def stop(self) -> None:
        """Commit what is queued and close the file. Blocks."""
        if not self._thread.is_alive():
            return
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            connection = self._open()
            loaded = self._load(connection)
        except (apsw.Error, OSError, errors.StoreBroken, database_marker.ContentLost) as error:
            self._ready.put(self._explain(error))
            return
        self._ready.put(loaded)
        try:
            while self._work(connection):
                pass
        finally:
            connection.close()

    def _explain(self, error: Exception) -> errors.StoreBroken:
        if isinstance(error, errors.StoreBroken):
            return error
        text = f"cannot use the database {self._path}: {error}"
        if isinstance(error, (apsw.NotADBError, apsw.CorruptError, database_marker.ContentLost)):
            text += (
                "; nothing was deleted. Put a backup in its place, or move "
                f"{self._path.name}* elsewhere and start again, without any object"
            )
        broken = errors.StoreBroken(text)
        broken.__cause__ = error
        return broken

    def _open(self) -> apsw.Connection:
        database_marker.check_content(self._path)
        connection = apsw.Connection(str(self._path))
        connection.set_busy_timeout(2000)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        self._path.chmod(0o600)
        self._migrate(connection)
        database_marker.write_marker(self._path)
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
                connection.execute(f"PRAGMA user_version={number}")

    def _load(self, connection: apsw.Connection) -> Loaded:
        stored = [
            objects.Stored(objects.Key(resource, namespace, name), sequence, body)
            for resource, namespace, name, sequence, body in connection.execute(
                self._queries["load_objects"]
            )
        ]
        after = {s.key: s.raw for s in stored}
        changes = []
        for row in connection.execute(self._queries["load_changes"]):
            sequence, action, resource, namespace, name, previous = row
            key = objects.Key(resource, namespace, name)
            if action == objects.Action.DELETED:
                raw = objects.last_state(previous, sequence)
            else:
                raw = after[key]
            changes.append(objects.Change(sequence, objects.Action(action), key, raw, previous))
            after[key] = previous
        changes.reverse()
        return Loaded(stored, changes)

    def _work(self, connection: apsw.Connection) -> bool:
        """Commit one group; False when it was the last."""
        group, more = self._group()
        group = [row for row in group if row.epoch != self._refused_epoch]
        if not group:
            return more
        try:
            with connection:
                self._write(connection, group)
        except Exception as error:
            log.exception("store write failed", extra={"writes": len(group)})
            self._refused_epoch = group[0].epoch
            self._failed(self._refused_epoch, error)
            return more
        self._committed(group)
        return more

    def _group(self) -> tuple[list[Row], bool]:
        """Everything that waits, at least one; and whether more may come."""
        group: list[Row] = []
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

    def _write(self, connection: apsw.Connection, group: Sequence[Row]) -> None:
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


def _change_row(row: Row) -> tuple[Any, ...]:
    change = row.change
    return (change.sequence, str(change.action), *change.key, change.previous)


def _scalar(connection: apsw.Connection, statement: str) -> int:
    for (value,) in connection.execute(statement):
        return int(value)
    return 0
