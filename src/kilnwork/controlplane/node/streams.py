"""Multiplexed streams on one connection: events and the port of the protocols. Pure.

exec, attach and port-forward need streams with names (stdin, stdout, …), whatever the protocol:
SPDY (`streams_spdy`), WebSocket channels and SPDY inside a WebSocket (`streams_websocket`) are each
a `Codec`. `multiplexed_connection` connects a codec to a transport.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from kilnwork.controlplane.node import errors

TYPE = "streamtype"
"""Header with the purpose of a stream: one of the constants below."""

STDIN, STDOUT, STDERR = "stdin", "stdout", "stderr"
ERROR, RESIZE, DATA = "error", "resize", "data"


class ProtocolError(errors.NodeError):
    """The peer violates the protocol: the connection must be closed."""


class StreamOpened(NamedTuple):
    """Event: the peer opened a stream. `Codec.accept` it or `Codec.reset` it."""

    stream: int
    headers: Mapping[str, str]


class StreamData(NamedTuple):
    """Event: bytes arrived on an accepted stream. They are never empty."""

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
    """Protocol of one connection. `take` returns the bytes to send, in order."""

    def receive(self, piece: bytes) -> Iterable[Event]:
        """Return the events of these bytes. Raises `ProtocolError`."""

    def accept(self, stream: int) -> None:
        """Accept a stream that the peer has opened."""

    def send(self, stream: int, content: bytes) -> None:
        """Send bytes to the peer; dropped if the stream has ended."""

    def finish(self, stream: int) -> None:
        """Send nothing more on this stream."""

    def reset(self, stream: int) -> None:
        """End the stream in both directions."""

    def close(self) -> None:
        """Close all streams; the transport may be closed once that is sent."""

    def take(self) -> bytes:
        """Return everything that is to be sent now, once."""
