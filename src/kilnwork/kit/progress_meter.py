"""The progress of a long operation as one line of text: count, rate, and remaining time.

Used by the command line and by `progress=True` of the SDK. Does no I/O and reads no clock: the
caller passes the times.
"""

from collections import deque
from collections.abc import Callable

WINDOW_S = 15.0
"""Seconds over which the rate is measured: earlier progress says little about the rest."""

BAR = 10
"""Width of the bar in characters: narrow, so that the line with the remaining time fits into 80
columns.
"""
_LEAST_S = 0.5
"""Minimum seconds over which a rate is measured; over less time it would be noise."""


class Meter:
    """Meter of the progress towards `total`, which is None while it is unknown.

    `shown`: formats a count for people. `unit`: follows the count.
    """

    def __init__(self, total: int | None, shown: Callable[[float], str], *, unit: str = "") -> None:
        self.total = total
        self._shown = shown
        self._unit = unit
        self._marks: deque[tuple[float, int]] = deque()

    def at(self, done: int, *, now_s: float) -> None:
        """Record the count `done` at the time `now_s`.

        A lower count than before restarts the measurement.
        """
        if self._marks and done < self._marks[-1][1]:
            self._marks.clear()
        self._marks.append((now_s, done))
        while len(self._marks) > 2 and now_s - self._marks[1][0] >= WINDOW_S:
            self._marks.popleft()

    @property
    def rate(self) -> float | None:
        """The progress per second, None while it is unknown."""
        if len(self._marks) < 2:
            return None
        (then_s, before), (now_s, done) = self._marks[0], self._marks[-1]
        took_s = now_s - then_s
        return (done - before) / took_s if took_s >= _LEAST_S and done > before else None

    @property
    def left_s(self) -> float | None:
        """The seconds to the end at the current rate, None while they are unknown."""
        if self.total is None or not self.rate or not self._marks:
            return None
        return max(0, self.total - self._marks[-1][1]) / self.rate

    def text(self, *, left_s: float | None = None) -> str:
        """Return the line of text: bar, counts, remaining time and rate. `left_s`: a better
        estimate of the remaining time.
        """
        done = self._marks[-1][1] if self._marks else 0
        known = [f"{self._shown(done)}{self._unit}"]
        if self.total is not None:
            share = min(1.0, done / self.total) if self.total else 1.0
            full = int(share * BAR)
            known = [
                f"[{'#' * full}{'.' * (BAR - full)}] {share:4.0%}",
                f"{self._shown(done)} of {self._shown(self.total)}{self._unit}",
            ]
        rest = self.left_s if left_s is None else left_s
        if rest is not None and self.total is not None and done < self.total:
            known.append(f"{format_duration(rest)} left")
        if self.rate is not None:
            known.append(f"{self._shown(self.rate)}/s")
        return "  ".join(known)


def format_count(number: float) -> str:
    """Format a large number for people: `950`, `12,500`, `1.25M`."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= 100 * size or (number >= size and unit != "k"):
            return f"{number / size:.3g}{unit}"
    return f"{number:,.0f}"


def format_duration(seconds: float) -> str:
    """Format a duration for people: `4 s`, `3:05 min`, `2:10 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02} h"
