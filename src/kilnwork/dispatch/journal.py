"""The journal: SQLite, one writing connection on a thread of its own, commits in groups.

Used by the hub: it hands over the rows of one batch at a time and is told on its own loop when they
are on disk; what gathers meanwhile is the next batch. Each opening raises the epoch; the epoch is
checked inside every transaction, so that a dispatcher that lost the journal can write nothing. An
OS lock on a file next to it keeps a second process out in the first place. Not for reading: that is
`queries`, over connections that cannot write.
"""

import fcntl
import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import apsw

from kilnwork.dispatch import errors, rows, statements

log = logging.getLogger(__name__)

_SQL = statements.QUERIES


@dataclass(frozen=True, slots=True)
class Opened:
    """What a dispatcher needs to know before it starts."""

    epoch: int
    next_task_row: int
    next_worker_row: int


@dataclass(frozen=True, slots=True)
class _Work:
    rows: rows.Rows
    done: Callable[[], None]


class Journal:
    """One journal file and its lock.

    `tell` runs a callable on the caller's loop (`loop.call_soon_threadsafe`); `on_failure` is
    called there when the journal cannot go on. `retry_s`: between tries of a commit that the disk
    refused, full or failing. `sync_delay_s` makes every commit slower, as a cloud
    disk would; for measuring only.
    """

    def __init__(self, path: Path, *, retry_s: float = 1.0, sync_delay_s: float = 0.0) -> None:
        self.path = path
        self.epoch = 0
        self.trouble: str | None = None
        self._lock_file = path.with_suffix(".lock")
        self._lock: int | None = None
        self._connection: apsw.Connection | None = None
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._retry_s = retry_s
        self._sync_delay_s = sync_delay_s
        self._tell: Callable[[Callable[[], None]], object] = lambda call: call()
        self._on_failure: Callable[[BaseException], None] = lambda error: None

    def open(self) -> Opened:
        """Lock, migrate, raise the epoch. Raises `JournalLocked` or `JournalUnreadable`."""
        self._take_lock()
        try:
            _make_private(self.path)
            with readable(self.path):
                self._connection = _connect(self.path)
                with _transaction(self._connection) as cursor:
                    cursor.execute(_SQL["raise_epoch"])
                    self.epoch = int(cursor.execute(_SQL["read_epoch"]).get)
                    task_row, worker_row = cursor.execute(_SQL["next_rows"]).get
        except BaseException:
            self.close()
            raise
        return Opened(self.epoch, task_row, worker_row)

    def start(
        self,
        tell: Callable[[Callable[[], None]], object],
        *,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Start the writer thread."""
        self._tell, self._on_failure = tell, on_failure
        self._thread = threading.Thread(target=self._write_all, name="journal", daemon=True)
        self._thread.start()

    def write(self, batch: rows.Rows, done: Callable[[], None]) -> None:
        """Write one transaction; `done` is told when it is on disk. Hand over one at a time."""
        self._work.put(_Work(batch, done))

    def close(self) -> None:
        """Finish what was handed over, then let go of file and lock; repeatable."""
        self._closing.set()
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_lock(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise errors.JournalLocked(
                f"{self.path} is in use by process {holder}; end that one, or use another folder"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._lock = descriptor

    def _write_all(self) -> None:
        try:
            while (work := self._work.get()) is not None:
                if not self._commit_stubbornly(work.rows):
                    return
                self._tell(work.done)
        except RuntimeError:
            log.warning("the loop ended before the journal did")
        except Exception as error:  # noqa: BLE001 - handed to the owner, who ends the dispatcher
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._tell(lambda: self._on_failure(error))

    def _commit_stubbornly(self, batch: rows.Rows) -> bool:
        """Commit; while the disk refuses, try again. False when closing before it could."""
        while True:
            try:
                self._commit(batch)
            except (apsw.FullError, apsw.IOError) as error:
                self.trouble = str(error)
                log.warning("journal cannot be written", extra={"error": str(error)})
                if self._closing.wait(self._retry_s):
                    return False
                continue
            self.trouble = None
            return True

    def _commit(self, batch: rows.Rows) -> None:
        if self._connection is None:
            raise errors.HubStopped("the journal is closed")
        with _transaction(self._connection) as cursor:
            epoch = cursor.execute(_SQL["read_epoch"]).get
            if epoch != self.epoch:
                raise errors.StaleEpoch(
                    f"the journal is at epoch {epoch}, this dispatcher is of epoch {self.epoch}"
                )
            if batch.workers:
                cursor.executemany(_SQL["insert_worker"], batch.workers)
            if batch.inserts:
                cursor.executemany(_SQL["insert_task"], batch.inserts)
            if batch.updates:
                cursor.executemany(_SQL["update_task"], batch.updates)
            if batch.past:
                cursor.executemany(_SQL["insert_past_attempt"], batch.past)
            if batch.released:
                cursor.executemany(_SQL["release_task"], batch.released)
            if batch.forgotten:
                cursor.executemany(_SQL["forget_attempts"], batch.forgotten)
                cursor.executemany(_SQL["forget_task"], batch.forgotten)
            if self._sync_delay_s:
                self._closing.wait(self._sync_delay_s)


@contextmanager
def _transaction(connection: apsw.Connection) -> Iterator[apsw.Cursor]:
    cursor = connection.cursor()
    cursor.execute("BEGIN IMMEDIATE")
    try:
        yield cursor
        cursor.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            cursor.execute("ROLLBACK")
        raise


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Whatever SQLite finds wrong with the file at `path` becomes `JournalUnreadable`."""
    try:
        yield
    except apsw.NotADBError as error:
        raise errors.JournalUnreadable(f"{path} is no journal of kilnwork") from error
    except apsw.CorruptError as error:
        raise errors.JournalUnreadable(
            f"{path} is damaged ({error}); nothing was deleted. Put a backup in its place, or move "
            f"{path.name}* elsewhere and start again: Task objects that are not over run anew, "
            "what tasks had spawned is lost"
        ) from error


def _make_private(path: Path) -> None:
    """The journal holds arguments and results: for its owner only, whatever the umask.

    SQLite gives the files beside it the same mode.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    for file in path.parent.glob(f"{path.name}*"):
        file.chmod(0o600)


def _connect(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    try:
        connection.set_busy_timeout(5000)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.pragma("wal_autocheckpoint", 4000)
        _migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: apsw.Connection, path: Path) -> None:
    """Bring the tables to the newest version; each step is one transaction."""
    version = int(connection.pragma("user_version"))
    if version > len(statements.MIGRATIONS):
        raise errors.JournalUnreadable(
            f"{path} has version {version}, this kilnwork knows {len(statements.MIGRATIONS)}: "
            "use the newer kilnwork, or another folder"
        )
    for number, script in enumerate(statements.MIGRATIONS[version:], start=version + 1):
        with _transaction(connection) as cursor:
            cursor.execute(script)
            cursor.execute(f"PRAGMA user_version = {number}")
