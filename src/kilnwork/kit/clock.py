"""The clocks of the machine, which all other modules read through this one.

Used by all packages. Everything that needs the time takes a `Clock`, so that tests can choose it;
the only exceptions are the times in ids (`ids`) and a deadline in `worker.sidecar`. Wall time is
for people and records; monotonic time is for leases and deadlines and never jumps.
"""

import functools
import re
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """A source of the time: wall time for people, monotonic time for deadlines."""

    def wall(self) -> float:
        """Return the wall time as seconds since the Unix epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Return the monotonic time in seconds since some fixed moment; only differences are
        meaningful.
        """
        ...


class SystemClock:
    """The clock of the machine."""

    wall = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class ManualClock:
    """A clock that stands still until a test advances it."""

    def __init__(self, wall: float = 1_700_000_000.0) -> None:
        self._wall = wall
        self._monotonic = 0.0

    def wall(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def jump(self, seconds: float) -> None:
        """Move only the wall time, as when an administrator sets the clock."""
        self._wall += seconds

    def advance(self, seconds: float) -> None:
        """Move both wall time and monotonic time forward."""
        self._wall += seconds
        self._monotonic += seconds


FIRST_S = -62_135_596_800.0
"""The first second of the year 1 of UTC: the first time that can be written."""

END_S = 253_402_300_800.0
"""The first second of the year 10000 of UTC: the first time that cannot be written."""


_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
    r"(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-5][0-9])"
)
"""Form of a time that `metav1.Time` reads; datetime.fromisoformat reads other forms, too."""


def rfc3339(seconds: float) -> str:
    """Format a time as `metav1.Time`: whole seconds, UTC, as Kubernetes writes
    creationTimestamp.
    """
    return _to_the_second(int(seconds)) + "Z"


def rfc3339_micro(seconds: float) -> str:
    """Format a time as `metav1.MicroTime`: six digits of fraction, as Kubernetes writes times of
    Leases and Events.
    """
    whole, micro = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_to_the_second(whole)}.{micro:06d}Z"


@functools.lru_cache(maxsize=1024)
def _to_the_second(seconds: int) -> str:
    """Format a time in whole seconds, with a cache, since many events fall into the same second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def parse_rfc3339(text: str) -> float:
    """Return seconds since the epoch for an RFC 3339 time, with T and Z in upper case.

    Raises ValueError for anything else, and for times in the years 0 and 10000 of UTC, which
    `rfc3339` could not write.
    """
    if not _RFC3339.fullmatch(text):
        raise ValueError(f"{text!r} is no time in RFC 3339: write it as 2026-01-02T03:04:05Z")
    seconds = datetime.fromisoformat(text).timestamp()
    if not FIRST_S <= seconds < END_S:  # a fraction may have been rounded up
        raise ValueError(f"{text!r} is in no year from 1 to 9999 of UTC")
    return seconds
