"""The session of a user's process: opened by `start` or `connect`, closed after a `with` block or
at exit.

Created by `local` (start) and `remote` (connect). Task functions submit to the innermost open
session; closing it sends the submitted calls and leaves the tasks to the dispatcher. The base
class, `session.Session`, sends calls in batches, and again on a new connection.
"""

import atexit
import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from kilnwork.channel import errors as channel_errors
from kilnwork.kit import errors as kit_errors
from kilnwork.sdk import errors, session

log = logging.getLogger(__name__)

CLOSE_S = 10.0
"""Default `close_timeout` in seconds: a killed dispatcher is restarted within this time, and users
do not wait longer for the end of a program."""

RECONNECT_S = 60.0
"""Default `reconnect_timeout` of `start` in seconds: another driver restarts the dispatcher within
seconds."""

RECONNECT_TO_SERVER_S = 120.0
"""Default `reconnect_timeout` of `connect` in seconds: the time for which a manager may be
unreachable before tasks are ended (`kiln install --lease`, 60 s), and some more to find its new
address."""

QUIET_S = 2.0
"""Seconds without progress after which `close` logs that it waits."""

NOT_ACCEPTED = (
    "calls that the dispatcher has not accepted within {:g} s and that may never run: {}. It is "
    "too busy, or its disk is full: take their results before the session is closed, wait longer "
    "(close_timeout=), or submit them again"
)

UNFINISHED = (
    "calls of this session that are not over and end with it: {}. kiln.start() keeps everything in "
    "memory: wait for them before the session ends (result(), kiln.gather, kiln.wait), cancel "
    'them, or keep them by kiln.start("DIRECTORY")'
)

NEVER_ACCEPTED = (
    "calls that the dispatcher had not accepted when its link was lost ({}) and that may never "
    "run: {}. Submit them again"
)


def checked_seconds(name: str, value: float) -> float:
    """Return the value of an option in seconds. Raises ConfigurationError if it is invalid."""
    if type(value) not in (int, float) or not 0 <= value < 1e9:
        raise kit_errors.ConfigurationError(f"{name}={value!r}: a number of seconds, 0 or more")
    return float(value)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The options `reconnect_timeout` and `close_timeout` of `start` and `connect`, in seconds."""

    reconnect_s: float
    close_s: float

    @classmethod
    def checked(cls, reconnect_timeout: float, close_timeout: float) -> Self:
        """Return the timeouts after checking both. Raises ConfigurationError."""
        return cls(
            checked_seconds("reconnect_timeout", reconnect_timeout),
            checked_seconds("close_timeout", close_timeout),
        )


class Driver(session.Session):
    """A session of a user's process with a dispatcher; `kiln.start` and `kiln.connect` return one.

    `on_close` is called once, after the link was closed or could not be opened, but never in a
    forked copy of the process that created the session. `close_timeout`: see `close`.
    """

    def __init__(
        self,
        *,
        on_close: Callable[[], None] | None = None,
        close_timeout: float = CLOSE_S,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._on_close = on_close
        self._close_timeout = close_timeout
        self._closing = threading.Lock()
        self._closed = False
        self._failing = False
        """Whether the `with` block was left by an error, so that no warning is needed."""
        self._made_by = os.getpid()

    def open(self, *, timeout_s: float) -> None:
        """Connect to the dispatcher and become the innermost session.

        Raises `channel.errors.LinkRefused` or `LinkClosed`, or the error that `connect` raised.
        """
        try:
            self.link.open(timeout_s=timeout_s)
        except BaseException:
            self.close()
            raise
        session.activate(self)
        atexit.register(self.close)

    def lost(self, error: Exception) -> None:
        """Reconnect at once, without back-off; called when the dispatcher's process has ended."""
        self.link.reconnect_now()

    def close(self, timeout: float | None = None) -> None:
        """Send the submitted calls and end the session; the tasks continue.

        May be called more than once and from any thread. Waits until the dispatcher has accepted
        all calls, for at most `timeout` seconds after the last call that it has accepted (None: the
        `close_timeout` of the session). Warns (RuntimeWarning) about calls that were not accepted,
        and about calls that end with a session whose journal is in memory. Futures that are not
        done raise `errors.DispatcherLost` from then on.
        """
        wait_s = self._close_timeout if timeout is None else checked_seconds("timeout", timeout)
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
                warning = self._leave(wait_s)
            finally:
                if self._on_close is not None:
                    self._on_close()
        if warning:
            warnings.warn(warning, RuntimeWarning, stacklevel=2)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self.link.failure is None else "lost"
        return f"<Session {state}: namespace {self.namespace}, cluster {self.cluster}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._failing = kind is not None
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._failing = kind is not None
        await sys.modules["asyncio"].to_thread(self.close)

    def _leave(self, wait_s: float) -> str:
        """Close the link and return the text of a warning, or "" if there is nothing to warn about.

        The warning is about calls that are not accepted, or not finished.
        """
        failure = self.link.failure
        if failure is None:
            try:
                self._wait_until_accepted(wait_s)
            except (channel_errors.ChannelError, kit_errors.KilnError) as error:
                failure = error
        unfinished = 0 if failure is not None or self.durable else self.unfinished
        self.link_ended(channel_errors.LinkClosed("the session was closed"))
        self.link.close()
        self.link_ended(
            channel_errors.LinkClosed("the session was closed")
        )  # calls that were submitted meanwhile
        if unfinished and not self._failing:
            return UNFINISHED.format(unfinished)
        if not self.dropped or isinstance(failure, errors.DispatcherLost):
            return ""  # a dispatcher in memory is lost with its calls, as every future reports
        if failure is not None:
            return NEVER_ACCEPTED.format(failure, self.dropped)
        return NOT_ACCEPTED.format(wait_s, self.dropped)

    def _wait_until_accepted(self, wait_s: float) -> None:
        quiet_s = min(QUIET_S, wait_s)
        warned = False
        left = self.unaccepted
        while not self.link.wait(self.all_accepted, quiet_s):
            before, left = left, self.unaccepted
            if left < before:
                continue
            if not warned and wait_s > quiet_s:
                warned = True
                log.warning(
                    "closing the session: the dispatcher is to accept %d calls; waiting up to %g s",
                    left,
                    wait_s,
                )
            if not self.link.wait(self._fewer_than(left), max(0.0, wait_s - quiet_s)):
                return

    def _fewer_than(self, left: int) -> Callable[[], bool]:
        return lambda: self.unaccepted < left
