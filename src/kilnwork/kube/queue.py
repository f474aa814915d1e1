"""A work queue of keys to reconcile, which hands out each key to one worker at a time.

Used by controllers. A key is in the queue at most once. `Ledger` is the bookkeeping without clock
or waiting; `WorkQueue` adds both. The design is that of client-go's workqueue. The queue holds keys
only: reconcilers read the objects afresh.
"""

import asyncio
import collections
import heapq

from kilnwork.kit import backoff, clock, ids
from kilnwork.kube import objects

BACKOFF = backoff.Backoff(base_s=0.05, max_s=30.0, jitter=0.2)
"""Delays after failures: short at first, since most failures are conflicts; at most 30 s, since
users watch.
"""


class Ledger:
    """The state of each key: ready, taken, or due later, and the number of its failures in a
    row.
    """

    def __init__(self) -> None:
        self._ready: dict[objects.Key, None] = {}
        self._in_hand: set[objects.Key] = set()
        self._again: set[objects.Key] = set()
        self._due: dict[objects.Key, float] = {}
        self._heap: list[tuple[float, objects.Key]] = []
        self._failures: collections.Counter[objects.Key] = collections.Counter()

    def __len__(self) -> int:
        """Return the number of keys that are ready now."""
        return len(self._ready)

    def add(self, key: objects.Key) -> None:
        """Make a key ready now; if it is taken, it becomes ready when it is done."""
        if key in self._in_hand:
            self._again.add(key)
        else:
            self._ready[key] = None

    def add_at(self, key: objects.Key, due: float) -> None:
        """Make a key ready at the time `due`, unless it is already due earlier."""
        known = self._due.get(key)
        if known is None or due < known:
            self._due[key] = due
            heapq.heappush(self._heap, (due, key))

    def cancel(self, key: objects.Key) -> None:
        """Cancel the time that `add_at` has set for a key."""
        self._due.pop(key, None)

    def next_due(self) -> float | None:
        """Return the earliest time at which a key is due, or None if no key has such a time."""
        # The heap keeps entries that `add_at` or `cancel` has superseded: `_due` decides.
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def take(self, now: float) -> objects.Key | None:
        """Take the oldest ready key; return None if there is none."""
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
        """Mark a taken key as done; it is ready again if it was added meanwhile."""
        self._in_hand.discard(key)
        # Added during the reconcile, which may have read the object before the change.
        if key in self._again:
            self._again.discard(key)
            self._ready[key] = None

    def failed(self, key: objects.Key) -> int:
        """Count a failure of a key; return the number of its failures in a row."""
        self._failures[key] += 1
        return self._failures[key]

    def forget(self, key: objects.Key) -> None:
        """Reset the failure count of a key."""
        self._failures.pop(key, None)


class WorkQueue:
    """A queue of keys: a `Ledger` with a clock, whose consumers wait for keys that are ready.

    Not thread-safe: it belongs to the thread of one event loop.
    """

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
        """Number of waiters that were woken and have not run yet: one for each ready key is
        enough.
        """
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due: float | None = None
        self._closed = False

    def __len__(self) -> int:
        """Return the number of keys that are ready now; 0 after `close`."""
        return 0 if self._closed else len(self._ledger)

    def add(self, key: objects.Key, after_s: float = 0.0) -> None:
        """Queue `key` now, or after `after_s` seconds unless it is already due earlier."""
        if self._closed:
            return
        if after_s > 0:
            self._ledger.add_at(key, self._clock.monotonic() + after_s)
            self._arm()
        else:
            self._ledger.add(key)
            self._wake_for_ready()

    def retry(self, key: objects.Key, *, at_least_s: float = 0.0) -> float:
        """Queue a key again after a failure, with growing back-off; return the delay in seconds."""
        delay_s = self._backoff.delay_s(self._ledger.failed(key), entropy=self._entropy)
        delay_s = max(delay_s, at_least_s)
        self.add(key, delay_s)
        return delay_s

    def forget(self, key: objects.Key) -> None:
        """Reset the back-off of a key after a success."""
        self._ledger.forget(key)

    def cancel(self, key: objects.Key) -> None:
        """Cancel the delayed queueing of `key`.

        A reconcile that is running decides when the key is due next.
        """
        self._ledger.cancel(key)

    async def get(self) -> objects.Key | None:
        """Wait for a key and take it until `done` is called with it; return None after `close`."""
        while not self._closed:
            key = self._ledger.take(self._clock.monotonic())
            if key is not None:
                # One consumer was woken for all keys that have become due: it wakes the next.
                self._wake_for_ready()
                return key
            self._arm()
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await self._wait(waiter)
        return None

    def done(self, key: objects.Key) -> None:
        """Mark a key from `get` as done; it is ready again if it was added meanwhile."""
        self._ledger.done(key)
        self._wake_for_ready()

    def close(self) -> None:
        """Stop accepting keys and handing them out; waiting calls of `get` return None."""
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
                # This consumer was woken, and cancelled before it ran: another must take the key.
                self._wake()
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
            raise

    def _wake_for_ready(self) -> None:
        # A woken `get` has not taken its key yet: do not wake a second one for the same key.
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
        """Set the timer to the earliest time at which a key is due."""
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
        # The key is not counted as ready before a `get` takes it.
        self._wake()
