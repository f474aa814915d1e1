"""A connection with several streams, for coroutines: a codec joined with a transport.

Used by `execs` and `port_forwards`. Each stream is read and written by one coroutine each. The peer
is held back when the amount of unread data grows (no protocol here has windows of its own, so all
streams of the connection wait then), and writers wait when the peer reads slowly.
"""

import asyncio
import contextlib
import logging
import typing
from collections import deque
from collections.abc import Callable

from kilnwork.controlplane.node import streams
from kilnwork.kit import tcp_keepalive

log = logging.getLogger(__name__)

UNREAD = 1024 * 1024
"""Bytes that may wait for readers before the peer has to."""

UNHEARD = 1024 * 1024
"""Bytes of replies (to pings, to streams that are refused) that a peer may leave unread."""

GOODBYE_S = 5.0
"""How long a peer may take to close after we have said goodbye, so that it gets all of it."""


class Stream:
    """One stream. `headers`: those it was opened with."""

    def __init__(self, connection: "Connection", number: int, opened: streams.Opened) -> None:
        self.number = number
        self.headers = opened.headers
        self._connection = connection
        self._pieces: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._ended = False
        self.over = asyncio.Event()
        """Set when nothing that we write will be read: it was reset, or the connection is gone."""

    @property
    def kind(self) -> str:
        return self.headers.get(streams.TYPE, "")

    async def read(self) -> bytes:
        """The next piece; empty at the end, whichever way it came."""
        while not self._pieces and not self._ended:
            self._news.clear()
            await self._news.wait()
        if not self._pieces:
            return b""
        piece = self._pieces.popleft()
        self._connection._was_read(len(piece))
        return piece

    async def write(self, content: bytes) -> bool:
        """Send it, waiting for a slow peer; False if the peer will not read it."""
        if self.over.is_set():
            return False
        self._connection.codec.send(self.number, content)
        await self._connection.flush()
        return not self.over.is_set()

    def finish(self) -> None:
        self._connection.codec.finish(self.number)
        self._connection.push()

    def reset(self) -> None:
        """End it both ways and drop what is unread."""
        self._connection.codec.reset(self.number)
        self._connection.push()
        self._end(dropped=True)

    def _add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._news.set()

    def _end(self, *, dropped: bool) -> None:
        """The peer sends no more; `dropped`: nor does it read."""
        self._ended = True
        if dropped:
            self.over.set()
            self._connection._was_read(sum(map(len, self._pieces)))
            self._pieces.clear()
        self._news.set()


class Connection(asyncio.Protocol):
    """All streams of one connection. `on_open` hears of each, and accepts or resets it.

    Hand the transport over to it after the response to the upgrade; then `close` it in any case.
    """

    def __init__(self, codec: streams.Codec, *, on_open: Callable[[Stream], bool]) -> None:
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
        """Set when the peer has said goodbye or is not there any more."""
        self._closed = asyncio.Event()
        self._closing = False

    # What the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: some streams are open from the start."""
        self._transport = typing.cast("asyncio.Transport", transport)  # uvloop's is a duck
        tcp_keepalive.enable(transport.get_extra_info("socket"))
        self.data_received(b"")

    def data_received(self, data: bytes) -> None:
        """More bytes of the peer; those that break the protocol end the connection."""
        try:
            for event in self.codec.receive(data):
                self._heard(event)
        except streams.ProtocolError as error:
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
        """The peer has closed its side: it reads nothing that we would still send."""
        self._leave()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._leave()
        self._writable.set()
        self._closed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._unheard = 0
        self._writable.set()

    def _heard(self, event: streams.Event) -> None:
        match event:
            case streams.Gone():
                self._leave()
            case streams.Opened(number):
                self._open(Stream(self, number, event))
            case streams.Received(number, data) if number in self._streams and not self._closing:
                self._unread += len(data)
                if self._unread > UNREAD and not self._held_back:
                    self._hold_back()
                self._streams[number]._add(data)
            case streams.Finished(number) if number in self._streams:
                self._streams[number]._end(dropped=False)
            case streams.WasReset(number) if number in self._streams:
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

    # What streams and owners want

    def forget(self, stream: Stream) -> None:
        """Drop a stream that both sides are done with."""
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
        """Send what the codec has to say; gives its size."""
        waiting = self.codec.take()
        if waiting and self._transport is not None and not self._transport.is_closing():
            self._transport.write(waiting)
        return len(waiting)

    async def flush(self) -> None:
        """`push`, then wait while the peer reads slowly."""
        self.push()
        await self._writable.wait()

    async def close(self) -> None:
        """Say goodbye and let the peer close, so that nothing on its way to it is lost.

        A transport that is closed while bytes of the peer are unread takes our last ones with it.
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
