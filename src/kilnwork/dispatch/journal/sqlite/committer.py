"""A thread that commits to SQLite, one transaction at a time.

Used by the journal. The owner is called on its event loop when a transaction is on disk; the
changes that it has gathered meanwhile are the next transaction. Knows no table.

The write-ahead log must be copied into the file from time to time (a checkpoint), which takes tens
of milliseconds. Another thread does it while commits go on; only pages that were logged meanwhile
are copied between two commits, and then the log can start over (sqlite.org/wal.html, "Avoiding
Excessively Large WAL Files").

A commit that makes the log longer forces the file system to write the new length as well, which
takes as long again (fdatasync(2): "metadata needed to retrieve the data"). So the log is extended
with zeros in advance, which makes it a file that is overwritten, as it is anyway once it has
started over. No reader sees the zeros: frames count up to the first whose salt is not that of the
header (sqlite.org/walformat.html, section 4).
"""

import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import NamedTuple

import apsw

log = logging.getLogger(__name__)

LOG_PAGES = 4000
"""Number of pages (4 KiB) in the log at which it is copied."""

MAX_LOG_FACTOR = 16
"""Multiple of `LOG_PAGES` in the log at which commits wait until the log is copied: the disk no
longer keeps up.
"""

PAGE_BYTES = 4096
FRAME_BYTES = PAGE_BYTES + 24
"""Bytes of a page in the log, with the header that precedes it."""

STEP_BYTES = 1 << 20
"""Bytes of zeros that are written at a time: a disk takes them in a millisecond, and some fifty
small commits fit.
"""

_ZEROS = bytes(64 << 10)

CallSoon = Callable[[Callable[[], None]], object]
"""Runs a callable on the owner's loop."""


class _Work(NamedTuple):
    commit: Callable[[], None]
    done: Callable[[], None]


class Preallocation:
    """Extends the write-ahead log of the database file `path` in advance.

    Only for the thread that writes to that file.
    """

    def __init__(self, path: Path) -> None:
        self._log = f"{path}-wal"
        self._end = 0

    def extend(self, pages: int) -> None:
        """Extend the log beyond `pages`, its current length, if little room is left.

        Errors of a full disk are ignored here; the next commit reports them.
        """
        used = pages * FRAME_BYTES
        # Half a step ahead, so that few commits reach the end.
        if used + STEP_BYTES // 2 <= self._end:
            return
        with contextlib.suppress(OSError):
            self._lengthen(used)

    def _lengthen(self, used: int) -> None:
        log = os.open(self._log, os.O_WRONLY | os.O_CLOEXEC)
        try:
            # Asked each time, because a large commit makes the log longer by itself.
            self._end = max(os.fstat(log).st_size, used)
            if used + STEP_BYTES // 2 > self._end:
                self._end += os.pwritev(log, [_ZEROS] * (STEP_BYTES // len(_ZEROS)), self._end)
        finally:
            os.close(log)


def free_space_problem(path: Path) -> str | None:
    """Return the reason for which the log cannot become longer, such as a full disk, or None."""
    found = os.statvfs(path.parent)
    if found.f_bavail * found.f_frsize >= STEP_BYTES:
        return None
    return f"its disk has less than {STEP_BYTES >> 20} MiB left"


class Committer:
    """The thread that commits to the database file `path` over `connection`.

    `retry_s`: interval between tries of a commit that failed because of the disk. `log_pages`: as
    `LOG_PAGES`. `refused`: why the current commit fails, or None.
    """

    def __init__(
        self,
        connection: apsw.Connection,
        path: Path,
        *,
        retry_s: float,
        log_pages: int = LOG_PAGES,
    ) -> None:
        self.refused: str | None = None
        self._log_pages = log_pages
        self._connection, self._path, self._retry_s = connection, path, retry_s
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._copier = futures.ThreadPoolExecutor(1, thread_name_prefix=f"{path.stem}-log")
        self._copying: futures.Future[None] | None = None
        # Used by one thread at a time: SQLite calls the hook in the thread that commits.
        self._pages = 0
        self._preallocation = Preallocation(path)
        # In this order: SQLite implements automatic checkpoints as a hook, and setting either
        # replaces the other (sqlite.org/c3ref/wal_autocheckpoint.html).
        connection.wal_autocheckpoint(0)
        connection.set_wal_hook(self._logged)

    @property
    def trouble(self) -> str | None:
        """Return why no writes succeed now, or soon will not; None if they do."""
        return self.refused or free_space_problem(self._path)

    def start(self, call_soon: CallSoon, *, on_failure: Callable[[BaseException], None]) -> None:
        """Start the thread.

        `on_failure`: called, through `call_soon`, with an error after which retries are useless.
        """
        self._call_soon, self._on_failure = call_soon, on_failure
        self._thread = threading.Thread(target=self._write_all, name=self._path.stem, daemon=True)
        self._thread.start()

    @property
    def started(self) -> bool:
        """Return whether the thread was started."""
        return self._thread is not None

    def put(self, commit: Callable[[], None], done: Callable[[], None]) -> None:
        """Call `commit`, which is one transaction, in the thread, and `done` when that is on disk.

        Hand over the next transaction only after that.
        """
        self._work.put(_Work(commit, done))

    def close(self) -> None:
        """Finish the current commit; after that the connection can be closed. Idempotent."""
        # First: this ends the pause between two tries of a commit that the disk refuses.
        self._closing.set()
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None
        # Waits for a copy in progress: the owner's connection must be closed after it.
        self._copier.shutdown()

    def _write_all(self) -> None:
        try:
            while (work := self._work.get()) is not None:
                # `done` is never called for this batch, so none of its messages are sent.
                if not self._commit_with_retries(work.commit):
                    return
                # Before the checkpoint, so that the owner prepares the next batch meanwhile.
                if not self._call_owner(work.done):
                    return
                self._checkpoint()
        except Exception as error:  # noqa: BLE001 - handed to the owner, who ends its service
            failure = error
            self._call_owner(lambda: self._on_failure(failure))

    def _call_owner(self, callback: Callable[[], None]) -> bool:
        """Have `callback` called on the owner's loop. Returns False if the loop is closed."""
        try:
            self._call_soon(callback)
        # `call_soon_threadsafe` raises this for a closed loop. A commit may raise it as well.
        except RuntimeError:
            log.warning("the loop ended before its writer", extra={"file": self._path.name})
            return False
        return True

    def _commit_with_retries(self, commit: Callable[[], None]) -> bool:
        """Commit, and retry while the disk is full or fails.

        Returns False if the journal was closed before a commit succeeded.
        """
        while True:
            try:
                commit()
            # The transaction was rolled back as a whole, so it can be repeated as a whole.
            except (apsw.FullError, apsw.IOError) as error:
                self.refused = str(error)
                facts = {"file": self._path.name, "error": str(error)}
                log.warning("cannot be written", extra=facts)
                # This returns at once when the committer is to close; the batch is then not stored.
                if self._closing.wait(self._retry_s):
                    return False
                continue
            self.refused = None
            return True

    def _logged(self, _: apsw.Connection, __: str, pages: int) -> int:
        """Record the length of the log; SQLite calls this after each commit."""
        self._pages = pages
        self._preallocation.extend(pages)
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        copying = self._copying
        if copying is None:
            # Not more often: copying competes with commits for the disk.
            if self._pages >= self._log_pages:
                self._copying = self._copier.submit(self._copy_beside)
        elif copying.done():
            self._copying = None
            # An error that is not SQLite's is a bug: raised here, it ends the thread.
            copying.result()
            # Copy what was committed during that copy; when nothing is left to copy, SQLite starts
            # the log over.
            self._copy(self._connection)
        elif self._pages >= MAX_LOG_FACTOR * self._log_pages:
            # Otherwise the log would grow until the disk is full.
            futures.wait([copying])

    def _copy_beside(self) -> None:
        try:
            connection = apsw.Connection(str(self._path))
        except apsw.Error as error:
            self._log_not_copied(error)
            return
        try:
            self._copy(connection)
        finally:
            connection.close()

    def _copy(self, connection: apsw.Connection) -> None:
        """Copy the log into the file as far as readers allow.

        After an error the pages stay in the log, which is as durable.
        """
        try:
            # PASSIVE waits neither for readers nor for the writer.
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            self._log_not_copied(error)

    def _log_not_copied(self, error: apsw.Error) -> None:
        facts = {"file": self._path.name, "error": str(error)}
        log.warning("the log was not copied, which is tried again", extra=facts)
