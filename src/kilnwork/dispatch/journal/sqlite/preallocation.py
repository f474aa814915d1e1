"""Room ahead in the write-ahead log of SQLite, so that a commit syncs what it wrote and no more.

Used by `committer`. A commit that makes the log longer has the file system write down the new
length as well, which takes as long again (fdatasync(2): "metadata needed to retrieve the data").
Zeros that are there before make it a file that is overwritten, as it is by itself once the log has
begun again. No reader sees them: frames count up to the first whose salt is not that of the header
(sqlite.org/walformat.html, section 4).
"""

import contextlib
import os
from pathlib import Path

PAGE_BYTES = 4096
FRAME_BYTES = PAGE_BYTES + 24
"""A page in the log, with what comes before it."""

STEP_BYTES = 1 << 20
"""Zeros at a time: a disk takes them in a millisecond, and some fifty small commits fit."""


class Preallocation:
    """The log of the database file `path`; only for the thread that writes there."""

    def __init__(self, path: Path) -> None:
        self._log = f"{path}-wal"
        self._end = 0

    def extend(self, pages: int) -> None:
        """The log has so many pages now. A full disk is noticed by the commit."""
        used = pages * FRAME_BYTES
        if used + STEP_BYTES // 2 <= self._end:
            return
        with contextlib.suppress(OSError):
            self._lengthen(used)

    def _lengthen(self, used: int) -> None:
        log = os.open(self._log, os.O_WRONLY | os.O_CLOEXEC)
        try:
            self._end = max(os.fstat(log).st_size, used)
            if used + STEP_BYTES // 2 > self._end:
                self._end += os.pwrite(log, bytes(STEP_BYTES), self._end)
        finally:
            os.close(log)


def free_space_problem(path: Path) -> str | None:
    """What is wrong with the room on the disk of a file, when its log cannot become longer."""
    found = os.statvfs(path.parent)
    if found.f_bavail * found.f_frsize >= STEP_BYTES:
        return None
    return f"its disk has less than {STEP_BYTES >> 20} MiB left"
