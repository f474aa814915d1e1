"""The agenda of an inline session: tasks that are ready, and timers.

Used by `testing.inline_tasks`. Contains no rules about tasks.
"""

import heapq
import itertools
from collections.abc import Callable

from kilnwork.testing import clock as clocks
from kilnwork.testing import task_record as records


class Agenda:
    """The queue of ready tasks, and the timers.

    Tasks are ordered by priority and then by arrival, timers by time and then by arrival.
    """

    def __init__(self, clock: clocks.VirtualClock) -> None:
        self._clock = clock
        self._order = itertools.count()
        self._ready: list[tuple[int, int, records.Record]] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []

    @property
    def now(self) -> float:
        """The current time in seconds, by the session's clock."""
        return self._clock.monotonic()

    def queue(self, record: records.Record) -> None:
        heapq.heappush(self._ready, (-record.spec.priority, next(self._order), record))

    def take(self) -> records.Record | None:
        """Remove and return the task to run next; None if no task is ready."""
        while self._ready:
            record = heapq.heappop(self._ready)[-1]
            if not record.final:
                return record
        return None

    def at(self, delay_s: float, act: Callable[[], None]) -> None:
        """Set a timer that calls `act` after `delay_s`."""
        heapq.heappush(self._timers, (self.now + delay_s, next(self._order), act))

    def next_time(self) -> float | None:
        """Return the time of the next timer; None if there is no timer."""
        return self._timers[0][0] if self._timers else None

    def go_on_until(self, until: float) -> None:
        """Advance the clock to `until`, and call each timer when the clock reaches its time."""
        while self._timers and self._timers[0][0] <= until:
            at, _, act = heapq.heappop(self._timers)
            self._clock.sleep(at - self.now)
            act()
        self._clock.sleep(until - self.now)
