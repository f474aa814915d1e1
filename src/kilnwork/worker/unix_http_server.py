"""A small HTTP/1.1 server on one Unix socket, sufficient for curl and common HTTP libraries.

Used by `task_socket`, which handles the requests, and by `sidecar_socket_server`. Supports one
request at a time per connection, keep-alive, `Content-Length` and chunked bodies, and `Expect:
100-continue`. When a client closes its side, its request is cancelled. Not for the network: only
the task itself can reach the socket. Oversized or malformed requests are refused without effect on
other connections.
"""

import asyncio
import collections
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus

import httptools
import msgspec

from kilnwork.kit import coroutines, errors

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 256 * 1024
"""Maximum bytes of the body of a request; a longer one is refused with 413."""
MAX_HEAD_BYTES = 16 * 1024
"""Maximum bytes of the head of a request; a longer one is refused with 431."""
MAX_CONNECTIONS = 64
"""Maximum number of connections; any further one is closed at once."""
MAX_PIPELINED = 16
"""Maximum number of requests that wait on a connection; more are refused with 503."""
LINGER_S = 2.0
"""Seconds for which a refused client may go on sending. If the server closed at once, the client's
write would fail before it has read why (RFC 9112 §9.6).
"""


@dataclass(slots=True)
class HttpRequest:
    """One HTTP request.

    `target`: path and query as sent.
    """

    method: str = ""
    target: str = ""
    body: bytearray = field(default_factory=bytearray)
    keep_alive: bool = True


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One HTTP response.

    `body`: JSON, or empty.
    """

    status: int
    body: bytes = b""
    allow: str = ""


class HttpError(errors.KilnError):
    """The request fails with this status and message."""

    def __init__(self, status: int, message: str, *, allow: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.allow = allow

    def reply(self) -> HttpResponse:
        """Return the HTTP response for the error: `{"message": …}` with the status."""
        body = msgspec.json.encode({"message": str(self)})
        return HttpResponse(status=self.status, body=body, allow=self.allow)


Handle = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Handles one request; raises `HttpError`. It is cancelled when the connection closes."""


class UnixHttpServer:
    """HTTP server on an already listening Unix socket, until `close`."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._background = coroutines.BackgroundWork("task-socket")
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def start(self, listener: socket.socket) -> None:
        """Accept connections on `listener`, which the server owns from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connect, sock=listener)

    async def close(self) -> None:
        """Close the socket and all connections; requests in progress get no response."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()
        await self._background.stop()

    def _connect(self) -> "_Connection":
        return _Connection(self._handle, background=self._background, siblings=self._connections)


class _Connection(asyncio.Protocol):
    """One connection of a client, with the callbacks of its parser (on_…)."""

    def __init__(
        self, handle: Handle, *, background: coroutines.BackgroundWork, siblings: set["_Connection"]
    ) -> None:
        self._handle = handle
        self._background = background
        self._siblings = siblings
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._request = HttpRequest()
        self._head_bytes = 0
        self._expects_100 = False
        self._queue: collections.deque[HttpRequest] = collections.deque()
        self._responding: asyncio.Task[None] | None = None
        self._closing = False
        self._linger: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("a stream transport is needed")
        self._transport = transport
        self._siblings.add(self)
        if len(self._siblings) > MAX_CONNECTIONS:
            log.warning("a task has too many connections to its socket")
            self.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._siblings.discard(self)
        self._transport = None
        if self._linger is not None:
            self._linger.cancel()
        if self._responding is not None:
            self._responding.cancel()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(HttpError(400, "this socket speaks HTTP/1.1 only"))
        except httptools.HttpParserError as error:
            # httptools raises an error of its own when a callback raises; our error is the context
            # of it.
            cause = error.__context__
            known = cause if isinstance(cause, HttpError) else None
            self._refuse(known or HttpError(400, f"not an HTTP request: {error}"))

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # callbacks of httptools

    def on_message_begin(self) -> None:
        self._request = HttpRequest()
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._head(len(url))
        # llhttp may hand over a target in several pieces.
        self._request.target += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head(len(name) + len(value))
        if name.lower() == b"content-length" and int(value) > MAX_BODY_BYTES:
            raise _too_large()
        if name.lower() == b"expect" and value.lower() == b"100-continue":
            # A client of HTTP/1.0 does not know interim responses (RFC 9110 §10.1.1).
            self._expects_100 = self._parser.get_http_version() != "1.0"

    def on_headers_complete(self) -> None:
        self._continue()

    def on_body(self, body: bytes) -> None:
        self._request.body += body
        # A chunked body does not say its length in advance.
        if len(self._request.body) > MAX_BODY_BYTES:
            raise _too_large()

    def on_message_complete(self) -> None:
        self._expects_100 = False
        self._request.method = self._parser.get_method().decode("latin-1")
        self._request.keep_alive = self._parser.should_keep_alive()
        self._queue.append(self._request)
        if len(self._queue) > MAX_PIPELINED:
            raise HttpError(503, f"more than {MAX_PIPELINED} requests at a time on a connection")
        if self._responding is None:
            self._responding = self._background.start("respond", self._respond_to_all())

    def _continue(self) -> None:
        """Send the interim response for which a client holds back its body (`Expect:
        100-continue`).

        It is sent in turn: not before the responses to earlier requests of the connection.
        """
        if self._expects_100 and self._responding is None:
            self._expects_100 = False
            if self._transport is not None and not self._closing:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _head(self, count: int) -> None:
        self._head_bytes += count
        if self._head_bytes > MAX_HEAD_BYTES:
            raise HttpError(431, f"the head of a request may have {MAX_HEAD_BYTES} bytes")

    async def _respond_to_all(self) -> None:
        while self._queue:
            request = self._queue.popleft()
            self._write(await self._respond(request), keep_alive=request.keep_alive)
        self._responding = None
        self._continue()

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        try:
            return await self._handle(request)
        except HttpError as error:
            return error.reply()
        except Exception:
            log.exception("a request of a task failed")
            return HttpError(500, "the request failed in the worker; see its log").reply()

    def _refuse(self, error: HttpError) -> None:
        """Respond with an error, then discard further data of the client until it closes the
        connection.
        """
        if self._transport is None or self._closing:
            return
        self._closing = True
        self._transport.write(_encode(error.reply(), keep_alive=False))
        # Only half-closed: the client may read the error while it still sends; see `LINGER_S`.
        self._transport.write_eof()
        self._linger = asyncio.get_running_loop().call_later(LINGER_S, self.abort)

    def _write(self, reply: HttpResponse, *, keep_alive: bool) -> None:
        if self._transport is None or self._closing:
            return
        self._transport.write(_encode(reply, keep_alive=keep_alive))
        if not keep_alive:
            self._closing = True
            self._transport.close()


def _too_large() -> HttpError:
    return HttpError(413, f"the body may have {MAX_BODY_BYTES // 1024} KiB")


def _encode(reply: HttpResponse, *, keep_alive: bool) -> bytes:
    head = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}"]
    if reply.allow:
        head.append(f"Allow: {reply.allow}")
    if reply.status != HTTPStatus.NO_CONTENT:
        head += ["Content-Type: application/json", f"Content-Length: {len(reply.body)}"]
    if not keep_alive:
        head.append("Connection: close")
    return "\r\n".join([*head, "", ""]).encode("latin-1") + reply.body
