"""One server per data directory: a lock on a file that names its holder (`kit.locks`).

Taken by `cluster`, asked about by `kiln down`.
"""

import contextlib
from pathlib import Path

from kilnwork.kit import errors, locks, processes

_FILE = "control.lock"


class DirectoryLock:
    """The lock of one data directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = locks.OwnerLock(directory / _FILE)

    def acquire(self) -> None:
        """Take it; raises ConfigurationError naming the process that holds it."""
        if not self._lock.take():
            raise errors.ConfigurationError(
                f"data directory {self._directory} is in use by {_described(self._lock.path)}: "
                f"stop it with `kiln down --data {self._directory}`, or choose another --data"
            )

    def release(self) -> None:
        self._lock.release()


def holder(directory: Path) -> processes.ProcessId | None:
    """The process that holds the lock of a data directory, None when no process does."""
    path = directory / _FILE
    pid = locks.read_owner(path) if locks.is_locked(path) else None
    return None if pid is None else processes.identify(pid)


def _described(path: Path) -> str:
    pid = locks.read_owner(path)
    if pid is None:
        return "another server"
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        return f"process {pid} ({command[:80]})"
    return f"process {pid}"
