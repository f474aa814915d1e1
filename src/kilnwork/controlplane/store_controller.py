"""What follows the store inside the server and puts things right: the base of all keepers here.

Used by the garbage collector, the binder, taint eviction and the keepers of namespaces, roles and
definitions. Not the controllers' queue (`kube.queue`): no parallel workers, no per-key back-off.
"""

import abc
import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kilnwork.controlplane import objects
from kilnwork.controlplane.apiserver import crud
from kilnwork.kit import coroutines

log = logging.getLogger(__name__)

K = TypeVar("K")

RETRY_S = 1.0


class StoreController(abc.ABC, Generic[K]):
    """Keys in order of arrival, each at most once; `_look` is called for one after another.

    A key whose `_look` raises is looked at again after `RETRY_S`.
    """

    def __init__(self, name: str, writer: crud.ObjectWriter) -> None:
        self._name = name
        self._writer = writer
        self._store = writer.store
        self._keys: dict[K, None] = {}
        self._wake = asyncio.Event()
        self._background = coroutines.BackgroundWork(name)
        self._unfollow: Callable[[], None] = lambda: None

    @abc.abstractmethod
    def _on_changes(self, changes: Sequence[objects.Change]) -> None:
        """Note what was committed, and `_add` the keys that it concerns."""

    @abc.abstractmethod
    async def _look(self, key: K) -> None:
        """Bring what the key names to what it should be; may be repeated."""

    def _follow(self) -> None:
        """Hear of changes from now on."""
        self._unfollow = self._store.follow(self._on_changes)

    def _begin(self) -> None:
        """Look at keys from now on."""
        self._background.start("work", self._run())

    async def stop(self) -> None:
        """Stop; the next start finds what is left to do."""
        self._unfollow()
        await self._background.stop()

    def _add(self, key: K) -> None:
        self._keys[key] = None
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._keys:
                key = next(iter(self._keys))
                del self._keys[key]
                await self._try(key)
                await asyncio.sleep(0)  # a look that never waits must not keep others from working

    async def _try(self, key: K) -> None:
        try:
            await self._look(key)
        except Exception:
            log.exception("look failed, again soon", extra={"work": self._name, "key": str(key)})
            asyncio.get_running_loop().call_later(RETRY_S, self._add, key)
