"""Base class of the controllers that follow the store inside the server.

Used by the garbage collector, the binder, taint eviction and the controllers of namespaces, roles
and definitions. It is simpler than the controllers' queue (`kube.queue`): no parallel workers, no
back-off per key.
"""

import abc
import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kilnwork.controlplane import store_types
from kilnwork.controlplane.apiserver import object_writer
from kilnwork.kit import coroutines

log = logging.getLogger(__name__)

K = TypeVar("K")

RETRY_S = 1.0


class StoreController(abc.ABC, Generic[K]):
    """Controller with a queue of keys, each at most once, and a worker that reconciles them in
    turn.

    A key whose `_reconcile` raises is queued again after `RETRY_S`.
    """

    def __init__(self, name: str, writer: object_writer.ObjectWriter) -> None:
        self._name = name
        self._writer = writer
        self._store = writer.store
        self._keys: dict[K, None] = {}
        self._wake = asyncio.Event()
        self._background = coroutines.BackgroundWork(name)
        self._unfollow: Callable[[], None] = lambda: None

    @abc.abstractmethod
    def _on_changes(self, changes: Sequence[store_types.StoreChange]) -> None:
        """Record committed changes and `_enqueue` the keys that they affect."""

    @abc.abstractmethod
    async def _reconcile(self, key: K) -> None:
        """Bring the object that a key names to its desired state.

        May be called again at any time.
        """

    def _follow(self) -> None:
        """Start to receive changes of the store."""
        self._unfollow = self._store.follow(self._on_changes)

    def _start_worker(self) -> None:
        """Start to reconcile queued keys."""
        self._background.start("work", self._run())

    async def stop(self) -> None:
        """Stop the controller. The next start finds the remaining work."""
        self._unfollow()
        await self._background.stop()

    def _enqueue(self, key: K) -> None:
        self._keys[key] = None
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            # Cleared before the keys are read: a key that comes later sets it again.
            self._wake.clear()
            while self._keys:
                key = next(iter(self._keys))
                # Before the reconcile: a change that comes during it queues the key again.
                del self._keys[key]
                await self._reconcile_or_retry(key)
                await asyncio.sleep(0)  # a reconcile that never waits must not block the event loop

    async def _reconcile_or_retry(self, key: K) -> None:
        try:
            await self._reconcile(key)
        except Exception:
            log.exception("look failed, again soon", extra={"work": self._name, "key": str(key)})
            asyncio.get_running_loop().call_later(RETRY_S, self._enqueue, key)
