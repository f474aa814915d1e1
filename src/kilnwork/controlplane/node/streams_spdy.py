"""The streams of one SPDY/3.1 connection, from the server's side.

No I/O: see `streams_interface.Codec`. Follows github.com/moby/spdystream (connection.go): the peer
opens streams with odd, increasing ids; each stream gets a SYN_REPLY before anything is sent on it;
data on an unknown stream is dropped, since a reset may have crossed it; pings are sent back. Header
names are lower case.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kilnwork.controlplane.node import spdy, streams_interface

MAX_STREAMS = 1000
"""Maximum number of open streams per connection. A port-forward needs two per TCP connection."""


@dataclass(slots=True)
class _State:
    """The directions of a stream that are still open."""

    accepted: bool = False
    sending: bool = True
    receiving: bool = True


class SpdySession:
    """`streams_interface.Codec` for SPDY, with all streams of a connection."""

    def __init__(self) -> None:
        self._reader = spdy.FrameReader()
        self._writer = spdy.FrameWriter()
        self._open: dict[int, _State] = {}
        self._newest = 0
        self._out = bytearray()
        self._leaving = False

    def receive(self, piece: bytes) -> Iterable[streams_interface.Event]:
        """Return the events of these bytes. Raises `ProtocolError`."""
        for frame in self._reader.feed(piece):
            match frame:
                case spdy.SynStream():
                    yield from self._syn(frame)
                case spdy.DataPiece():
                    yield from self._data(frame)
                case spdy.RstStream(stream) if self._open.pop(stream, None) is not None:
                    yield streams_interface.StreamReset(stream)
                # Odd numbers are pings of the client, even ones replies to ours (2.6.5).
                case spdy.Ping(number) if number % 2:
                    self._out += spdy.ping(number)
                case spdy.GoAway():
                    yield streams_interface.PeerGone()
                case _:
                    pass

    def _syn(self, frame: spdy.SynStream) -> Iterator[streams_interface.Event]:
        stream = frame.stream
        if stream % 2 == 0 or stream <= self._newest:
            self._out += spdy.rst_stream(stream, spdy.PROTOCOL_ERROR)
            return
        if self._leaving or len(self._open) >= MAX_STREAMS:
            self._out += spdy.rst_stream(stream, spdy.REFUSED_STREAM)
            return
        self._newest = stream
        self._open[stream] = _State(receiving=not frame.fin)
        yield streams_interface.StreamOpened(stream, frame.headers)
        if frame.fin:
            yield streams_interface.StreamFinished(stream)

    def _data(self, frame: spdy.DataPiece) -> Iterator[streams_interface.Event]:
        state = self._open.get(frame.stream)
        if state is None or not state.receiving:
            return
        if frame.data:
            yield streams_interface.StreamData(frame.stream, frame.data)
        if frame.fin:
            state.receiving = False
            self._forget(frame.stream, state)
            yield streams_interface.StreamFinished(frame.stream)

    def _forget(self, stream: int, state: _State) -> None:
        if not state.sending and not state.receiving:
            self._open.pop(stream, None)

    def accept(self, stream: int) -> None:
        state = self._open.get(stream)
        if state is not None and not state.accepted:
            state.accepted = True
            self._out += self._writer.syn_reply(stream, {})

    def send(self, stream: int, content: bytes) -> None:
        """Send data frames. They are dropped if the stream has ended."""
        state = self._open.get(stream)
        if state is not None and state.sending and content:
            self._out += spdy.data(stream, content)

    def finish(self, stream: int) -> None:
        """Send an empty data frame with FIN."""
        state = self._open.get(stream)
        if state is not None and state.sending:
            state.sending = False
            self._out += spdy.data(stream, b"", fin=True)
            self._forget(stream, state)

    def reset(self, stream: int) -> None:
        """Send RST_STREAM, with status REFUSED_STREAM if the stream was never accepted."""
        state = self._open.pop(stream, None)
        if state is not None:
            status = spdy.CANCEL if state.accepted else spdy.REFUSED_STREAM
            self._out += spdy.rst_stream(stream, status)

    def close(self) -> None:
        """Reset all open streams, then send GOAWAY."""
        if self._leaving:
            return
        for stream in list(self._open):
            self.reset(stream)
        self._leaving = True
        self._out += spdy.go_away(self._newest)

    def take(self) -> bytes:
        """Return all bytes to send now, and forget them."""
        out = bytes(self._out)
        self._out.clear()
        return out
