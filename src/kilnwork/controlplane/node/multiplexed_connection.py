"""A connection with multiplexed streams for coroutines, which connects a codec to a transport.

Used by `kubelet_streaming`, `execs` and `port_forwards`. For each stream, one coroutine reads and
one writes. When too much data is unread, the transport stops reading, which blocks all streams of
the connection (no protocol here has windows per stream). Writers wait when the peer reads slowly.
"""

import asyncio
import contextlib
import logging
import typing
from collections import deque
from collections.abc import Callable

from kilnwork.controlplane.node import streams_interface
from kilnwork.kit import tcp_keepalive

log = logging.getLogger(__name__)

UNREAD = 1024 * 1024
"""Bytes that may be unread before the transport stops reading."""

UNHEARD = 1024 * 1024
"""Bytes of replies (to pings, to refused streams) that a peer may leave unread."""

GOODBYE_S = 5.0
"""Timeout for the peer to close the connection after our close message."""


class Stream:
    """One stream of a connection. `headers` are the headers with which it was opened."""

    def __init__(
        self, connection: "StreamConnection", number: int, opened: streams_interface.StreamOpened
    ) -> None:
        self.number = number
        self.headers = opened.headers
        self._connection = connection
        self._pieces: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._ended = False
        self.over = asyncio.Event()
        """Set when the peer reads no more, after a reset or the end of the connection."""

    @property
    def kind(self) -> str:
        return self.headers.get(streams_interface.TYPE, "")

    async def read(self) -> bytes:
        """Return the next piece, or b"" when the stream has ended for any reason."""
        while not self._pieces and not self._ended:
            self._news.clear()
            await self._news.wait()
        if not self._pieces:
            return b""
        piece = self._pieces.popleft()
        self._connection._was_read(len(piece))
        return piece

    async def write(self, content: bytes) -> bool:
        """Send bytes, and wait for a slow peer. Return False if the peer will not read them."""
        if self.over.is_set():
            return False
        self._connection.codec.send(self.number, content)
        await self._connection.flush()
        return not self.over.is_set()

    def finish(self) -> None:
        self._connection.codec.finish(self.number)
        self._connection.push()

    def reset(self) -> None:
        """End the stream in both directions and drop unread data."""
        self._connection.codec.reset(self.number)
        self._connection.push()
        self._end(dropped=True)

    def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._news.set()

    def _end(self, *, dropped: bool) -> None:
        """Record that the peer sends no more. `dropped`: the peer does not read either."""
        self._ended = True
        if dropped:
            self.over.set()
            self._connection._was_read(sum(map(len, self._pieces)))
            self._pieces.clear()
        self._news.set()


class StreamConnection(asyncio.Protocol):
    """All streams of one connection.

    `on_open` is called for each stream, and accepts or refuses it. Pass the transport to the
    connection after the response to the upgrade; then call `close` or `abort` in any case.
    """

    def __init__(
        self, codec: streams_interface.Codec, *, on_open: Callable[[Stream], bool]
    ) -> None:
        self.codec = codec
        self._on_open = on_open
        self._streams: dict[int, Stream] = {}
        self._transport: asyncio.Transport | None = None
        self._unread = 0
        self._held_back = False
        self._unheard = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self.gone = asyncio.Event()
        """Set when the peer has closed all streams or disconnected."""
        self._closed = asyncio.Event()
        self._closing = False

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Process the events of streams that are open from the start."""
        self._transport = typing.cast("asyncio.Transport", transport)  # uvloop's is no subclass
        # Detects clients whose machine has disappeared: sessions may be silent for hours.
        tcp_keepalive.enable(transport.get_extra_info("socket"))
        self.data_received(b"")

    def data_received(self, data: bytes) -> None:
        """Process bytes from the peer. A protocol violation ends the connection."""
        try:
            for event in self.codec.receive(data):
                self._on_event(event)
        except streams_interface.ProtocolError as error:
            log.info("stream connection ended", extra={"error": str(error)})
            self.abort()
            return
        replied = self.push()
        if not self._writable.is_set():
            self._unheard += replied
        if self._unheard > UNHEARD:
            log.info("stream connection ended", extra={"error": "its peer reads no replies"})
            self.abort()

    def eof_received(self) -> bool:
        """Close the connection, as a peer that has closed its side does not read any more."""
        self._leave()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End all streams and wake waiting writers."""
        self._leave()
        self._writable.set()
        self._closed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._unheard = 0
        self._writable.set()

    def _on_event(self, event: streams_interface.Event) -> None:
        match event:
            case streams_interface.PeerGone():
                self._leave()
            case streams_interface.StreamOpened(number):
                self._open(Stream(self, number, event))
            case streams_interface.StreamData(number, data) if (
                number in self._streams and not self._closing
            ):
                self._unread += len(data)
                if self._unread > UNREAD and not self._held_back:
                    self._hold_back()
                self._streams[number]._add(data)
            case streams_interface.StreamFinished(number) if number in self._streams:
                self._streams[number]._end(dropped=False)
            case streams_interface.StreamReset(number) if number in self._streams:
                self._streams.pop(number)._end(dropped=True)
            case _:
                pass

    def _open(self, stream: Stream) -> None:
        self._streams[stream.number] = stream
        if not self._closing and self._on_open(stream):
            self.codec.accept(stream.number)
        else:
            self._streams.pop(stream.number)
            self.codec.reset(stream.number)

    def _leave(self) -> None:
        self.gone.set()
        for stream in self._streams.values():
            stream._end(dropped=True)
        self._streams.clear()

    # Called by streams and owners

    def forget(self, stream: Stream) -> None:
        """Reset and remove a stream that both sides have finished with."""
        if self._streams.pop(stream.number, None) is not None:
            stream.reset()

    def _hold_back(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._held_back = True
            self._transport.pause_reading()

    def _was_read(self, count: int) -> None:
        self._unread -= count
        if self._held_back and self._unread <= UNREAD // 2 and self._transport is not None:
            self._held_back = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def push(self) -> int:
        """Send the bytes that the codec has queued. Return their number."""
        waiting = self.codec.take()
        if waiting and self._transport is not None and not self._transport.is_closing():
            self._transport.write(waiting)
        return len(waiting)

    async def flush(self) -> None:
        """Call `push`, then wait while the peer reads slowly."""
        self.push()
        await self._writable.wait()

    async def close(self) -> None:
        """Close all streams and wait until the peer closes the connection, so that no data is lost.

        After `GOODBYE_S` the connection is closed all the same. A transport that is closed while it
        has unread bytes of the peer discards our last bytes too.
        """
        self._closing = True
        self.codec.close()
        self.push()
        for stream in self._streams.values():
            stream._end(dropped=True)
        self._streams.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.gone.wait(), GOODBYE_S)
        if self._transport is not None:
            self._transport.close()
        try:
            await asyncio.wait_for(self._closed.wait(), GOODBYE_S)
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        self._leave()
        if self._transport is not None:
            self._transport.abort()
