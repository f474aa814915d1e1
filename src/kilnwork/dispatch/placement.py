"""Who is next, and where: the queue of one cluster and the choice of a worker. Pure.

Used by the machine. Highest priority first, then first come, first served; the worker with most
free slots gets the task. Fairness between drivers comes later.
"""

import heapq
from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, Protocol, TypeVar


class Placeable(Protocol):
    """Something that can wait in a `Queue`, which alone sets `place`."""

    place: int | None


class Seat(Protocol):
    """Something with slots."""

    slots: int

    @property
    def ready(self) -> bool:
        """It can be given tasks."""
        ...

    @property
    def busy(self) -> int:
        """Taken slots."""
        ...


P = TypeVar("P", bound=Placeable)
S = TypeVar("S", bound=Seat)


class _Level(Generic[P]):
    """All of one priority, by rising ticket: `low` and `high` are the first and last one given."""

    __slots__ = ("high", "low", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, P]] = deque()
        self.high = 0
        self.low = 1


class Queue(Generic[P]):
    """Waiting tasks of one cluster. Each waits under a ticket, `place`; leaving clears that."""

    __slots__ = ("_levels", "_order", "_size")

    def __init__(self) -> None:
        self._levels: dict[int, _Level[P]] = {}
        self._order: list[int] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, item: P, *, priority: int) -> None:
        """Wait behind all of the same priority."""
        level = self._level(priority)
        level.high += 1
        item.place = level.high
        level.waiting.append((level.high, item))
        self._size += 1

    def push_front(self, item: P, *, priority: int) -> None:
        """Wait before all of the same priority: it had its turn and was taken back."""
        level = self._level(priority)
        level.low -= 1
        item.place = level.low
        level.waiting.appendleft((level.low, item))
        self._size += 1

    def remove(self, item: P) -> None:
        """Leave the queue; a no-op for an item that is not in it."""
        if item.place is not None:
            item.place = None
            self._size -= 1

    def pop(self) -> P | None:
        """The next one, None when nobody waits."""
        while self._order:
            waiting = self._levels[self._order[0]].waiting
            while waiting:
                ticket, item = waiting.popleft()
                if item.place == ticket:
                    self.remove(item)
                    return item
            del self._levels[self._order.pop(0)]
        return None

    def ahead(self, item: P, *, priority: int) -> int:
        """How many go before `item`; too many by those that have left the queue early."""
        if item.place is None:
            return 0
        before = sum(len(self._levels[p].waiting) for p in self._order if p < -priority)
        level = self._levels[-priority]
        before += item.place - level.waiting[0][0]
        return min(before, self._size - 1)

    def _level(self, priority: int) -> _Level[P]:
        level = self._levels.get(-priority)
        if level is None:
            level = self._levels[-priority] = _Level()
            insort(self._order, -priority)
        return level


def seats(candidates: Iterable[S]) -> Iterator[S]:
    """Seats for tasks, one for each free slot, the least loaded worker first.

    The caller takes the seat (so that `busy` rises by one) before it asks for the next.
    """
    heap = [(c.busy - c.slots, number, c) for number, c in enumerate(candidates) if c.ready]
    heapq.heapify(heap)
    while heap:
        free, number, seat = heap[0]
        if free >= 0:
            return
        yield seat
        heapq.heapreplace(heap, (free + 1, number, seat))
