"""One process at a time: a lock (flock(2)) on a file that holds the pid of its owner.

Used by whoever owns a directory: the embedded server, the journal, drivers.
The kernel gives the lock back when the process ends, however it does: the file of one that was
killed is no obstacle. It stays where it is, since removing it would let two in.
"""

import contextlib
import fcntl
import os
from pathlib import Path


class OwnerLock:
    """The lock of one file. Not inherited by programs that are started; see `forget` for forks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def take(self) -> bool:
        """Take it; False if somebody else has it, of whom `holder` tells. Repeatable."""
        if self._descriptor is not None:
            return True
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give it back, with a file that names nobody; repeatable."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            self.forget()

    def forget(self) -> None:
        """Close our descriptor; after a fork the lock stays with the other process."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def holder(path: Path) -> int | None:
    """The pid that a lock file names, None for none. Whether the lock is held it does not say."""
    with contextlib.suppress(OSError):
        text = path.read_text(errors="replace").strip()
        return int(text) if text.isdecimal() else None
    return None


def taken(path: Path) -> bool:
    """Whether a process has the lock of a file at this moment; another one cannot take it then."""
    with contextlib.suppress(FileNotFoundError), path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
