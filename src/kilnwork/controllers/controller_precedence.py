"""Precedence of one controller over others while many of its keys are due.

Used by `assembly`: while thousands of JobConfigs are due, the Jobs of their ticks are created
before existing Jobs are processed, so that no tick waits for other work.
"""

import asyncio

from kilnwork.kit import clock
from kilnwork.kube import queue

BEHIND = 64
"""Number of ready keys in a queue above which other controllers wait."""

MAX_HELD_S = 30.0
"""Maximum wait of other controllers in seconds: a load that lasts longer is not a burst, and all
controllers share it."""

LOOK_S = 0.05


class Precedence:
    """Precedence of the controller of one queue. Other controllers call `wait` before each pass,
    and so wait while many keys of that queue are ready.
    """

    def __init__(self, first: queue.WorkQueue, *, time: clock.Clock) -> None:
        self._first, self._time = first, time
        self._since: float | None = None

    async def wait(self) -> None:
        """Wait until few keys of the preferred queue are ready, so that it has no precedence any
        more.
        """
        while True:
            if not self._holds():
                return
            await asyncio.sleep(LOOK_S)

    def _holds(self) -> bool:
        if len(self._first) <= BEHIND:
            self._since = None
            return False
        now = self._time.monotonic()
        if self._since is None:
            self._since = now
        return now - self._since < MAX_HELD_S
