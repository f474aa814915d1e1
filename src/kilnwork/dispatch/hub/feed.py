"""A feed: the keys that changed after a given number, in the order of their changes.

Used by the hub for tasks and clusters, and by `jobs`. Keeps only the newest change of each key, so
a slow reader gets one entry for many changes and never an old one.
"""

import asyncio
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

EPOCH_SHIFT = 32
"""Number of bits for the changes of one epoch: more than a dispatcher publishes."""


class Feed(Generic[K]):
    """A sequence of numbered changes of keys; each key has only its newest change."""

    def __init__(self) -> None:
        self._first = self._last = 1
        self._by_key: dict[K, int] = {}
        self._waiting: set[asyncio.Future[None]] = set()

    def begin(self, epoch: int) -> None:
        """Number the changes of this epoch above those of all earlier ones.

        Call it before the first change. A reader may then have a number of an earlier dispatcher.
        """
        self._first = self._last = (epoch << EPOCH_SHIFT) + 1

    @property
    def last(self) -> int:
        """Return the number of the newest change, or where the numbers begin.

        No change has the number 0: readers pass 0 to start from the beginning.
        """
        return self._last

    def is_own(self, number: int) -> bool:
        """Return whether `number` is one of this feed, which then knows all changes after it.

        If not (0, or a number of an earlier epoch), the reader must read everything.
        """
        return self._first <= number <= self._last

    def number(self, key: K) -> int:
        """Return the number of a key's newest change, or 0 if it has not changed."""
        return self._by_key.get(key, 0)

    def publish(self, keys: Iterable[K]) -> None:
        """Publish that these keys changed, in this order."""
        before = self._last
        for key in keys:
            self._last += 1
            # Moved to the end of the dict: `since` relies on rising numbers.
            self._by_key.pop(key, None)
            self._by_key[key] = self._last
        if self._last != before:
            self._wake()

    def drop(self, keys: Iterable[K]) -> None:
        """Remove keys that no reader needs any more."""
        for key in keys:
            self._by_key.pop(key, None)

    def since(self, number: int) -> list[K]:
        """Return the keys whose newest change is after `number`, oldest first."""
        found = []
        for key in reversed(self._by_key):
            if self._by_key[key] <= number:
                break
            found.append(key)
        found.reverse()
        return found

    async def newer(self, number: int) -> None:
        """Wait until a key changes after `number`; return at once if `number` is from another
        feed.
        """
        # Not `<=`: a greater number is from another feed, and must not wait for this one.
        while self._last == number:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            try:
                await waiter
            finally:
                self._waiting.discard(waiter)

    def fail(self, error: BaseException) -> None:
        """Raise `error` in all waits, since no key will change any more."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(error)

    def _wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)


class ThrottledFeed(Feed[K]):
    """A feed that publishes at most once in `every_s`, for keys that change continually."""

    def __init__(self, *, every_s: float) -> None:
        super().__init__()
        self._every_s = every_s
        self._held: set[K] = set()
        self._timer: asyncio.TimerHandle | None = None

    def publish(self, keys: Iterable[K]) -> None:
        """Publish that these keys changed, now or soon, in any order."""
        self._held.update(keys)
        if self._held and self._timer is None:
            self._publish_held()

    def fail(self, error: BaseException) -> None:
        """Raise `error` in all waits, as `Feed.fail`; changes that were held back are not
        published.
        """
        if self._timer is not None:
            self._timer.cancel()
        super().fail(error)

    def _publish_held(self) -> None:
        self._timer = None
        # If nothing is held back, the timer ends, and the next change is published at once again.
        if self._held:
            super().publish(self._held)
            self._held = set()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._every_s, self._publish_held)
