"""Sends requests to an API server in the same process, without sockets and TLS.

Used by `transport` for a manager beside its own API server, for requests with a whole response and
for watches; logs use a connection. A request whose sender cancels it continues, like one that has
arrived over a connection. A watch that is closed ends, as if its connection was lost.
"""

import asyncio
from collections.abc import Callable, Iterable
from urllib import parse

import multidict

from kilnwork.kit import asgi, coroutines, http_types

_END_S = 5.0
MAX_UNREAD_BYTES = 1 << 18
"""Number of unread bytes of a stream at which the server waits, as for a connection whose client
does not read.
"""


class InProcessServer:
    """A connection to an API server in this process; close it when no more requests are sent."""

    def __init__(self, app: asgi.App) -> None:
        self._app = app
        self._background = coroutines.BackgroundWork("requests in this process")
        self._streams: set[Stream] = set()

    async def close(self) -> None:
        """Wait for requests whose senders have been cancelled, up to a limit, and then end them."""
        for stream in tuple(self._streams):
            stream.close()
        await self._background.wait(timeout_s=_END_S)
        await self._background.stop()

    async def exchange(
        self, request: http_types.ClientRequest, headers: Iterable[tuple[str, str]]
    ) -> http_types.ClientResponse:
        """Send a request and return the response. Raises TimeoutError after `timeout_s`.

        `headers`: all headers of the request.
        """
        body = request.body if isinstance(request.body, bytes) else b""
        served = _Exchange(body)
        work = self._background.start(request.path, self._serve(_scope(request, headers), served))
        async with asyncio.timeout(request.timeout_s):
            # A request that has begun goes on, as on a server whose client has disconnected.
            await asyncio.shield(work)
        return served.response()

    async def open(
        self, request: http_types.ClientRequest, headers: Iterable[tuple[str, str]]
    ) -> "Stream":
        """Send a request and return its response once the head has arrived.

        The caller must close the response. Raises TimeoutError after `head_timeout_s`; reading the
        body raises it after `timeout_s`.
        """
        stream = Stream(self._streams.discard, timeout_s=request.timeout_s)
        self._streams.add(stream)
        work = self._background.start(request.path, self._serve(_scope(request, headers), stream))
        # A server that fails before it has responded must end the wait below.
        work.add_done_callback(stream.served)
        try:
            async with asyncio.timeout(request.head_timeout_s):
                await stream.begun()
        except BaseException:
            stream.close()
            raise
        return stream

    async def _serve(self, scope: asgi.Scope, served: "_Exchange | Stream") -> None:
        await self._app(scope, served.receive, served.send)


class _Exchange:
    """The server's side of one request with a whole response."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._status = 0
        self._headers: asgi.Headers = ()
        self._pieces: list[bytes] = []

    async def receive(self) -> asgi.Message:
        if self._body is None:
            await asyncio.get_running_loop().create_future()  # for ever: the sender stays connected
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: asgi.Message) -> None:
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], message["headers"]
        else:
            self._pieces.append(message.get("body", b""))

    def response(self) -> http_types.ClientResponse:
        headers = _read_headers(self._headers)
        return http_types.ClientResponse(self._status, "", b"".join(self._pieces), headers)


class Stream:
    """A response whose body arrives in pieces, as the server writes it and as the client reads it.

    `closed` is called with the stream when it is closed.
    """

    def __init__(self, closed: "Callable[[Stream], None]", *, timeout_s: float | None) -> None:
        self.status = 0
        self.headers: multidict.CIMultiDict[str] = multidict.CIMultiDict()
        self._closed = closed
        self._pieces: list[bytes] = []
        self._unread = 0
        self._error: Exception | None = None
        self._asked = False
        self._over = False
        self._hung_up = asyncio.Event()
        self._news = asyncio.Event()
        self._taken = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._timer = None if timeout_s is None else loop.call_later(timeout_s, self._too_late)

    async def begun(self) -> None:
        """Wait until the response has a status.

        Raises the error of the stream if it fails before.
        """
        while not self.status:
            await self._more()

    async def readany(self) -> bytes:
        """Return the bytes that have arrived, waiting for at least one; b"" at the end.

        Raises TimeoutError, and ConnectionError if the server has failed.
        """
        while not self._pieces and not self._over:
            await self._more()
        found, self._pieces, self._unread = b"".join(self._pieces), [], 0
        self._taken.set()
        return found

    async def read(self) -> bytes:
        """Return all remaining bytes."""
        found = []
        while some := await self.readany():
            found.append(some)
        return b"".join(found)

    def close(self) -> None:
        """Disconnect: later bytes are dropped, and the server is notified."""
        self._closed(self)
        if self._timer is not None:
            self._timer.cancel()
        self._hung_up.set()
        self._taken.set()

    async def receive(self) -> asgi.Message:
        """Return the ASGI message of the request, which has no body, and later that of the
        disconnect.
        """
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: asgi.Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], _read_headers(message["headers"])
        elif not self._hung_up.is_set():
            body = message.get("body", b"")
            if body:
                self._pieces.append(body)
                self._unread += len(body)
            self._over = not message.get("more_body", False)
        self._news.set()
        while self._unread > MAX_UNREAD_BYTES and not self._hung_up.is_set():
            self._taken.clear()
            await self._taken.wait()

    def served(self, work: "asyncio.Task[None]") -> None:
        """Handle the end of the server's coroutine task; an incomplete response becomes an
        error.
        """
        if not self._over:
            self._fail(ConnectionResetError("the server has cut the response off"))

    def _too_late(self) -> None:
        self._fail(TimeoutError())

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._news.set()

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        # Nothing was awaited since the caller checked, so no wake-up is lost.
        self._news.clear()
        await self._news.wait()


def _read_headers(headers: asgi.Headers) -> multidict.CIMultiDict[str]:
    return multidict.CIMultiDict(
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in headers
    )


def _scope(request: http_types.ClientRequest, headers: Iterable[tuple[str, str]]) -> asgi.Scope:
    """Return the ASGI scope as `kit.serving` makes it for a connection."""
    sent = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {
        "type": "http",
        "http_version": "1.1",
        "method": request.method,
        "scheme": "https",
        "path": parse.unquote(request.path),
        "raw_path": request.path.encode("ascii"),
        "query_string": request.target().partition("?")[2].encode("ascii"),
        "headers": sent,
        "extensions": {},
        "state": {"peer_certificate": None},
    }
