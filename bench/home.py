"""A measured `kiln.start()`: its processes, its commits, and its journal read afterwards.

Used by `tasks.py`. Journal figures are read from the files, never through kilnwork.
"""

import contextlib
import os
import signal
import sqlite3
import struct
import tempfile
import time
from pathlib import Path
from typing import Any, Self

import machine

import kilnwork as kiln

MARK = "KILN_BENCH_MARK"


class Home:
    """A session with two slots on this machine; with a directory (`durable`) or without."""

    def __init__(self, scratch: Path | None, *, durable: bool, delay_s: float = 0.0) -> None:
        """Create a directory in `scratch`, which should be on the disk to be measured."""
        self._scratch = tempfile.TemporaryDirectory(prefix="kiln-bench.", dir=scratch)
        self.journal = Path(self._scratch.name) / "home" / "journal.db"
        self._mark = f"{Path(self._scratch.name).name}"
        os.environ[MARK] = self._mark
        os.environ["KILN_JOURNAL_SYNC_DELAY_S"] = str(delay_s)
        try:
            directory = str(self.journal.parent) if durable else None
            self._session = kiln.start(directory, slots=2)
        finally:
            del os.environ[MARK], os.environ["KILN_JOURNAL_SYNC_DELAY_S"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._scratch.cleanup()

    def processes(self) -> set[int]:
        """Return all live processes that it has started."""
        return machine.tree(os.getpid(), mark=f"{MARK}={self._mark}") - {os.getpid()}

    def commits(self) -> int:
        """Return the transactions so far: the change counter in the header of SQLite's WAL
        index.
        """
        with Path(f"{self.journal}-shm").open("rb") as index:
            return int(struct.unpack_from("=I", index.read(16), 8)[0])

    def end(self) -> None:
        """Close the session and SIGKILL the dispatcher, so that only the files are left to read."""
        ours = [pid for pid in self.processes() if self._is_ours(pid)]
        self._session.close()
        for pid in ours:
            if self._is_ours(pid):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while any(self._is_ours(pid) for pid in ours) and time.monotonic() < deadline:
            time.sleep(0.01)
        for pid in ours:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _is_ours(self, pid: int) -> bool:
        """Return whether this process lives and has the mark of this home."""
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False
        return state != "Z" and f"{MARK}={self._mark}".encode() in environment

    def rows(self) -> dict[str, Any]:
        """Return the journal's tasks once the dispatcher is gone; checks that it is intact and each
        task ended once.
        """
        database = sqlite3.connect(f"file:{self.journal}?mode=ro", uri=True)
        try:
            (whole,) = database.execute("PRAGMA integrity_check").fetchone()
            rows, tasks, first = database.execute(
                "SELECT count(*), count(DISTINCT task), coalesce(sum(attempt = 1), 0) FROM task"
                " WHERE state = 'Success' AND finished IS NOT NULL"
            ).fetchone()
            (other,) = database.execute(
                "SELECT count(*) FROM task WHERE state <> 'Success' OR finished IS NULL"
            ).fetchone()
        finally:
            database.close()
        return {"integrity": whole, "tasks": tasks, "rows": rows, "first": first, "other": other}
