"""The callback thread, which runs all callbacks of users; it is started for the first callback.

Used by futures and sessions. A callback may take long, wait for other futures or raise: in the
thread that reads a link it would block all other results, and in a thread that waits for a result
it would come as a surprise.
"""

import logging
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)


class Runner:
    """The callback thread and its queue; runs callbacks in the order in which they became due."""

    def __init__(self) -> None:
        self._due: queue.SimpleQueue[tuple[Callable[[Any], object], Any]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, callback: Callable[[Any], object], future: Any) -> None:
        self._due.put((callback, future))
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="kiln callbacks", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            call(*self._due.get())


def call(callback: Callable[[Any], object], future: Any) -> None:
    """Call the callback now, and log an exception that it raises, as `concurrent.futures` does."""
    try:
        callback(future)
    except BaseException:
        log.exception("a callback of a future failed", extra={"future": repr(future)})


runner = Runner()


def _after_fork() -> None:
    global runner
    runner = Runner()


os.register_at_fork(after_in_child=_after_fork)
