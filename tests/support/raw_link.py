"""One end of a link that sends frames exactly as a test builds them, over a real socket.

Base of `raw_worker.RawWorker`, `raw_peers.RawDriver` and `raw_peers.RawSlot`.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Generic, Self, TypeVar

from kilnwork.channel import frames, messages

T = TypeVar("T", bound=messages.ToWorker | messages.ToDriver | messages.ToSlot)
M = TypeVar("M")


class RawLink(Generic[T]):
    """A link. `inbox` has the messages that were read and not yet expected; calling `connect` again
    reconnects.
    """

    welcome: type[messages.Welcome | messages.Attached] = messages.Attached

    def __init__(self, socket: Path, decode: Callable[[bytes], T]) -> None:
        self.socket = socket
        self.inbox: list[T] = []
        self.frames_read = 0
        self.largest_frame = 0
        self._decode = decode
        self._cutter = frames.Cutter()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    def hello(self) -> frames.Sent:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.connect()
        await self.expect(self.welcome)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    async def connect(self) -> None:
        """Open a connection and send hello."""
        await self.dial()
        self.say(self.hello())

    async def dial(self) -> None:
        """Open a connection without a message."""
        await self.disconnect()
        self._cutter = frames.Cutter()
        self.inbox.clear()
        self._reader, self._writer = await asyncio.open_unix_connection(str(self.socket))

    async def disconnect(self) -> None:
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
            self._writer = None

    def say(self, *sent: frames.Sent) -> None:
        self.send(b"".join(map(frames.encode, sent)))

    def send(self, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(data)

    async def expect(self, kind: type[M], *, timeout_s: float = 30.0) -> M:
        """Return the next message of that kind; earlier messages of other kinds stay in the
        inbox.
        """
        async with asyncio.timeout(timeout_s):
            while True:
                for at, message in enumerate(self.inbox):
                    if isinstance(message, kind):
                        del self.inbox[at]
                        return message
                await self.read()

    async def wait_until_acknowledged(self, serial: int) -> None:
        """Wait until that report is acknowledged."""
        while (await self.expect(messages.Acknowledged)).serial < serial:
            continue

    async def closed(self) -> None:
        """Wait until the dispatcher has closed the connection."""
        async with asyncio.timeout(30):
            try:
                while True:
                    await self.read()
            except (EOFError, ConnectionError):
                return

    async def read(self) -> None:
        """Read the next messages into the inbox."""
        assert self._reader is not None
        data = await self._reader.read(1 << 18)
        if not data:
            raise EOFError("the dispatcher closed the link")
        bodies = self._cutter.feed(data)
        self.frames_read += len(bodies)
        self.largest_frame = max(self.largest_frame, *map(len, bodies), 0)
        self.inbox += map(self._decode, bodies)
