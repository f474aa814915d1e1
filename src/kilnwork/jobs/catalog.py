"""The catalog of file jobs: SQLite, one writing connection on a thread of its own, group commits.

Used by the service: it hands over one batch at a time and is told on its loop when that is on disk;
what gathers meanwhile is the next batch, so that thousands of new jobs share one sync. Reads are
points and short ranges over a second connection, on the loop. An OS lock on a file beside it keeps
other processes out. Holds no decisions: those are in `plan`.
"""

import asyncio
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from kilnwork.dispatch.journal.sqlite import committer, connections, statements
from kilnwork.jobs import errors, rows
from kilnwork.kit import emptied, locks

_FOLDER = resources.files("kilnwork.jobs") / "sql"
_SQL = statements.parse((_FOLDER / "queries.sql").read_text("utf-8"))
MIGRATIONS = tuple(
    entry.read_text("utf-8")
    for entry in sorted(_FOLDER.iterdir(), key=lambda entry: entry.name)
    if re.match(r"^\d{3}_.*\.sql$", entry.name)
)
"""Number n (from 1) brings a catalog from version n - 1 to n (`PRAGMA user_version`)."""

Values = list[tuple[rows.Value, ...]]

_MANY = {
    name: connections.Repeated(_SQL[name])
    for name in ("insert_job", "insert_input", "update_job", "put_part")
}
"""Written many rows at a step: between two steps the loop's thread may keep the interpreter."""


@dataclass(slots=True)
class Batch:
    """One transaction. `redriven`: jobs of which parts that have not succeeded are open again;
    `stored`: jobs whose input is in the store; `freed`: whose key is free again; `deleted`: of
    which nothing is left."""

    jobs: Values = field(default_factory=list)
    inputs: Values = field(default_factory=list)
    redriven: Values = field(default_factory=list)
    updates: Values = field(default_factory=list)
    parts: Values = field(default_factory=list)
    stored: Values = field(default_factory=list)
    freed: Values = field(default_factory=list)
    deleted: Values = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(
            self.jobs or self.updates or self.parts or self.deleted or self.redriven or self.stored
        )

    def statements(self) -> Iterator[tuple[str, Values]]:
        """In order: what is new goes before what refers to it."""
        yield "insert_job", self.jobs
        yield "insert_input", self.inputs
        yield "open_parts", self.redriven
        yield "update_job", self.updates
        yield "put_part", self.parts
        yield "forget_inline", self.stored
        yield "forget_key", self.freed
        yield "delete_parts", self.deleted
        yield "delete_input", self.deleted
        yield "delete_job", self.deleted


class Expired(NamedTuple):
    """A job whose time to live is over by the wall clock, in which its times are."""

    row: int
    uuid: bytes
    finished: float
    expires: float


class Catalog:
    """One catalog file and its lock. `retry_s`: between tries of a commit that the disk refused."""

    def __init__(self, path: Path, *, retry_s: float = 1.0) -> None:
        self.path = path
        self._retry_s = retry_s
        self._lock = locks.OwnerLock(path.with_suffix(".lock"))
        self._writer: apsw.Connection | None = None
        self._committer: committer.Committer | None = None
        self._reader: apsw.Connection | None = None
        self._reading = False

    @property
    def trouble(self) -> str | None:
        """Why the disk takes nothing at the moment, None when all is well."""
        return None if self._committer is None else self._committer.trouble

    @property
    def refused(self) -> str | None:
        """Why the disk has refused what is being written, None while it has not: asked for every
        new job, therefore without a look at the disk."""
        return None if self._committer is None else self._committer.refused

    def open(self) -> bool:
        """Lock and migrate; True if there was no catalog before. Raises `CatalogLocked`,
        `CatalogUnreadable`."""
        self._take_lock()
        try:
            emptied.check(self.path)
            return self._open()
        except (apsw.Error, emptied.Emptied) as error:
            self.close()
            raise errors.CatalogUnreadable(
                f"{self.path} cannot be read ({error}); nothing was deleted. Put a backup in its "
                f"place, or move {self.path.name}* elsewhere and start again: jobs are then found "
                "by their files, but for those that had not started"
            ) from error
        except BaseException:
            self.close()
            raise

    def _open(self) -> bool:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._writer = connection = apsw.Connection(str(self.path))
        connection.set_busy_timeout(5000)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        self._committer = committer.Committer(connection, self.path, retry_s=self._retry_s)
        version = int(connection.pragma("user_version"))
        if version > len(MIGRATIONS):
            raise errors.CatalogUnreadable(
                f"{self.path} has version {version}, this kilnwork knows {len(MIGRATIONS)}: "
                "use the newer kilnwork, or another folder"
            )
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            with connections.transaction(connection) as cursor:
                cursor.execute(script)
                cursor.execute(f"PRAGMA user_version = {number}")
        emptied.mark(self.path)
        self._reader = connections.reading(self.path)
        return version == 0

    def start(self, tell: committer.Told, *, on_failure: Callable[[BaseException], None]) -> None:
        """Start the writer thread. `tell`: runs a callable on the owner's loop."""
        self._opened.start(tell, on_failure=on_failure)

    def write(self, batch: Batch, done: Callable[[], None]) -> None:
        """Write one transaction; `done` is told when it is on disk. Hand over one at a time."""

        def told() -> None:
            self._end_reading()  # who reads after this sees it
            done()

        self._end_reading()  # else the log could not begin anew
        self._opened.put(functools.partial(self._commit, batch), told)

    @property
    def _opened(self) -> committer.Committer:
        if self._committer is None:
            raise errors.JobsStopped("the catalog is closed")
        return self._committer

    def write_now(self, batch: Batch, *, journal: int | None = None) -> None:
        """Write one transaction before the writer thread starts. `journal`: the one used now."""
        self._commit(batch, journal=journal)

    def close(self) -> None:
        """Finish what was handed over, then let go of file and lock; repeatable."""
        if self._committer is not None:
            self._committer.close()
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = self._committer = None
        self._lock.release()

    def companion(self) -> int:
        """Epoch of the journal that was used last; 0 for none."""
        return int(self._rows("read_companion", ())[0][0])

    def next_row(self) -> int:
        """Of the next job."""
        return int(self._rows("next_row", ())[0][0])

    def job(self, how: str, *values: rows.Value) -> rows.JobRow | None:
        """One job; `how`: `uuid`, `id`, `name` (namespace, name) or `key`."""
        for found in self._rows(f"job_by_{how}", values):
            return rows.JobRow._make(found)
        return None

    def keys(self) -> Iterator[tuple[str, str, str]]:
        """Namespace, user and text of all idempotency keys that have made a job."""
        if self._reader is None:
            raise errors.JobsStopped
        return self._reader.execute(_SQL["keys"])

    def jobs(self, how: str, *values: rows.Value) -> list[rows.JobRow]:
        """Some jobs; `how`: `jobs`, `jobs_in_phase`, `jobs_of_name`, each with `_everywhere` behind
        it for all namespaces; `unfinished`."""
        return [rows.JobRow._make(found) for found in self._rows(how, values)]

    def phases(self) -> list[tuple[str, str, int]]:
        """Namespace, phase, and how many jobs are in it."""
        return self._rows("phases", ())

    def ends(self, above: int, limit: int) -> list[tuple[int, bytes, float | None]]:
        """Row, UUID and end of jobs, oldest first."""
        return self._rows("ends", (above, limit))

    def expired(self, at: float, after: Expired | None, limit: int) -> list[Expired]:
        """Jobs whose time to live is over at a time of the wall clock, in that order."""
        place = (0.0, 0) if after is None else (after.expires, after.row)
        return [Expired(*found) for found in self._rows("expired", (at, *place, limit))]

    def blobs(self) -> list[tuple[str, bytes]]:
        """Namespace, and digests of what mappers need of a job that may still be run."""
        return self._rows("blobs", ())

    def manifest(self, row: int) -> bytes:
        """Of a job, encoded."""
        return bytes(self._rows("manifest", (row,))[0][0])

    def inline(self, row: int) -> bytes | None:
        """A small input that may not be in the store yet."""
        for (found,) in self._rows("inline", (row,)):
            return None if found is None else bytes(found)
        return None

    def parts(self, row: int, first: int, last: int) -> list[rows.PartRow]:
        """Of parts that have a row."""
        return [rows.PartRow._make(found) for found in self._rows("parts", (row, first, last))]

    def states(self, row: int) -> list[tuple[int, int, int]]:
        """Number, run, state of all parts that have a row."""
        return self._rows("states", (row,))

    def _rows(self, name: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """All at once. Reads in one turn of the loop share a transaction, since to begin one takes
        longer than to look a row up; it is over before the next turn."""
        if self._reader is None:
            raise errors.JobsStopped
        if not self._reading and self._opened.started:
            self._reader.execute("BEGIN")
            self._reading = True
            asyncio.get_running_loop().call_soon(self._end_reading)
        return self._reader.execute(_SQL[name], values).fetchall()

    def _end_reading(self) -> None:
        if self._reading and self._reader is not None:
            self._reader.execute("COMMIT")
        self._reading = False

    def _take_lock(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self._lock.take():
            holder = locks.holder(self._lock.path) or "unknown"
            raise errors.CatalogLocked(
                f"{self.path} is in use by process {holder}; end that one, or use another folder"
            )

    def _commit(self, batch: Batch, *, journal: int | None = None) -> None:
        if self._writer is None:
            raise errors.JobsStopped("the catalog is closed")
        with connections.transaction(self._writer) as cursor:
            for name, values in batch.statements():
                if name in _MANY:
                    _MANY[name].run(cursor, list(itertools.chain.from_iterable(values)))
                elif values:
                    cursor.executemany(_SQL[name], values)
            if journal is not None:
                cursor.execute(_SQL["set_companion"], (journal,))
