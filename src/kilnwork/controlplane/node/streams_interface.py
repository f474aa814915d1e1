"""Multiplexed streams on one connection: their events, and `Codec`, the port for protocols.

No I/O: a codec turns bytes into events, and calls into bytes. exec, attach and port-forward need
named streams (stdin, stdout, …), whichever protocol carries them. Each protocol has a `Codec`: SPDY
(`streams_spdy`), WebSocket channels, and SPDY inside a WebSocket (both in `streams_websocket`).
`multiplexed_connection` connects a codec to a transport.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from kilnwork.controlplane.node import errors

TYPE = "streamtype"
"""Header with the purpose of a stream: one of the constants below."""

STDIN, STDOUT, STDERR = "stdin", "stdout", "stderr"
ERROR, RESIZE, DATA = "error", "resize", "data"


class ProtocolError(errors.NodeError):
    """The peer has violated the protocol. The connection must be closed."""


class StreamOpened(NamedTuple):
    """Event: the peer opened a stream, which needs `Codec.accept` or `Codec.reset`."""

    stream: int
    headers: Mapping[str, str]


class StreamData(NamedTuple):
    """Event: bytes, at least one, arrived on an accepted stream."""

    stream: int
    data: bytes


class StreamFinished(NamedTuple):
    """Event: the peer sends no more on a stream, but still reads."""

    stream: int


class StreamReset(NamedTuple):
    """Event: the peer neither sends nor reads on a stream any more."""

    stream: int


class PeerGone(NamedTuple):
    """Event: the peer closes all streams."""


Event = StreamOpened | StreamData | StreamFinished | StreamReset | PeerGone


class Codec(Protocol):
    """Port for the protocol of one connection. `take` returns the bytes to send, in order."""

    def receive(self, piece: bytes) -> Iterable[Event]:
        """Return the events of these bytes. Raises `ProtocolError`."""

    def accept(self, stream: int) -> None:
        """Accept a stream that the peer has opened."""

    def send(self, stream: int, content: bytes) -> None:
        """Send bytes to the peer. They are dropped if the stream has ended."""

    def finish(self, stream: int) -> None:
        """Send nothing more on this stream."""

    def reset(self, stream: int) -> None:
        """End the stream in both directions."""

    def close(self) -> None:
        """Close all streams. The transport may be closed once the bytes of `take` are sent."""

    def take(self) -> bytes:
        """Return all bytes to send now, and forget them."""
