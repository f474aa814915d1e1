"""A set of keys to look at, and one coroutine task that looks: the shape of all keepers here.

Used by the garbage collector, the binder and the namespace keeper, which follow the store inside
the server. Not the controllers' queue (`kube.queue`): no parallel workers, no per-key back-off.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from kilnwork.kit import coroutines

log = logging.getLogger(__name__)

K = TypeVar("K")

RETRY_S = 1.0


class Work(Generic[K]):
    """Keys in order of arrival, each at most once; `look` is called for one after another.

    A key whose `look` raises is looked at again after `RETRY_S`.
    """

    def __init__(self, name: str, look: Callable[[K], Awaitable[None]]) -> None:
        self._name = name
        self._look = look
        self._keys: dict[K, None] = {}
        self._wake = asyncio.Event()
        self._crew = coroutines.Crew(name)

    def start(self) -> None:
        self._crew.start("work", self._run())

    async def stop(self) -> None:
        """Stop; what is not looked at yet is found again by the next start."""
        await self._crew.stop()

    def add(self, key: K) -> None:
        self._keys[key] = None
        self._wake.set()

    def __len__(self) -> int:
        return len(self._keys)

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
            asyncio.get_running_loop().call_later(RETRY_S, self.add, key)
