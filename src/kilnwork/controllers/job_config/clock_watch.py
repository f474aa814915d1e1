"""Detection of steps of the wall clock, for which there is no notification.

Used by `assembly` for the JobConfig controller, whose timers use the monotonic clock. Both clocks
run equally fast, also while NTP slews them; they diverge only by a step, or while the machine
sleeps.
"""

import asyncio
from collections.abc import Callable

from kilnwork.kit import clock

LOOK_S = 1.0
"""Seconds between two comparisons: the maximum delay of ticks after the clock was set forward."""

STEP_S = 0.2
"""Minimum difference that counts as a step: the two clocks are not read at the same moment."""


class ClockWatch:
    """Detector of steps of the wall clock, which calls `on_step` after each one."""

    def __init__(self, time: clock.Clock, on_step: Callable[[], None]) -> None:
        self._time, self._on_step = time, on_step
        self._offset = self._read()

    async def run(self) -> None:
        """Compare the clocks periodically until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Compare the clocks once, and call `on_step` if the wall clock was set."""
        offset = self._read()
        if abs(offset - self._offset) > STEP_S:
            self._on_step()
            self._offset = offset

    def _read(self) -> float:
        return self._time.wall() - self._time.monotonic()
