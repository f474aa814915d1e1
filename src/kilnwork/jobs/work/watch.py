"""Watch: reports progress while a part is mapped or outputs are reduced, and raises Cancelled if
the task is to stop.

Used by `part`, `reduce` and `files.part_work`.
"""

from collections.abc import Callable

from kilnwork.kit import clock as clocks
from kilnwork.sdk import context, errors

OnProgress = Callable[[int], None]

PROGRESS_INTERVAL_S = 0.5


class Watch:
    """Function that reports progress, and raises Cancelled if the task is to stop.

    Call it with the number of the next record, as often as convenient. `first`: number of the first
    record; `count`: number of records. With another `unit`, such as bytes, both count that unit.
    """

    def __init__(
        self,
        here: context.Context,
        *,
        first: int,
        count: int,
        clock: clocks.Clock,
        unit: str = "records",
    ) -> None:
        self._here = here
        self._first = first
        self._count = count
        self._unit = unit
        self._monotonic = clock.monotonic
        self._next = clock.monotonic() + PROGRESS_INTERVAL_S

    def __call__(self, number: int) -> None:
        if self._here.cancelled:
            raise errors.Cancelled("the task was asked to stop")
        now = self._monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_INTERVAL_S
            done = min(max(number - self._first, 0), self._count)
            fraction = done / self._count if self._count else 1.0
            self._here.progress(fraction, f"{done:,} of {self._count:,} {self._unit}")
