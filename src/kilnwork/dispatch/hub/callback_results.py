"""Hands results that clients send to callback URLs to the executors of the attempts.

Used by the hub. No result is stored here: if the executor is not connected, the client that sends
the result is asked to try again.
"""

import asyncio
from enum import Enum

from kilnwork.api import attempts
from kilnwork.channel import messages
from kilnwork.dispatch.hub import commits, links, subscriptions

MAX_CONCLUDED = 10_000
"""Number of the newest attempts for which the result that ended them is remembered."""


class Taken(Enum):
    """The response to a result that was sent to a callback URL."""

    STORED = 1
    OVER = 2
    NOT_NOW = 3


class Concluded:
    """The digests of the newest callbacks that have ended attempts, by attempt."""

    def __init__(self) -> None:
        self._digests: dict[attempts.AttemptRef, bytes] = {}

    def add(self, ref: attempts.AttemptRef, digest: bytes) -> None:
        self._digests[ref] = digest
        # The oldest is dropped: if its callback is repeated, the response is OVER, although this
        # callback ended the attempt.
        if len(self._digests) > MAX_CONCLUDED:
            del self._digests[next(iter(self._digests))]

    def has(self, callback: messages.Callback) -> bool:
        """Return whether this callback has ended its attempt."""
        return self._digests.get(callback.ref) == callback.digest()


class Callbacks:
    """Hands results from callback URLs to executors. `by_number`: the links of all peers."""

    def __init__(
        self,
        core: commits.Core,
        by_number: dict[int, links.Link],
        changes: subscriptions.Subscriptions,
        concluded: Concluded,
    ) -> None:
        self._core = core
        self._links = by_number
        self._changes = changes
        self._concluded = concluded

    async def call_back(
        self, ref: attempts.AttemptRef, *, media_type: str, body: bytes, wait_s: float
    ) -> Taken:
        """Hand a result to the executor of the attempt `ref`, and wait until the attempt's end is
        stored.

        Returns STORED if this result has ended the attempt, now or when it was sent before; OVER if
        something else has ended it; NOT_NOW if the executor is not connected, or if the attempt has
        not ended within `wait_s`.
        """
        callback = messages.Callback(ref, media_type, body)
        changed = asyncio.Event()
        # Before the result is applied, so that its effect cannot be missed.
        stop = self._changes.follow({ref.task}, lambda _: changed.set())
        try:
            if self._is_held(ref) and not self._hand_over(callback):
                return Taken.NOT_NOW
            async with asyncio.timeout(wait_s):
                while self._is_held(ref):
                    changed.clear()
                    await changed.wait()
                # The end is in memory; the caller may learn only of ends that are on disk.
                await self._core.flush()
        except TimeoutError:
            return Taken.NOT_NOW
        finally:
            stop()
        return Taken.STORED if self._concluded.has(callback) else Taken.OVER

    def _hand_over(self, callback: messages.Callback) -> bool:
        """Send the result to the executor; return False if the executor is not connected."""
        task = self._core.machine.task(callback.ref.task)
        worker = None if task is None else task.worker
        link = None if worker is None else self._links.get(worker.link)
        if link is not None:
            link.write_all([callback])
        return link is not None

    def _is_held(self, ref: attempts.AttemptRef) -> bool:
        task = self._core.machine.task(ref.task)
        return task is not None and task.held and task.ref == ref
