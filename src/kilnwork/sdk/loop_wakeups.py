"""Wake-ups for coroutines: passes notifications of a link's thread to asyncio, many in one call.

Used by futures, streams and `waiting` for `await` and `async for`. Works in any running event loop
and starts no thread. asyncio is not imported here, since that would double the start-up time: a
caller that awaits has imported it.
"""

import sys
import weakref
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


class WakeupBatcher:
    """Schedules functions in the thread of an event loop; several functions share one wake-up."""

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self._loop = weakref.ref(loop)
        self._due: deque[Callable[[], object]] = deque()
        self._is_scheduled = False

    def schedule(self, call: Callable[[], object]) -> None:
        """Schedule a call; may be called from any thread. Calls to a closed loop are dropped."""
        self._due.append(call)
        loop = self._loop()
        if self._is_scheduled or loop is None:
            return
        self._is_scheduled = True
        try:
            loop.call_soon_threadsafe(self._notify)
        except RuntimeError:
            self._due.clear()

    def _notify(self) -> None:
        self._is_scheduled = False
        while self._due:
            self._due.popleft()()


_batchers: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, WakeupBatcher]" = (
    weakref.WeakKeyDictionary()
)


def running() -> "asyncio.AbstractEventLoop":
    """Return the running event loop of this thread. Raises RuntimeError if none runs."""
    module = sys.modules.get("asyncio")
    if module is None:
        raise RuntimeError("no running event loop: await works in a coroutine that asyncio runs")
    loop: asyncio.AbstractEventLoop = module.get_running_loop()
    return loop


def batcher() -> WakeupBatcher:
    loop = running()
    found = _batchers.get(loop)
    if found is None:
        found = _batchers[loop] = WakeupBatcher(loop)
    return found


class Waiter:
    """An awaitable that completes when `wake` is called, in any thread, even before it is
    awaited.
    """

    __slots__ = ("_batcher", "_future")

    def __init__(self) -> None:
        self._batcher = batcher()
        self._future = running().create_future()

    def wake(self, _: Any = None) -> None:
        """Resume the coroutine that awaits this."""
        self._batcher.schedule(self._set)

    def __await__(self) -> Generator[Any, None, None]:
        yield from self._future

    def _set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)
