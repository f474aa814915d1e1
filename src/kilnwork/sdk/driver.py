"""The session of a user's process: opened, used in a `with` block or until the end, closed.

Made by `local` (start) and `remote` (connect). The innermost open one is what task functions submit
to; closing it sends what was submitted and leaves the tasks to the dispatcher.
"""

import atexit
import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from kilnwork.channel import errors as channel_errors
from kilnwork.kit import errors as kit_errors
from kilnwork.sdk import session

ACCEPTED_S = 2.0
"""`close` waits so long for the dispatcher to accept some of what was submitted, again and again
until it has accepted everything."""

NOT_ACCEPTED = (
    "calls that the dispatcher has not accepted within {:g} s and that may never run: {}. It is "
    "too busy, or its disk is full: take their results before the session is closed, or submit "
    "them again"
)


class Driver(session.Session):
    """See the module. `on_close` is called once, after the link is closed or could not be opened;
    never in a process that was forked from the one that made this."""

    def __init__(self, *, on_close: Callable[[], None] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._on_close = on_close
        self._closing = threading.Lock()
        self._closed = False
        self._made_by = os.getpid()

    def open(self, *, timeout_s: float) -> None:
        """Connect, and become the innermost session.

        Raises `channel.errors.LinkRefused` or `LinkClosed`, or what `connect` raised.
        """
        try:
            self.link.open(timeout_s=timeout_s)
        except BaseException:
            self.close()
            raise
        session.activate(self)
        atexit.register(self.close)

    def lost(self, error: Exception) -> None:
        """Whoever watches the dispatcher knows that it is gone: look now, not after a while."""
        self.link.hurry()

    def close(self) -> None:
        """Send what was submitted and end the session; tasks go on. Repeatable, any thread.

        Warns (RuntimeWarning) of calls that the dispatcher did not accept meanwhile. Futures that
        are not done raise `errors.DispatcherLost` from then on.
        """
        if os.getpid() != self._made_by:
            session.deactivate(self)
            return
        with self._closing:
            if self._closed:
                return
            self._closed = True
            session.deactivate(self)
            atexit.unregister(self.close)
            try:
                left = self._leave()
            finally:
                if self._on_close is not None:
                    self._on_close()
        if left:
            warnings.warn(NOT_ACCEPTED.format(ACCEPTED_S, left), RuntimeWarning, stacklevel=2)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self.link.failure is None else "lost"
        return f"<Session {state}: namespace {self.namespace}, cluster {self.cluster}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        await sys.modules["asyncio"].to_thread(self.close)

    def _leave(self) -> int:
        """End the link; how many calls were not accepted although it stood."""
        left = 0
        if self.link.failure is None:
            with contextlib.suppress(channel_errors.ChannelError, kit_errors.KilnError):
                left = self._wait_until_accepted()
        self.gone(channel_errors.LinkClosed("the session was closed"))
        self.link.close()
        self.gone(channel_errors.LinkClosed("the session was closed"))  # what came meanwhile
        return left

    def _wait_until_accepted(self) -> int:
        """As long as it goes on; how many calls are left."""
        left = self.unaccepted
        while not self.link.wait(self.all_accepted, ACCEPTED_S):
            before, left = left, self.unaccepted
            if left >= before:
                return left
        return 0
