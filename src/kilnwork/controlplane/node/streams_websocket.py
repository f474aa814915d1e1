"""Streams over WebSocket messages, from the server's side.

No I/O: see `streams_interface.Codec`. There are two protocols. *Channels*: the first byte of a
message is the number of its stream (k8s.io/apimachinery wsstream/conn.go; KEP-4006 for version 5,
whose message `255, n` ends stream n). In the base64 variants the number is a digit, and the rest is
base64. *Tunnel*: the messages are the bytes of an SPDY connection (`SPDY/3.1+portforward.k8s.io`,
KEP-4006).

The library `websockets` reads and writes the frames of RFC 6455; the HTTP part is in `upgrades`.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence

from websockets import frames, protocol

from kilnwork.controlplane.node import streams_interface, streams_spdy

MAX_MESSAGE = 16 * 1024 * 1024
"""Maximum size of a message from the peer. Messages of kubectl have 32 KiB."""

CLOSE_SIGNAL = 255
_NORMAL_CLOSURE = 1000
_PIECE = 32 * 1024


class _Messages:
    """Reads and writes whole messages of one WebSocket. The library replies to pings."""

    def __init__(self) -> None:
        self._protocol = protocol.Protocol(protocol.Side.SERVER, max_size=MAX_MESSAGE)
        self._parts: list[bytes] = []

    def receive(self, piece: bytes) -> Iterator[bytes | None]:
        """Yield the messages that `piece` completes, and None when the peer closes."""
        self._protocol.receive_data(piece)
        for event in self._protocol.events_received():
            assert isinstance(event, frames.Frame)  # noqa: S101 - a server gets nothing else
            if event.opcode is frames.Opcode.CLOSE:
                yield None
            elif event.opcode in frames.DATA_OPCODES:
                self._parts.append(bytes(event.data))
                if event.fin:
                    message, self._parts = b"".join(self._parts), []
                    yield message
        # Raised after the events, since messages before the violation are still valid.
        if self._protocol.parser_exc is not None:
            raise streams_interface.ProtocolError(f"WebSocket: {self._protocol.parser_exc}")

    def send(self, message: bytes, *, text: bool = False) -> None:
        """Send one message. It is dropped once either side has closed."""
        if self._protocol.state is protocol.State.OPEN:
            send = self._protocol.send_text if text else self._protocol.send_binary
            send(message)

    def close(self) -> None:
        if self._protocol.state is protocol.State.OPEN:
            self._protocol.send_close(_NORMAL_CLOSURE)

    def take(self) -> bytes:
        """Return all bytes to send now, and forget them."""
        return b"".join(self._protocol.data_to_send())


class Channels:
    """`streams_interface.Codec` for WebSocket channels: streams by number.

    `headers` are the headers of stream 0, 1, …; None stands for an unused number. `subprotocol` is
    the result of the handshake, empty for the oldest variant. All streams are open from the start:
    the first `receive` returns their `StreamOpened` events.
    """

    def __init__(self, subprotocol: str, headers: Sequence[dict[str, str] | None]) -> None:
        self._messages = _Messages()
        self._base64 = "base64." in subprotocol
        self._half_closes = subprotocol.startswith("v5.")
        self._receiving = {number for number, header in enumerate(headers) if header is not None}
        self._sending = set(self._receiving)
        self._fresh = [
            streams_interface.StreamOpened(n, h) for n, h in enumerate(headers) if h is not None
        ]

    def receive(self, piece: bytes) -> Iterable[streams_interface.Event]:
        """Return the events of these bytes. Raises `ProtocolError`."""
        fresh, self._fresh = self._fresh, []
        yield from fresh
        for message in self._messages.receive(piece):
            if message is None:
                yield streams_interface.PeerGone()
            elif message:
                yield from self._message(message)

    def _message(self, message: bytes) -> Iterator[streams_interface.Event]:
        if self._half_closes and message[0] == CLOSE_SIGNAL:
            if len(message) != 2:
                raise streams_interface.ProtocolError("the close signal names one channel")
            if message[1] in self._receiving:
                self._receiving.discard(message[1])
                yield streams_interface.StreamFinished(message[1])
            return
        number = message[0] - ord("0") if self._base64 else message[0]
        # Data of an unused or finished channel is dropped.
        if number not in self._receiving:
            return
        content = message[1:]
        if self._base64:
            try:
                content = base64.b64decode(content, validate=True)
            except binascii.Error as error:
                raise streams_interface.ProtocolError(f"base64: {error}") from error
        if content:
            yield streams_interface.StreamData(number, content)

    def accept(self, stream: int) -> None:
        """Do nothing, as streams need no reply in this protocol."""

    def send(self, stream: int, content: bytes) -> None:
        """Send messages with all of `content`. An empty message is sent too, as a sign of life."""
        if stream not in self._sending:
            return
        for at in range(0, max(1, len(content)), _PIECE):
            piece = content[at : at + _PIECE]
            if self._base64:
                text = str(stream).encode() + base64.b64encode(piece)
                self._messages.send(text, text=True)
            else:
                self._messages.send(bytes([stream]) + piece)

    def finish(self, stream: int) -> None:
        """Send nothing more on this stream.

        A server has no signal for this: the peer notices when the connection ends.
        """
        self._sending.discard(stream)

    def reset(self, stream: int) -> None:
        """Ignore data that arrives on the stream, and send nothing more."""
        self._sending.discard(stream)
        self._receiving.discard(stream)

    def close(self) -> None:
        self._messages.close()

    def take(self) -> bytes:
        """Return all bytes to send now, and forget them."""
        return self._messages.take()


class Tunnel(streams_spdy.SpdySession):
    """`streams_interface.Codec` for an SPDY connection whose bytes are in binary messages."""

    def __init__(self) -> None:
        super().__init__()
        self._messages = _Messages()

    def receive(self, piece: bytes) -> Iterable[streams_interface.Event]:
        """Return the events of these bytes. Raises `ProtocolError`."""
        # A message may end in the middle of an SPDY frame: the reader keeps the rest.
        for message in self._messages.receive(piece):
            if message is None:
                yield streams_interface.PeerGone()
            else:
                yield from super().receive(message)

    def close(self) -> None:
        """Send GOAWAY, then close the WebSocket."""
        super().close()
        # GOAWAY is sent first, since nothing may follow the close frame of the WebSocket.
        self._wrap()
        self._messages.close()

    def take(self) -> bytes:
        """Return all bytes to send now, and forget them."""
        self._wrap()
        return self._messages.take()

    def _wrap(self) -> None:
        plain = super().take()
        for at in range(0, len(plain), _PIECE):
            self._messages.send(plain[at : at + _PIECE])
