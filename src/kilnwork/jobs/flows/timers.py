"""When step instances have run for too long: deadlines by the monotonic clock.

Used by `runs`. A clock that is set gives no step more or less time, but for that in which no
dispatcher ran.
"""

import heapq
from collections.abc import Callable
from typing import Generic, TypeVar

from kilnwork.kit import clock as clocks

K = TypeVar("K")


class Timers(Generic[K]):
    """Deadlines by key; those of what is over are ignored by the caller."""

    def __init__(self, clock: clocks.Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0

    def set(self, key: K, seconds: float, *, started: float) -> None:
        """Let a time be up so many seconds after `started`, by the wall clock."""
        ran_s = self._clock.wall() - started
        left_s = min(max(seconds - ran_s, 0.0), seconds)
        self._count += 1
        heapq.heappush(self._heap, (self._clock.monotonic() + left_s, self._count, key))

    def drop(self, belongs: Callable[[K], bool]) -> None:
        """Forget the times of keys that are to begin again."""
        self._heap = [one for one in self._heap if not belongs(one[2])]
        heapq.heapify(self._heap)

    def due(self) -> list[K]:
        """Return the keys whose time is up, each once."""
        found = []
        while self._heap and self._heap[0][0] <= self._clock.monotonic():
            found.append(heapq.heappop(self._heap)[2])
        return found

    @property
    def next_s(self) -> float | None:
        """Seconds until the next time is up; None: there is none."""
        if not self._heap:
            return None
        return max(self._heap[0][0] - self._clock.monotonic(), 0.0)
