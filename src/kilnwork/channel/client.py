"""The blocking end of a link: for drivers and slots, whose threads wait for results.

Used by `sdk` (drivers) and by the worker's slots. No event loop: whichever thread waits reads the
socket itself, and one background thread stands in when nobody does. Outlives many connections.
"""

import socket
from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from kilnwork.channel import frames, messages
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids

M = TypeVar("M", bound=messages.ToDriver | messages.ToSlot)
M_contra = TypeVar("M_contra", bound=messages.ToDriver | messages.ToSlot, contravariant=True)


class Handler(Protocol[M_contra]):
    """Whom a link speaks for. Called in whichever thread reads; must not block or raise."""

    def hello(self, epoch: int) -> messages.DriverHello | messages.SlotHello:
        """The first frame of a new connection; `epoch`: the highest seen."""
        ...

    def attached(self, message: messages.Attached) -> Iterable[frames.Sent]:
        """What to send first on a new connection, in order."""
        ...

    def received(self, message: M_contra) -> None:
        """Everything after Attached, except Refused."""
        ...

    def gather(self) -> None:
        """The link is about to write: `send` what was kept back to be sent together."""
        ...

    def tick(self) -> None:
        """About every 50 ms from the background thread, while no thread waits."""
        ...

    def gone(self, error: Exception) -> None:
        """The link is over for good: nothing will be sent or received any more."""
        ...


class Link(Generic[M]):
    """See the module."""

    def __init__(
        self,
        handler: Handler[M],
        *,
        connect: Callable[[], socket.socket],
        decode: Callable[[bytes], M],
        clock: clocks.Clock,
        entropy: ids.Entropy,
        patience_s: float = 60.0,
    ) -> None:
        self.failure: Exception | None = None

    def open(self, *, timeout_s: float) -> None:
        """First connection. Raises `LinkRefused`, `LinkClosed` or what `connect` does."""
        raise NotImplementedError

    def send(self, message: frames.Sent) -> None:
        """Encoded now, written soon; dropped while there is no connection. Any thread."""
        raise NotImplementedError

    def soon(self) -> None:
        """`Handler.gather` has something to send: within about a millisecond."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write what was sent so far, without waiting for a slow dispatcher."""
        raise NotImplementedError

    def attend(self) -> None:
        """What comes in is wanted though no thread waits for it (callbacks, event loops)."""
        raise NotImplementedError

    def wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Until `done()`; False after `timeout_s`. Raises `failure` when the link is over."""
        raise NotImplementedError

    def wake(self) -> None:
        """Let all that wait look at their `done` again."""
        raise NotImplementedError

    def hurry(self) -> None:
        """Connect again now, if there is no connection, instead of after the back-off."""
        raise NotImplementedError

    def close(self) -> None:
        """Write what was sent, end the connection and the thread. Repeatable."""
        raise NotImplementedError
