"""One server per data directory: an operating-system lock on a file that names its holder.

Used by `cluster`. The lock is flock(2), so it ends with the process that holds it: a file left by a
server that was killed is no obstacle. The file itself stays; removing it would let two in.
"""

import contextlib
import fcntl
import os
from pathlib import Path

from kilnwork.kit import errors


class DirectoryLock:
    """The lock of one data directory."""

    def __init__(self, directory: Path, *, name: str = "control.lock") -> None:
        self._directory = directory
        self._path = directory / name
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take it; raises ConfigurationError naming the process that holds it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            held = _holder(descriptor)
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


def _holder(descriptor: int) -> str:
    text = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
    if not text.isdigit():
        return "another server"
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{text}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        return f"process {text} ({command[:80]})"
    return f"process {text}"
