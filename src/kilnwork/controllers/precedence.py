"""Precedence of controllers while very much is due at once.

Used by `assembly`: while thousands of JobConfigs are due, the Jobs of their ticks are made before
those that are there are looked at, so that no tick waits for the work of others.
"""

import asyncio

from kilnwork.kit import clock
from kilnwork.kube import queue

BEHIND = 64
"""How many keys may be ready in a queue before other controllers wait."""

MAX_HELD_S = 30.0
"""The longest wait of other controllers: if the load lasts longer, it is no burst, and all
share."""

LOOK_S = 0.05


class Precedence:
    """Makes other controllers wait while many keys of a queue are ready."""

    def __init__(self, first: queue.WorkQueue, *, time: clock.Clock) -> None:
        self._first, self._time = first, time
        self._since: float | None = None

    async def wait(self) -> None:
        """Wait while the queue has precedence."""
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
