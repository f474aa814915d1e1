"""Timers of runs and step instances: deadlines on the monotonic clock.

Used by `flow_service`. Setting the wall clock does not change a deadline. Only the time that has
passed before a deadline is set, for example while no dispatcher was running, is measured by the
wall clock.
"""

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

from kilnwork.kit import clock as clocks

K = TypeVar("K")


class Timers(Generic[K]):
    """Deadlines by key. The caller ignores the keys of step instances that have ended."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0

    def set(self, key: K, seconds: float, *, started: float) -> None:
        """Set the deadline of a key to `seconds` after `started`, which is a wall clock time."""
        ran_s = self._clock.wall() - started
        left_s = min(max(seconds - ran_s, 0.0), seconds)
        self._count += 1
        heapq.heappush(self._heap, (self._clock.monotonic() + left_s, self._count, key))

    def drop(self, belongs: Callable[[K], bool]) -> None:
        """Remove the deadlines of all keys for which `belongs` is true."""
        self._heap = [one for one in self._heap if not belongs(one[2])]
        heapq.heapify(self._heap)

    def take_due(self) -> list[K]:
        """Return the keys whose deadline has passed, and remove their deadlines."""
        found = []
        while self._heap and self._heap[0][0] <= self._clock.monotonic():
            found.append(heapq.heappop(self._heap)[2])
        return found

    @property
    def next_deadline_s(self) -> float | None:
        """Seconds until the next deadline, or None if there is none."""
        if not self._heap:
            return None
        return max(self._heap[0][0] - self._clock.monotonic(), 0.0)
