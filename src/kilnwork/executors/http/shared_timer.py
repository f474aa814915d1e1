"""Calls that are made after one fixed delay unless they are cancelled, as nearly all of them are;
one timer serves them all.

Used by `attempt`, for reports of attempts that take longer than most. Not for deadlines: a call is
made when it is due or a little later.
"""

import asyncio
from collections.abc import Callable

Call = Callable[[], None]


class DelayedCalls:
    """Scheduler that makes each call after the same delay, `delay_s`. For one event loop."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._due: dict[Call, float] = {}
        """When each call is due; in this order, since all calls have the same delay."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, call: Call) -> None:
        """Schedule a call after the delay; a call that is scheduled already is postponed."""
        loop = asyncio.get_running_loop()
        self._due.pop(call, None)
        self._due[call] = loop.time() + self._delay_s
        if self._timer is None:
            self._timer = loop.call_later(self._delay_s, self._ring)

    def cancel(self, call: Call) -> None:
        """Cancel a call; do nothing if it is not scheduled."""
        self._due.pop(call, None)

    def close(self) -> None:
        """Cancel all calls."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        """Make the calls that are due, and set the timer for the oldest remaining call.

        The call that the timer was set for may have been cancelled.
        """
        loop = asyncio.get_running_loop()
        self._timer, now = None, loop.time()
        due = []
        for call, at in self._due.items():
            if at > now:
                self._timer = loop.call_later(at - now, self._ring)
                break
            due.append(call)
        for call in due:
            if self._due.pop(call, None) is not None:  # an earlier call may have cancelled it
                call()
