"""Keys to look at: each at most once in line and at most once in hand, now or later.

Used by controllers. `Ledger` is the bookkeeping without time or waiting; `WorkQueue` adds a clock
and a place to wait. The ideas are client-go's workqueue. Holds keys only: what to do
is read afresh.
"""

import asyncio
import collections
import heapq

from kilnwork.kit import backoff, clock, ids
from kilnwork.kube import objects

BACKOFF = backoff.Backoff(base_s=0.05, max_s=30.0, jitter=0.2)
"""First quick, since most failures are conflicts; at most 30 s, since people watch."""


class Ledger:
    """Which keys are ready, in hand, or due later, and how often each has failed in a row."""

    def __init__(self) -> None:
        self._ready: dict[objects.Key, None] = {}
        self._in_hand: set[objects.Key] = set()
        self._again: set[objects.Key] = set()
        self._due: dict[objects.Key, float] = {}
        self._heap: list[tuple[float, objects.Key]] = []
        self._failures: collections.Counter[objects.Key] = collections.Counter()

    def __len__(self) -> int:
        """How many keys are ready now."""
        return len(self._ready)

    def add(self, key: objects.Key) -> None:
        """Ready now, or as soon as it is out of hand."""
        if key in self._in_hand:
            self._again.add(key)
        else:
            self._ready[key] = None

    def add_at(self, key: objects.Key, due: float) -> None:
        """Ready at `due`, unless it is due before anyway."""
        known = self._due.get(key)
        if known is None or due < known:
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))

    def cancel(self, key: objects.Key) -> None:
        """Not ready at the time any more that `add_at` was given."""
        self._due.pop(key, None)

    def next_due(self) -> float | None:
        """When the next key becomes ready by itself."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> objects.Key | None:
        """Put the oldest ready key in hand; None if there is none."""
        while (due := self.next_due()) is not None and due <= now:
            _, key = heapq.heappop(self._heap)
            del self._due[key]
            self.add(key)
        if not self._ready:
            return None
        key = next(iter(self._ready))
        del self._ready[key]
        self._in_hand.add(key)
        return key

    def done(self, key: objects.Key) -> None:
        """Out of hand; ready again if it was added meanwhile."""
        self._in_hand.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._ready[key] = None

    def failed(self, key: objects.Key) -> int:
        """Count a failure; gives how many there are in a row."""
        self._failures[key] += 1
        return self._failures[key]

    def forget(self, key: objects.Key) -> None:
        """Start counting failures from none."""
        self._failures.pop(key, None)


class WorkQueue:
    """A ledger on a clock, with a place to wait. For one event loop's thread."""

    def __init__(
        self,
        *,
        time: clock.Clock | None = None,
        retries: backoff.Backoff = BACKOFF,
        entropy: ids.Entropy | None = None,
    ) -> None:
        self._ledger = Ledger()
        self._clock = time or clock.SystemClock()
        self._backoff = retries
        self._entropy = entropy or ids.system_entropy()
        self._waiters: collections.deque[asyncio.Future[None]] = collections.deque()
        self._woken = 0
        """Waiters that were woken and have not looked yet: one for each ready key is enough."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: float | None = None
        self._closed = False

    def __len__(self) -> int:
        """How many keys are ready now; none of a queue that is closed."""
        return 0 if self._closed else len(self._ledger)

    def add(self, key: objects.Key, after_s: float = 0.0) -> None:
        """Look at `key` now, or once after some seconds if nothing makes it sooner."""
        if self._closed:
            return
        if after_s > 0:
            self._ledger.add_at(key, self._clock.monotonic() + after_s)
            self._arm()
        else:
            self._ledger.add(key)
            self._wake_for_ready()

    def retry(self, key: objects.Key, *, at_least_s: float = 0.0) -> float:
        """Look again after a failure, later each time in a row; gives the seconds."""
        delay_s = self._backoff.delay_s(self._ledger.failed(key), entropy=self._entropy)
        delay_s = max(delay_s, at_least_s)
        self.add(key, delay_s)
        return delay_s

    def forget(self, key: objects.Key) -> None:
        """It went well: the next failure is a first one."""
        self._ledger.forget(key)

    def cancel(self, key: objects.Key) -> None:
        """Do not look at `key` later by itself, as was asked for: a pass now says when again."""
        self._ledger.cancel(key)

    async def get(self) -> objects.Key | None:
        """Wait for a key and take it in hand until `done`; None when the queue is closed."""
        while not self._closed:
            key = self._ledger.take(self._clock.monotonic())
            if key is not None:
                self._wake_for_ready()
                return key
            self._arm()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await self._wait(waiter)
        return None

    def done(self, key: objects.Key) -> None:
        """Give back a key got by `get`; adding it from then on makes it ready again."""
        self._ledger.done(key)
        self._wake_for_ready()

    def close(self) -> None:
        """No key is given out or taken in any more; those who wait get None."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiters:
            self._wake()

    async def _wait(self, waiter: asyncio.Future[None]) -> None:
        try:
            await waiter
            self._woken -= 1
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._woken -= 1
                self._wake()  # it was our turn: pass it on
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise

    def _wake_for_ready(self) -> None:
        if len(self._ledger) > self._woken:
            self._wake()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._woken += 1
                waiter.set_result(None)
                return

    def _arm(self) -> None:
        """Keep one timer, for the next key that becomes ready by itself."""
        due = self._ledger.next_due()
        if self._timer is not None and due == self._timer_due:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_due = due
        if due is not None:
            wait_s = max(0.0, due - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake()
