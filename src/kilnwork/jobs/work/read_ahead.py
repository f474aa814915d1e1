"""Makes the next pieces of an iterator in a thread, while the ones before are used.

Used by `part_outputs`: reading and verifying keeps one core busy, writing or reducing another.
Pieces are handed over by the MiB, since of small ones the handing over would be the work.
"""

from collections import deque
from collections.abc import Iterator
from concurrent import futures

TOGETHER_BYTES = 1 << 20
"""Handed over at once, at least."""

MOST = 4
"""Handings-over that are ready or being made: enough while a thread waits for its core, and little
memory."""


def pieces(source: Iterator[bytes], aside: futures.Executor) -> Iterator[bytes]:
    """Yield the pieces of `source` in their order, and what it raises in its place or a little
    before: then up to `TOGETHER_BYTES` of what preceded are missing. `aside`: one thread, where it
    runs."""
    waiting = deque(aside.submit(_next, source) for _ in range(MOST))
    while found := waiting.popleft().result():
        waiting.append(aside.submit(_next, source))
        yield from found


def _next(source: Iterator[bytes]) -> list[bytes]:
    """Of no pieces: there are no more."""
    found, size = [], 0
    for piece in source:
        found.append(piece)
        size += len(piece)
        if size >= TOGETHER_BYTES:
            break
    return found
