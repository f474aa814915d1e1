"""Writing of a file of a local store, and conversion of errors of its disk or file system.

Used by `local` and `local_resumable`. Free space is checked now and then; writing to disk begins
before the fsync that waits for it.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from kilnwork.data import disk_checks, errors
from kilnwork.data.stores import port

CHECK_BYTES = 16 << 20
"""Number of bytes written between two checks of the free space."""

BEGIN_BYTES = 2 << 20
"""Number of bytes after which writing to disk begins, while more is written: 1.4 times as fast as
leaving all of it to the fsync at the end, with 400 MiB and a hash of them."""

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of the system if there is no space, for us or for any user."""


_AWAY = frozenset(
    {errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN}
)
"""Errors of a network file system whose server is unreachable, or has lost our open files."""


class FileWriter:
    """Writer of a file, from byte `at` on.

    `store`: the directory of the store; `key`: the key for messages. `looks`: whether free space is
    checked, so that the space reserved for records and the journal is not used.
    """

    def __init__(
        self, store: Path, key: str, descriptor: int, *, at: int = 0, looks: bool = True
    ) -> None:
        self.at = self._begun = self._looked_at = at
        self._store, self._key, self._descriptor = store, key, descriptor
        self._looks = looks

    def write(self, piece: port.Data) -> None:
        """Append bytes to the file. Raises `StoreFull`, `StoreRefused`, `StoreUnreachable`."""
        left = memoryview(piece).cast("B")
        if self._looks and self.at >= self._looked_at:
            self._look()
        with explained(self._store, self._key):
            while left:
                count = os.pwrite(self._descriptor, left, self.at)
                self.at += count
                left = left[count:]
        if self.at - self._begun >= BEGIN_BYTES:
            disk_checks.begin_sync(self._descriptor, self._begun, self.at - self._begun)
            self._begun = self.at

    def _look(self) -> None:
        self._looked_at = self.at + CHECK_BYTES
        with explained(self._store, self._key):
            lack = disk_checks.describe_lack(self._store)
        if lack:
            raise _full(self._store, self._key, lack)


def _full(store: Path, key: str, why: str | None) -> errors.StoreFull:
    return errors.StoreFull(
        f"{key} cannot be written to {store}: {why}. Free some room there; nothing of it was left "
        "behind"
    )


@contextlib.contextmanager
def explained(store: Path, key: str) -> Iterator[None]:
    """Context manager that converts errors of the operating system about an object to
    `StoreError`.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise errors.ObjectMissing(f"there is no {key} in {store}") from error
    except FileExistsError as error:
        raise errors.ObjectExists(f"there is a {key} in {store} already") from error
    except OSError as error:
        if error.errno in NO_ROOM:
            raise _full(store, key, error.strerror) from error
        kind = errors.StoreUnreachable if error.errno in _AWAY else errors.StoreRefused
        raise kind(f"{key} in {store} cannot be used: {error.strerror or error}") from error
