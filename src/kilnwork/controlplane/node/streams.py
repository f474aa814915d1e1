"""Several streams on one connection: what is heard of them and what can be said. Pure.

exec, attach and port-forward need streams with names (stdin, stdout, …) and do not care how they
travel: SPDY (`streams_spdy`), WebSocket channels and SPDY inside of a WebSocket
(`streams_websocket`) are each a `Codec`. `streams_io` joins a codec with a transport.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from kilnwork.controlplane.node import errors

TYPE = "streamtype"
"""The header that says what a stream is for: one of the words below."""

STDIN, STDOUT, STDERR = "stdin", "stdout", "stderr"
ERROR, RESIZE, DATA = "error", "resize", "data"


class ProtocolError(errors.NodeError):
    """The peer does not keep to the protocol: nothing to do but to close."""


class Opened(NamedTuple):
    """The peer opened a stream: `Codec.accept` it or `Codec.reset` it."""

    stream: int
    headers: Mapping[str, str]


class Received(NamedTuple):
    """Bytes on an accepted stream, never empty."""

    stream: int
    data: bytes


class Finished(NamedTuple):
    """The peer sends no more on this stream, but reads on."""

    stream: int


class WasReset(NamedTuple):
    """The peer neither sends nor reads on this stream any more."""

    stream: int


class Gone(NamedTuple):
    """The peer says goodbye to all streams."""


Event = Opened | Received | Finished | WasReset | Gone


class Codec(Protocol):
    """One connection's protocol. What it wants to send waits in `take`, in order."""

    def receive(self, piece: bytes) -> Iterable[Event]:
        """What these bytes mean; raises `ProtocolError`."""

    def accept(self, stream: int) -> None:
        """Say that the stream is served."""

    def send(self, stream: int, content: bytes) -> None:
        """Bytes for the peer; dropped if the stream is over."""

    def finish(self, stream: int) -> None:
        """Nothing more from us on this stream."""

    def reset(self, stream: int) -> None:
        """End the stream both ways."""

    def close(self) -> None:
        """Say goodbye; the transport may be closed once that is sent."""

    def take(self) -> bytes:
        """Everything to be sent now, once."""
