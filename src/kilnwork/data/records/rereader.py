"""A thread that goes through a file again, close behind its first reader. Used by `stored_index`.

It takes the bytes from the page cache once more rather than share the buffers of the first reader:
to read costs a tenth of what is done with them, while buffers that go from one core's cache to the
other's took a third off the speed of both.
"""

import os
from collections.abc import Callable, Iterator
from concurrent import futures

from kilnwork.data import errors

TOGETHER_BYTES = 8 << 20
"""Given to the thread at once: to wake it costs as much as to add up 100 KiB."""

_AHEAD = 3
"""So much of that may wait: what is read again is still in the page cache."""
_BUFFER_BYTES = 2 << 20


class Thread:
    """Does one thing after the other, until it is closed."""

    def __init__(self) -> None:
        self._pool = futures.ThreadPoolExecutor(1, "kilnwork-reread")
        self._waiting: list[futures.Future[None]] = []

    def give(self, work: Callable[[], None]) -> None:
        """Waits when much is waiting already. Raises what earlier work has raised."""
        self._waiting.append(self._pool.submit(work))
        if len(self._waiting) > _AHEAD:
            self._waiting.pop(0).result()

    def settle(self) -> None:
        """Wait for all that was given. Raises what it has raised."""
        while self._waiting:
            self._waiting.pop(0).result()

    def close(self) -> None:
        """Do no more; what was begun is over then."""
        self._pool.shutdown(cancel_futures=True)


class Rereader:
    """Reads a file from byte `at` on, by its descriptor; for the thread alone."""

    def __init__(self, descriptor: int, at: int) -> None:
        self._descriptor, self._at = descriptor, at
        self._buffer = bytearray(_BUFFER_BYTES)

    def skip(self, count: int) -> None:
        """Leave out so many bytes."""
        self._at += count

    def next(self, count: int) -> Iterator[memoryview]:
        """So many bytes that follow, in pieces that are good until the next one. Raises OSError,
        `FileChanged` if there are fewer."""
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
