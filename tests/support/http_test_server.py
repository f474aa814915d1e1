"""HTTP server for tests of HTTP clients that records requests and misbehaves on request.

It writes HTTP/1.1 byte by byte, since tests need bytes that no HTTP library would send.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field


@dataclass
class Request:
    """One received request. `closed` is set when its connection is closed."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int
    closed: asyncio.Event

    def header(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


Handler = Callable[["HttpServer", Request, asyncio.StreamWriter], Awaitable[bool | None]]


@dataclass
class HttpServer:
    """Routes, and the requests received. `/held` responds once `gate` is set."""

    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    routes: dict[str, Handler] = field(default_factory=dict)
    port: int = 0
    scheme: str = "http"

    @property
    def base(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def got(self, path: str) -> list[Request]:
        """Return the requests for that path."""
        return [request for request in self.requests if request.path == path]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        closed = asyncio.Event()
        try:
            await self._serve(reader, writer, closed)
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            closed.set()
            self.open -= 1
            writer.transport.abort()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, closed: asyncio.Event
    ) -> None:
        number = self.connections
        while (request := await self._read(reader, number, closed)) is not None:
            self.requests.append(request)
            handler = self.routes.get(request.path, _not_found)
            watching = asyncio.ensure_future(_watch(reader, closed))
            handling = asyncio.ensure_future(self._handle(handler, request, writer))
            try:
                await asyncio.wait({watching, handling}, return_when="FIRST_COMPLETED")
                if not handling.done() or handling.result():
                    return
            finally:
                watching.cancel()
                handling.cancel()
                await asyncio.gather(watching, handling, return_exceptions=True)

    async def _handle(
        self, handler: Handler, request: Request, writer: asyncio.StreamWriter
    ) -> bool:
        over = await handler(self, request, writer)
        await writer.drain()
        return bool(over)

    async def _read(
        self, reader: asyncio.StreamReader, number: int, closed: asyncio.Event
    ) -> Request | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ")
        headers = [(n, v.strip()) for n, _, v in (line.partition(":") for line in lines)]
        length = next((int(v) for n, v in headers if n.lower() == "content-length"), 0)
        body = await reader.readexactly(length)
        return Request(method, target, headers, body, number, closed)


async def _watch(reader: asyncio.StreamReader, closed: asyncio.Event) -> None:
    """Wait until the client has closed: it sends nothing before it has its response."""
    with contextlib.suppress(OSError):
        while not reader.at_eof() and reader.exception() is None:
            await asyncio.sleep(0.005)
    closed.set()


def response(
    body: bytes = b"",
    *,
    status: str = "200 OK",
    kind: str = "application/json",
    headers: tuple[tuple[str, str], ...] = (),
) -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    head += [f"Content-Type: {kind}"] if kind else []
    head += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


async def _not_found(site: HttpServer, request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(response(b'{"error": "no such path"}', status="404 Not Found"))


def json_response(body: object, **more: str) -> Handler:
    """Return a handler that responds with JSON."""

    async def handle(site: HttpServer, request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(response(json.dumps(body).encode(), **more))  # type: ignore[arg-type]

    return handle


def raw_response(raw: bytes, *, then_close: bool = False) -> Handler:
    """Return a handler that responds with these bytes."""

    async def handle(site: HttpServer, request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(raw)
        return then_close

    return handle


async def gated(site: HttpServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """Respond once the gate is open."""
    await site.gate.wait()
    writer.write(response(b'{"held": true}'))


async def drip(site: HttpServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """Send one header byte now and then, without end."""
    writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        writer.write(b"s")
        await writer.drain()
        await asyncio.sleep(0.02)


async def chunks(site: HttpServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """Send a chunk of the body now and then, without end."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\n \r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def endless(site: HttpServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """Send a body without end, as fast as it is read."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
        await writer.drain()


async def echo(site: HttpServer, request: Request, writer: asyncio.StreamWriter) -> None:
    """Respond with the request."""
    seen = {
        "method": request.method,
        "target": request.target,
        "headers": request.headers,
        "body": request.body.decode("latin-1"),
    }
    writer.write(response(json.dumps(seen).encode()))


@contextlib.asynccontextmanager
async def running(tls: ssl.SSLContext | None = None) -> AsyncIterator[HttpServer]:
    site = HttpServer(
        routes={
            "/echo": echo,
            "/held": gated,
            "/drip": drip,
            "/chunks": chunks,
            "/endless": endless,
        },
        scheme="http" if tls is None else "https",
    )
    members: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        member = asyncio.ensure_future(site.serve(reader, writer))
        members.add(member)
        member.add_done_callback(members.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls, limit=1 << 20)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for member in list(members):
            member.cancel()
        await asyncio.gather(*members, return_exceptions=True)
