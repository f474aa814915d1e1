"""Removes files of earlier homes whose processes were all killed, or ended by a reboot.

Used by `volatile_home` and `durable_home`, in the thread of a home, so that no start waits for it.
Files that are young, belong to another user, are in use or have an unknown name are left alone.
"""

import contextlib
import fcntl
import os
import re
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from kilnwork.endpoints import endpoint_files

OLD_S = 60.0
"""Minimum age in seconds of a directory that is removed: a younger one may belong to a home that is
just starting."""

SOCKETS_IN = Path("/tmp")  # noqa: S108  where `kit.data_directories.runtime_dir` puts them
_SOCKETS = re.compile("kiln-[0-9a-f]{16}")


def prefix() -> str:
    """Return the prefix of the names of this user's temporary directories."""
    return f"kiln-{os.getuid()}-"


def temporary_directories(directory: Path, *, now: float) -> None:
    """Remove directories of volatile homes that no process holds a lock on."""
    for found in _old(directory, lambda name: name.startswith(prefix()), now):
        with contextlib.suppress(OSError):
            _remove_unlocked(found)


def socket_directories(directory: Path, *, now: float) -> None:
    """Remove directories that contain only a dispatcher's socket on which no process listens."""
    for found in _old(directory, lambda name: bool(_SOCKETS.fullmatch(name)), now):
        sockets(found)


def sockets(directory: Path) -> None:
    """Remove a directory if it contains nothing but sockets of dispatchers that have ended."""
    with contextlib.suppress(OSError):
        entries = list(directory.iterdir())
        if not any(map(_in_use, entries)):
            for entry in entries:
                entry.unlink(missing_ok=True)
            directory.rmdir()


def _old(directory: Path, ours: Callable[[str], bool], now: float) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if ours(entry.name) and entry.is_dir(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                if found.st_uid == os.getuid() and now - found.st_mtime > OLD_S:
                    yield Path(entry.path)


def _remove_unlocked(directory: Path) -> None:
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(lock)


def _in_use(path: Path) -> bool:
    """Return whether a path may be in use: False only for a dispatcher's socket without a listener.

    Only a dispatcher tolerates a connection without a message; the shim of a `kiln up`, which may
    have its socket in the same directory, would take it for the node of a new server.
    """
    if path.name != endpoint_files.SOCKET or not stat.S_ISSOCK(path.lstat().st_mode):
        return True
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        trying.setblocking(False)
        try:
            trying.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True
