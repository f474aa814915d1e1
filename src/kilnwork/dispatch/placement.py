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


class Queue(Generic[P]):
    """Waiting tasks of one cluster. Each waits under a ticket, `place`; leaving clears that."""

    __slots__ = ("_high", "_levels", "_low", "_order", "_size")

    def __init__(self) -> None:
        self._levels: dict[int, deque[tuple[int, P]]] = {}
        self._order: list[int] = []
        self._size = 0
        self._high = 0
        self._low = 0

    def __len__(self) -> int:
        return self._size

    def push(self, item: P, *, priority: int) -> None:
        """Wait behind all of the same priority."""
        self._high += 1
        item.place = self._high
        self._level(priority).append((self._high, item))
        self._size += 1

    def push_front(self, item: P, *, priority: int) -> None:
        """Wait before all of the same priority: it had its turn and was taken back."""
        self._low -= 1
        item.place = self._low
        self._level(priority).appendleft((self._low, item))
        self._size += 1

    def remove(self, item: P) -> None:
        """Leave the queue; a no-op for an item that is not in it."""
        if item.place is not None:
            item.place = None
            self._size -= 1

    def pop(self) -> P | None:
        """The next one, None when nobody waits."""
        while self._order:
            level = self._levels[self._order[0]]
            while level:
                ticket, item = level.popleft()
                if item.place == ticket:
                    self.remove(item)
                    return item
            del self._levels[self._order.pop(0)]
        return None

    def ahead(self, item: P, *, priority: int) -> int:
        """How many go before `item`, at least; exact while nobody has left the queue early."""
        if item.place is None:
            return 0
        before = sum(len(self._levels[p]) for p in self._order if p < -priority)
        level = self._levels.get(-priority)
        if level:
            before += min(max(0, item.place - level[0][0]), max(0, self._size - 1))
        return min(before, max(0, self._size - 1))

    def _level(self, priority: int) -> deque[tuple[int, P]]:
        level = self._levels.get(-priority)
        if level is None:
            level = self._levels[-priority] = deque()
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
