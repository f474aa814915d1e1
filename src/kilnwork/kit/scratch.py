"""A private temporary directory that is removed with its process.

Used by workers (attempts, sockets) and by sessions over the network (cached blobs). It has mode
0700 and is locked: the directory of a killed process is removed by the next process that creates
one with the same prefix.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_LONGEST = 50
"""Maximum bytes of the path, so that paths of Unix sockets below it are short enough (107 bytes,
unix(7)).
"""

_LOCK = "lock"


class Scratch:
    """A private temporary directory, which `close` removes.

    `wanted`: the path to use, which must not exist yet; None: a new path with the `prefix` below
    the system's temporary directory.
    """

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
    """Create a temporary directory; return it and the descriptor that locks it."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=temporary))
        lock = _locked(path)
        if lock is not None:
            return path, lock


def _make(path: Path) -> int:
    """Create the directory `path`; return the descriptor that locks it."""
    while True:
        path.mkdir(mode=0o700)
        lock = _locked(path)
        if lock is not None:
            return lock


def _locked(path: Path) -> int | None:
    """Lock a directory; return the descriptor, or None if another process removed the directory
    first.
    """
    lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if (path / _LOCK).exists():
        return lock
    os.close(lock)
    return None


def _sweep(temporary: Path, prefix: str) -> None:
    """Remove the directories of ended processes: those that this user owns and that are not
    locked.
    """
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
