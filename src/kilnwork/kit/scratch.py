"""A private directory in the temporary one, for as long as a process lives, and not longer.

Used by workers (attempts, sockets) and by sessions over the network (what they have read). It
belongs to us alone (0700) and is locked: what a killed process left is removed by the next one that
makes a directory of the same prefix.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_LONGEST = 50
"""Of the path, so that Unix sockets fit in it (107 bytes, unix(7))."""

_LOCK = "lock"


class Scratch:
    """The directory `path`, until `close`. `wanted`: what it shall be called; nothing is there
    yet."""

    def __init__(self, prefix: str, wanted: Path | None = None) -> None:
        if wanted is not None:
            _sweep(wanted.parent, prefix)
            self.path, self._lock = wanted, _make(wanted)
            return
        temporary = Path(tempfile.gettempdir())
        if len(str(temporary)) + len(prefix) + 8 > _LONGEST:
            temporary = Path("/tmp")  # noqa: S108  mkdtemp makes it private
        _sweep(temporary, prefix)
        self.path, self._lock = _new(temporary, prefix)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _new(temporary: Path, prefix: str) -> tuple[Path, int]:
    """A new directory and the descriptor that locks it."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=temporary))
        lock = _locked(path)
        if lock is not None:
            return path, lock


def _make(path: Path) -> int:
    """A new directory of that name; the descriptor that locks it."""
    while True:
        path.mkdir(mode=0o700)
        lock = _locked(path)
        if lock is not None:
            return lock


def _locked(path: Path) -> int | None:
    """The descriptor; None when another process swept the directory before it was locked."""
    lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if (path / _LOCK).exists():
        return lock
    os.close(lock)
    return None


def _sweep(temporary: Path, prefix: str) -> None:
    """Remove the directories of processes that are gone: ours, and locked by nobody."""
    for directory in temporary.glob(f"{prefix}*"):
        try:
            if directory.lstat().st_uid != os.getuid():
                continue
            lock = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
