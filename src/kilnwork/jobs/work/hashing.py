"""SHA-256 of what passes by, here or in a thread. Used by `outputs` and `merging`.

hashlib lets go of the interpreter, so a thread that hashes and one that reads and writes take two
cores. Only a piece is ahead: memory stays small.
"""

import hashlib
from concurrent import futures


class Digest:
    """Of pieces in order. `aside`: where to hash them; None: here. One thread calls."""

    def __init__(self, aside: futures.Executor | None = None) -> None:
        self._sha256 = hashlib.sha256()
        self._aside = aside
        self._last: futures.Future[None] | None = None

    def update(self, piece: bytes) -> None:
        """This comes next."""
        if self._aside is None:
            self._sha256.update(piece)
            return
        self._wait()
        self._last = self._aside.submit(self._sha256.update, piece)

    def hexdigest(self) -> str:
        """Of all until now."""
        self._wait()
        return self._sha256.hexdigest()

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()
