"""Calls after one and the same delay, nearly all of which are cancelled before: one timer for all.

Used by `attempt`, for what an attempt says if it takes longer than most. Not for deadlines: a call
is made when it is due or a little later.
"""

import asyncio
from collections.abc import Callable

Call = Callable[[], None]


class DelayedCalls:
    """Makes each call after `delay_s`. For one event loop."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._due: dict[Call, float] = {}
        """In order: the delay is the same for all."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, call: Call) -> None:
        """Make a call after the delay, which starts again if the call waits already."""
        loop = asyncio.get_running_loop()
        self._due.pop(call, None)
        self._due[call] = loop.time() + self._delay_s
        if self._timer is None:
            self._timer = loop.call_later(self._delay_s, self._ring)

    def cancel(self, call: Call) -> None:
        """Do not make it."""
        self._due.pop(call, None)

    def close(self) -> None:
        """Make none any more."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        """Make those that are due. The timer was for the oldest, which may be gone: then it is set
        again, for the one that is the oldest now."""
        loop = asyncio.get_running_loop()
        self._timer, now = None, loop.time()
        due = []
        for call, at in self._due.items():
            if at > now:
                self._timer = loop.call_later(at - now, self._ring)
                break
            due.append(call)
        for call in due:
            if self._due.pop(call, None) is not None:  # one before it may have cancelled it
                call()
