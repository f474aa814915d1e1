"""The dispatcher's end of one connection: decodes messages, and makes them wait until the peer has
joined.

Used by `peers`, one `Link` for each connection. Messages go directly to the handler for that kind
of peer (`receive`). Whatever a peer sends, only its own link is affected: a frame that cannot be
decoded closes it with a `Refused` that gives the reason. While a peer does not read, the dispatcher
does not read from it, so that nothing accumulates.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from kilnwork.channel import errors as channel_errors
from kilnwork.channel import frames, messages
from kilnwork.dispatch import errors

log = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 10.0
"""Seconds within which a peer must send a Hello; otherwise its connection is closed."""

CLOSE_TIMEOUT_S = 5.0
"""Seconds within which a peer must read the last messages of a closing link; after that they are
dropped.
"""


UNREAD_BYTES = 8 << 20
"""Number of bytes that a peer has left unread above which the dispatcher stops reading from it."""

MAX_UNREAD_BYTES = 128 << 20
"""Maximum bytes that a peer leaves unread; with more it loses its link, and gets everything again
when it connects again.
"""


Receive = Callable[["Link", Any], None]
"""Handles one message of an open link; the kind of peer determines which messages are possible."""


class LinkOwner(Protocol):
    """The part that handles events of all links; implemented by `peers`."""

    def hello(self, link: "Link", message: messages.AnyHello) -> None:
        """Handle the Hello, the first message of a link.

        No other message is delivered before `receive` is set and `open` called.
        """
        ...

    def batch_ended(self, link: "Link") -> None:
        """Handle the end of a batch: all messages that could be read at this time were
        delivered.
        """
        ...

    def closed(self, link: "Link") -> None:
        """Handle the end of a link's connection."""
        ...


_DECODERS: dict[type, Callable[[bytes], messages.FromPeer]] = {
    messages.Hello: frames.decode_from_worker,
    messages.DriverHello: frames.decode_from_driver,
    messages.SlotHello: frames.decode_from_slot,
    messages.AttemptHello: frames.decode_from_attempt,
}


class Link(asyncio.Protocol):
    """The dispatcher's end of one connection. Its `number` is never reused."""

    def __init__(self, owner: LinkOwner, number: int) -> None:
        self.number = number
        self.hello: messages.AnyHello | None = None
        self.templates: set[int] = set()
        """Numbers of the templates that were sent to the peer."""
        self.is_open = False
        self.receive: Receive
        """Handler of messages; set before the link is opened."""
        self._closed = False
        self._owner = owner
        self._decode: Callable[[bytes], messages.FromPeer] = frames.decode_from_worker
        self._cutter = frames.Cutter()
        self._backlog: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self._pause_reasons: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._closed:  # the dispatcher has stopped since the connection was accepted
            self._transport.abort()
            return
        # Above this limit asyncio calls `pause_writing`, and then the link is not read either.
        self._transport.set_write_buffer_limits(high=UNREAD_BYTES)
        loop = asyncio.get_running_loop()
        self._hello_timer = loop.call_later(HELLO_TIMEOUT_S, self._refuse_silent_peer)

    def data_received(self, data: bytes) -> None:
        # This end has closed the link; data that still arrives is dropped.
        if self._transport is None:
            return
        try:
            bodies = self._cutter.feed(data)
            self._deliver(bodies)
        except channel_errors.MalformedFrame as error:
            self.refuse("Malformed", str(error), retry=False)
        # Also after an error: frames before the broken one were handled.
        self._owner.batch_ended(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._owner.closed(self)

    def pause_writing(self) -> None:
        self.pause_reading("unread")

    def resume_writing(self) -> None:
        self.resume_reading("unread")

    def open(self) -> None:
        """Deliver the messages that the peer sent before it joined, and all that follow."""
        # The link was closed while its greeting was being written.
        if self._transport is None:
            return
        self.is_open = True
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        bodies, self._backlog = self._backlog, []
        try:
            self._deliver(bodies)
        except channel_errors.MalformedFrame as error:
            self.refuse("Malformed", str(error), retry=False)
        self.resume_reading("hello")
        self._owner.batch_ended(self)

    def pause_reading(self, why: str) -> None:
        """Stop reading for the reason `why`, until every reason to pause has ended."""
        if not self._pause_reasons and self._transport is not None:
            self._transport.pause_reading()
        self._pause_reasons.add(why)

    def resume_reading(self, why: str) -> None:
        """End the reason `why` to pause; resume reading unless there is another reason."""
        if why in self._pause_reasons:
            self._pause_reasons.discard(why)
            if not self._pause_reasons and self._transport is not None:
                self._transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Send complete frames; drop them if the connection is closed (peers resume)."""
        transport = self._transport
        if transport is not None:
            transport.write(data)
            if transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
                log.warning("link closed: its peer does not read", extra={"link": self.number})
                # `close` would wait for the buffer to drain, which does not happen here.
                transport.abort()

    def write_all(self, sent: Iterable[frames.Sent]) -> None:
        """Send messages in one write."""
        self.write(b"".join(map(frames.encode, sent)))

    def respond(self, serial: int, status: int, body: bytes) -> None:
        """Respond to a request at once, without waiting for a commit."""
        self.write_all([messages.Response(serial, status, body)])

    def refuse(self, reason: str, message: str, *, retry: bool) -> None:
        """Send `Refused` to the peer and close the link."""
        if self._transport is None:
            return
        level = logging.INFO if reason == messages.LEAVING else logging.WARNING
        facts = {"link": self.number, "reason": reason, "why": message}
        log.log(level, "link closed", extra=facts)
        self.write(frames.encode(messages.Refused(reason, message[:4096], retry)))
        self.close()

    def close(self) -> None:
        """Close the connection after all written frames were sent.

        If the connection is not made yet, it is closed as soon as it is made.
        """
        # For a connection that is accepted but not made: `connection_made` aborts it.
        self._closed = True
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
            # `close` lets the peer read what was written, which may take forever.
            asyncio.get_running_loop().call_later(CLOSE_TIMEOUT_S, transport.abort)
        self._forget()

    def _forget(self) -> None:
        self._transport = None
        self.is_open = False
        self._backlog.clear()
        if self._hello_timer is not None:
            self._hello_timer.cancel()

    def _deliver(self, bodies: list[bytes]) -> None:
        try:
            for at, body in enumerate(bodies):
                # A handler may have closed the link at an earlier frame of the same read.
                if self._transport is None:
                    return
                if self.is_open:
                    self.receive(self, self._decode(body))
                elif self.hello is None:
                    self._receive_hello(frames.decode_hello(body))
                else:
                    # Frames in the same read as the Hello are kept until the peer is authenticated.
                    self._backlog += bodies[at:]
                    return
        # This is a bug of the hub: only this link is closed, and its peer connects again.
        except errors.IllegalTransition as error:
            log.exception("the machine refused a move", extra={"link": self.number})
            self.refuse("Internal", str(error).split("\n", 1)[0], retry=True)
        except errors.HubStopped:
            self.close()

    def _receive_hello(self, message: messages.AnyHello) -> None:
        """Handle the Hello, which names the kind of peer; later only messages of that kind are
        decoded.
        """
        self.hello = message
        self._decode = _DECODERS[type(message)]
        # A peer that is not authenticated must not fill the memory.
        self.pause_reading("hello")
        self._owner.hello(self, message)

    def _refuse_silent_peer(self) -> None:
        if self.hello is None:
            self.refuse("NoHello", f"no Hello within {HELLO_TIMEOUT_S:g} s", retry=True)
