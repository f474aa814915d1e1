"""Read-ahead: a thread makes the next pieces of an iterator while the current pieces are used.

Used by `output_reader`: one core reads and verifies while another writes or reduces. Pieces are
handed over in groups of 1 MiB, since for small ones the handover would cost more than the work.
"""

from collections import deque
from collections.abc import Iterator
from concurrent import futures

GROUP_BYTES = 1 << 20
"""Minimum size of a group that is handed over."""

MAX_AHEAD = 4
"""Number of groups that are ready or being made: enough to cover the time in which a thread waits
for its core, with little memory."""


def read_pieces(source: Iterator[bytes], aside: futures.Executor) -> Iterator[bytes]:
    """Yield the pieces of `source` in order, made ahead in the thread of `aside`, an executor with
    one thread.

    An exception of `source` is raised in its place or a little earlier: up to `GROUP_BYTES` of the
    pieces before it are then missing.
    """
    waiting = deque(aside.submit(_next_group, source) for _ in range(MAX_AHEAD))
    while found := waiting.popleft().result():
        waiting.append(aside.submit(_next_group, source))
        yield from found


def _next_group(source: Iterator[bytes]) -> list[bytes]:
    """Return the next group of pieces; an empty list if there are no more."""
    found, size = [], 0
    for piece in source:
        found.append(piece)
        size += len(piece)
        if size >= GROUP_BYTES:
            break
    return found
