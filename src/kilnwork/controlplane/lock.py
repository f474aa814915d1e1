"""One server per data directory: an operating-system lock on a file that names its holder.

Taken by `cluster`, asked about by `kiln down`. The lock is flock(2), so it ends with the process
that holds it: a file left by a server that was killed is no obstacle. The file itself stays;
removing it would let two in.
"""

import contextlib
import fcntl
import os
from pathlib import Path

from kilnwork.kit import errors, processes

_FILE = "control.lock"


class DirectoryLock:
    """The lock of one data directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / _FILE
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take it; raises ConfigurationError naming the process that holds it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            held = _described(descriptor)
            os.close(descriptor)
            raise errors.ConfigurationError(
                f"data directory {self._directory} is in use by {held}: stop it with "
                f"`kiln down --data {self._directory}`, or choose another --data"
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give it back."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def holder(directory: Path) -> processes.ProcessId | None:
    """The process that holds the lock of a data directory, None when nobody does.

    The lock decides, not the file: a server that was killed leaves the file, but not the lock.
    """
    path = directory / _FILE
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        text = path.read_text().strip()
        return processes.identify(int(text)) if text.isdigit() else None
    return None


def _described(descriptor: int) -> str:
    text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    if not text.isdigit():
        return "another server"
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{text}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        return f"process {text} ({command[:80]})"
    return f"process {text}"
