"""The loop of a controller: takes a key, reconciles it, and repeats when due or after an error.

Used by the manager; each kind has a reconciler. A reconciler gets only a key, reads everything
afresh, converges, and may be called again at any time (controller-runtime's contract).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kilnwork.kit import coroutines
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import errors, objects, queue

log = logging.getLogger(__name__)

Reconcile = Callable[[objects.Key], Awaitable[float | None]]
"""Makes the actual state of one key equal to the desired state; returns the seconds until it is to
be called again, or None.
"""


class Controller:
    """Calls `reconcile` for the keys of a queue: several in parallel, but never twice for one key.

    `workers`: the number of reconciles in parallel. After an error the key is queued again, with
    the queue's back-off and not before the time in the server's Retry-After.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile,
        queue: queue.WorkQueue,
        *,
        workers: int = 1,
        turn: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Make a controller.

        `turn` is awaited before each key; it returns when the controller may continue.
        """
        self.name = name
        self.queue = queue
        self._reconcile = reconcile
        self._count = workers
        self._turn = turn
        self._background = coroutines.BackgroundWork(f"controller {name}")
        self._workers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._workers = [
            self._background.start(f"worker {number}", self._work())
            for number in range(self._count)
        ]

    async def stop(self, *, grace_s: float = 5.0) -> None:
        """Take no more keys and wait up to `grace_s` for running reconciles, then cancel them."""
        self.queue.close()
        if self._workers:
            # `wait` cancels nothing when the time is over; `stop` does.
            await asyncio.wait(self._workers, timeout=grace_s)
        await self._background.stop()

    async def _work(self) -> None:
        while (key := await self.queue.get()) is not None:
            try:
                if self._turn is not None:
                    await self._turn()
                await self._once(key)
            finally:
                # Also after a cancellation: otherwise no worker could ever take the key again.
                self.queue.done(key)

    async def _once(self, key: objects.Key) -> None:
        try:
            again_s = await self._reconcile(key)
        except Exception as error:  # noqa: BLE001 - whatever it is, the key must be looked at again
            self._failed(key, error)
            return
        self.queue.forget(key)
        if again_s is not None:
            self.queue.add(key, again_s)

    def _failed(self, key: objects.Key, error: Exception) -> None:
        at_least_s = 0.0
        if isinstance(error, errors.ApiError) and error.retry_after_s is not None:
            at_least_s = error.retry_after_s
        wait_s = self.queue.retry(key, at_least_s=at_least_s)
        facts = {
            "controller": self.name,
            "object_namespace": key[0],
            "object": key[1],
            "again_in_s": round(wait_s, 3),
            "error": str(error),
        }
        # Such conflicts are usual where several clients write an object; the next try reads it
        # again.
        if isinstance(error, errors.Conflict | errors.AlreadyExists):
            log.debug("object changed meanwhile", extra=facts)
        elif isinstance(error, kit_errors.KilnError):
            log.warning("cannot reconcile", extra=facts)
        else:
            log.error("cannot reconcile", exc_info=error, extra=facts)
