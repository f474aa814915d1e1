"""Lock of a data directory: a locked file that names its holder, for one process per directory.

Built on `kit.locks`. `cluster`, `kiln manager` and `node.virtual_node` take it; `kiln down` asks
which process holds it.
"""

import contextlib
from pathlib import Path

from kilnwork.kit import errors, locks, processes

_FILE = "control.lock"


class DirectoryLock:
    """Lock of one data directory, which one server or node holds at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = locks.OwnerLock(directory / _FILE)

    def acquire(self) -> None:
        """Take the lock.

        Raises ConfigurationError naming the process that holds it, and OSError.
        """
        if not self._lock.take():
            raise errors.ConfigurationError(
                f"data directory {self._directory} is in use by {_described(self._lock.path)}: "
                f"stop it with `kiln down --data {self._directory}`, or choose another --data"
            )

    def release(self) -> None:
        self._lock.release()


def holder(directory: Path) -> processes.ProcessId | None:
    """Return the process that holds the lock of a data directory, or None when it is free."""
    path = directory / _FILE
    # A file that is not locked names a process that has ended or released it.
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
