"""The virtual clock of inline sessions, which stands still until a task sleeps or has to wait.

Used by `testing.inline_sessions` and `inline_tasks`, which redirect `time.sleep` and the event
loops of async tasks to it while their tasks run; `inline_flows` redirects only `time.sleep`. Other
threads use real time.
"""

import asyncio
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, SupportsIndex

from kilnwork.kit import clock

real_sleep = time.sleep


class VirtualClock(clock.ManualClock):
    """A clock that advances when tasks sleep or wait for a retry or timeout, and by `advance`."""

    def sleep(self, seconds: float) -> None:
        """Advance the clock as if the caller had slept, but return at once."""
        self.advance(max(0.0, seconds))


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers take no real time, as long as only timers can wake it.

    While it waits for a socket or a thread of an executor, it waits like any other event loop.
    """

    def __init__(self, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._now = now
        super().__init__(_Selector(self, sleep))

    def time(self) -> float:
        return self._now()

    def only_timers(self, registered: int) -> bool:
        """Return whether only timers can wake the loop.

        This is so while the loop has no executor, and watches no file but its own wake-up file.
        """
        return registered <= 1 and getattr(self, "_default_executor", None) is None


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop, sleep: Callable[[float], None]) -> None:
        super().__init__()
        self._loop = loop
        self._sleep = sleep

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None or timeout <= 0 or not self._loop.only_timers(len(self.get_map())):
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self._sleep(timeout)
        return ready


@contextmanager
def patched(sleep: Callable[[float], None], *, applies: Callable[[], bool]) -> Iterator[None]:
    """Replace `time.sleep` by `sleep` within the block, in threads in which `applies` returns
    True.
    """

    def sleeping(seconds: float | SupportsIndex, /) -> None:
        if applies():
            sleep(float(seconds))
        else:
            real_sleep(seconds)

    before, time.sleep = time.sleep, sleeping
    try:
        yield
    finally:
        time.sleep = before


def in_new_thread(work: Callable[[], None]) -> None:
    """Run `work` in a new thread, with a fresh stack and no running event loop, and wait for it."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    thread = threading.Thread(target=run, name="kiln inline")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
