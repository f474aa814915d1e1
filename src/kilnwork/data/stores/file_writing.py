"""How a file of a local store is filled, and what is said when its disk or file system refuses.

Used by `local` and `local_resumable`. Room on the disk is looked for now and then; the disk begins
with what was written before the fsync that waits for it.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from kilnwork.data import disk_checks, errors
from kilnwork.data.stores import port

CHECK_BYTES = 16 << 20
"""Written between two looks at the room on the disk."""

BEGIN_BYTES = 2 << 20
"""Written before the disk begins with them, while more is written: 1.4 times as fast as leaving it
all to the fsync at the end, with 400 MiB and a hash of them."""

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says when there is no room, for us or for any user."""


_AWAY = frozenset(
    {errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENOTCONN}
)
"""What it says of a network file system whose server is away, or has lost what we had open."""


class Filling:
    """A file that is being written, from byte `at` on. `store`: its directory; `key`: for messages.

    `looks`: nothing is written when only the room is left that belongs to records and the journal.
    """

    def __init__(
        self, store: Path, key: str, descriptor: int, *, at: int = 0, looks: bool = True
    ) -> None:
        self.at = self._begun = self._looked_at = at
        self._store, self._key, self._descriptor = store, key, descriptor
        self._looks = looks

    def write(self, piece: port.Data) -> None:
        """Append. Raises `StoreFull`, `StoreRefused`."""
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
            lack = disk_checks.lacking(self._store)
        if lack:
            raise _full(self._store, self._key, lack)


def _full(store: Path, key: str, why: str | None) -> errors.StoreFull:
    return errors.StoreFull(
        f"{key} cannot be written to {store}: {why}. Free some room there; nothing of it was left "
        "behind"
    )


@contextlib.contextmanager
def explained(store: Path, key: str) -> Iterator[None]:
    """Turn what the system says about an object into `StoreError`."""
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
