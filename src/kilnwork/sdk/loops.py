"""Waiting in an event loop: what a link's thread tells asyncio, many notifications in one call.

Used by futures and `waiting` for `await` and `async for`. Works in any running loop, starts no
thread. asyncio is not imported here, since starting would take twice as long: a caller that awaits
has.
"""

import sys
import weakref
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


class Bell:
    """Calls functions in a loop's thread; those that come together take one wake-up."""

    def __init__(self, loop: "asyncio.AbstractEventLoop") -> None:
        self._loop = weakref.ref(loop)
        self._due: deque[Callable[[], object]] = deque()
        self._rung = False

    def ring(self, call: Callable[[], object]) -> None:
        """From any thread. A loop that is closed hears nothing."""
        self._due.append(call)
        loop = self._loop()
        if self._rung or loop is None:
            return
        self._rung = True
        try:
            loop.call_soon_threadsafe(self._notify)
        except RuntimeError:
            self._due.clear()

    def _notify(self) -> None:
        self._rung = False
        while self._due:
            self._due.popleft()()


_bells: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Bell]" = weakref.WeakKeyDictionary()


def running() -> "asyncio.AbstractEventLoop":
    """The loop of this thread; raises RuntimeError when none runs."""
    module = sys.modules.get("asyncio")
    if module is None:
        raise RuntimeError("no running event loop: await works in a coroutine that asyncio runs")
    loop: asyncio.AbstractEventLoop = module.get_running_loop()
    return loop


def bell() -> Bell:
    loop = running()
    found = _bells.get(loop)
    if found is None:
        found = _bells[loop] = Bell(loop)
    return found


class Waiter:
    """One coroutine that sleeps until `wake`, which may come from any thread and before it does."""

    __slots__ = ("_bell", "_future")

    def __init__(self) -> None:
        self._bell = bell()
        self._future = running().create_future()

    def wake(self, _: Any = None) -> None:
        """Let it go on."""
        self._bell.ring(self._set)

    def __await__(self) -> Generator[Any, None, None]:
        yield from self._future

    def _set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)
