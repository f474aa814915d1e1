"""Time for inline sessions: it stands still until a task sleeps or has to wait.

Used by `testing.inline_sessions` and `inline_runs`, which make `time.sleep` and the event loops of
async tasks use it while their tasks run. Other threads keep the machine's time.
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
    """Seconds that pass only on request: by `advance`, by sleeping tasks, by waiting for a
    retry."""

    def sleep(self, seconds: float) -> None:
        """As `time.sleep`, in no time."""
        self.advance(max(0.0, seconds))


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers are virtual, as long as nothing but timers can wake it.

    With a socket or a thread of an executor to wait for, it waits as any other.
    """

    def __init__(self, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._now = now
        super().__init__(_Selector(self, sleep))

    def time(self) -> float:
        return self._now()

    def only_timers(self, registered: int) -> bool:
        """Whether no file but the loop's own (which wakes it) is waited for, and no thread."""
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
    """`time.sleep` is `sleep` in the threads where it `applies`, until the end of the block."""

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
    """Run it in a thread, and wait for that: a fresh stack, and no event loop around it."""
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
