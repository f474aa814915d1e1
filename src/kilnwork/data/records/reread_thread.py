"""Rereader: a thread that reads a file again, closely behind its first reader. Used by
`in_place_indexing`.

It reads the bytes from the page cache again instead of sharing the buffers of the first reader.
Reading costs a tenth of the work on the bytes, while buffers that moved from one core's cache to
another's slowed both threads down by a third.
"""

import os
from collections.abc import Callable, Iterator
from concurrent import futures

from kilnwork.data import errors

TOGETHER_BYTES = 8 << 20
"""Number of bytes handed over at once: waking the thread costs as much as a checksum of 100 KiB."""

_AHEAD = 3
"""Maximum number of waiting handovers: what is read again is then still in the page cache."""
_BUFFER_BYTES = 2 << 20


class RereadThread:
    """Thread that runs work items one after the other, until it is closed."""

    def __init__(self) -> None:
        self._pool = futures.ThreadPoolExecutor(1, "kilnwork-reread")
        self._waiting: list[futures.Future[None]] = []

    def give(self, work: Callable[[], None]) -> None:
        """Submit a work item. Waits if much work is waiting already. Raises the error of earlier
        work.
        """
        self._waiting.append(self._pool.submit(work))
        if len(self._waiting) > _AHEAD:
            self._waiting.pop(0).result()

    def settle(self) -> None:
        """Wait for all submitted work. Raises the error of that work."""
        while self._waiting:
            self._waiting.pop(0).result()

    def close(self) -> None:
        """Cancel the waiting work items, and wait for the current one."""
        self._pool.shutdown(cancel_futures=True)


class Rereader:
    """Second reader of a file, from byte `at` on, by its descriptor; used by the thread only."""

    def __init__(self, descriptor: int, at: int) -> None:
        self._descriptor, self._at = descriptor, at
        self._buffer = bytearray(_BUFFER_BYTES)

    def skip(self, count: int) -> None:
        """Skip bytes of the file."""
        self._at += count

    def next(self, count: int) -> Iterator[memoryview]:
        """Yield the next `count` bytes of the file, in pieces; a piece is valid until the next one
        is requested.

        Raises OSError, and `FileChanged` if the file has fewer bytes.
        """
        view = memoryview(self._buffer)
        while count:
            got = os.preadv(self._descriptor, [view[: min(count, len(view))]], self._at)
            if not got:
                raise errors.FileChanged(
                    "the file became shorter while it was read: leave it alone until that is over"
                )
            count -= got
            self._at += got
            yield view[:got]
