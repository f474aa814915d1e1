"""Supervised processes of a home with their restart delays, and the pipe of the worker's output.

Used by `home_supervisor` in its own thread, and by the two kinds of home.
"""

import codecs
import contextlib
import os
import sys

from kilnwork.kit import backoff
from kilnwork.sdk import child_processes

_SHORT_LIFE_S = 10.0
_TRIES = 5
"""A process that has ended more than `_TRIES` times in a row, each time within `_SHORT_LIFE_S` of
its start, is not restarted any more."""

_AGAIN = backoff.Backoff(base_s=0.2, max_s=5.0)
_OUTPUT_BYTES = 1 << 16
LOCKED = 3
"""Exit code of a dispatcher whose journal is held by another process: a restart would not help."""

BROKEN = 4
"""Exit code of a worker that could not start its slots; it counts as a short life, however long the
worker ran."""


def pipe() -> tuple[int, int]:
    """Return the two descriptors of a new pipe, both at least 3.

    The driver may have closed its standard streams, whose numbers are then free.
    """
    start, end = os.pipe()
    return child_processes.above_streams(start), child_processes.above_streams(end)


class SupervisedProcess:
    """A process of a home that is restarted after it has ended, with a delay after short lives."""

    def __init__(
        self, child: child_processes.Child, now: float, before: "SupervisedProcess | None"
    ) -> None:
        self.child = child
        self._since = now
        self._short_lives = 0 if before is None else before.short_lives
        self._again: float | None = None

    @property
    def short_lives(self) -> int:
        """The number of successive processes that ended soon after their start; `wait_s` updates
        it.
        """
        return self._short_lives

    def wait_s(self, now: float) -> float | None:
        """Return the seconds until the process may be restarted, or None after too many tries."""
        if self._again is None:
            short = now - self._since < _SHORT_LIFE_S or self.child.code == BROKEN
            self._short_lives = self._short_lives + 1 if short else 0
            self._again = now + _AGAIN.delay_s(self._short_lives - 1)
        if self._short_lives > _TRIES or self.child.code == LOCKED:
            return None
        return max(0.0, self._again - now)


class Output:
    """The pipe from the worker's standard output to the driver's `sys.stdout`."""

    def __init__(self) -> None:
        self.start, self.end = pipe()
        os.set_blocking(self.start, False)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def copy(self) -> None:
        """Copy the data that is in the pipe to `sys.stdout`, without blocking."""
        with contextlib.suppress(BlockingIOError, OSError):
            while data := os.read(self.start, _OUTPUT_BYTES):
                self._write(self._decoder.decode(data))

    def close(self) -> None:
        """Close both ends of the pipe; may be called more than once."""
        for descriptor in (self.start, self.end):
            if descriptor >= 0:
                os.close(descriptor)
        self.start = self.end = -1

    def _write(self, text: str) -> None:
        with contextlib.suppress(Exception):  # a program may have replaced `sys.stdout` by anything
            sys.stdout.write(text)
            sys.stdout.flush()
