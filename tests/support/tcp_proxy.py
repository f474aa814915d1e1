"""TCP and HTTP proxies that play a network: connections can be cut and stalled.

For tests of network clients. Remaining connections are closed at the end of the block, so that none
outlives its test.
"""

import asyncio
import contextlib
from typing import Self

Address = tuple[str, int]


class TcpProxy:
    """A port that forwards to another; `cut` and `stall` affect existing connections."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._server: asyncio.Server | None = None
        self._pairs: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.port = 0
        self.connections = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *problem: object) -> None:
        assert self._server is not None
        self._server.close()
        pairs = list(self._pairs)
        self.cut()
        await asyncio.gather(*pairs, return_exceptions=True)

    def cut(self) -> None:
        for pair in self._pairs:
            pair.cancel()

    def stall(self) -> None:
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    async def _serve(self, near: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        current = asyncio.current_task()
        assert current is not None
        self._pairs.add(current)
        self.connections += 1
        far_out = None
        try:
            if (address := await self._address(near, near_out)) is not None:
                far, far_out = await asyncio.open_connection(*address)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pump(near, far_out))
                    both.create_task(self._pump(far, near_out))
        except (OSError, asyncio.CancelledError, ExceptionGroup):
            pass
        finally:
            self._pairs.discard(current)
            for writer in (near_out, far_out):
                if writer is not None:
                    writer.transport.abort()

    async def _address(
        self, near: asyncio.StreamReader, near_out: asyncio.StreamWriter
    ) -> Address | None:
        """Return where a new connection leads; None: nowhere."""
        return "127.0.0.1", self._to

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            await self._flows.wait()
            sink.write(data)
            await sink.drain()
        raise ConnectionResetError


class HttpProxy(TcpProxy):
    """An HTTP proxy with CONNECT. `asked`: requested addresses; `status`: status of its
    responses.
    """

    def __init__(self) -> None:
        super().__init__(0)
        self.asked: list[str] = []
        self.status = 200

    async def _address(
        self, near: asyncio.StreamReader, near_out: asyncio.StreamWriter
    ) -> Address | None:
        head = await near.readuntil(b"\r\n\r\n")
        method, target, version = head.decode().split()[:3]
        self.asked.append(target)
        status = self.status if (method, version) == ("CONNECT", "HTTP/1.1") else 405
        near_out.write(f"HTTP/1.1 {status} x\r\n\r\n".encode())
        if status != 200:
            near_out.close()
            with contextlib.suppress(OSError):
                await near_out.wait_closed()
            return None
        host, _, port = self.asked[-1].rpartition(":")
        return host, int(port)
