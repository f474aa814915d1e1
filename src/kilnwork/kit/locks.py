"""A lock (flock(2)) on a file that contains the pid of the lock's owner, so that only one process
at a time has it.

Used by the owners of directories: the embedded server, the journal, drivers, ponds, and the node's
shims. The kernel releases the lock when the process ends, even if it is killed. The file stays,
since removing it would let two processes hold a lock.
"""

import contextlib
import fcntl
import os
from pathlib import Path


class OwnerLock:
    """A lock on a file. Programs that are started do not inherit it; for forks see `forget`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def take(self) -> bool:
        """Take the lock; return False if another process has it (see `read_owner`). Does nothing if
        this object already holds the lock.
        """
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
        """Release the lock and empty its file; repeatable."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            self.forget()

    def forget(self) -> None:
        """Close this process's descriptor of the lock; after a fork the other process keeps the
        lock.
        """
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_owner(path: Path) -> int | None:
    """Return the pid in a lock file, or None if it contains none.

    The pid does not tell whether the lock is held.
    """
    with contextlib.suppress(OSError):
        text = path.read_text(errors="replace").strip()
        return int(text) if text.isdecimal() else None
    return None


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock on a file at this moment."""
    with contextlib.suppress(FileNotFoundError), path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
