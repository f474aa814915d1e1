"""Requests to an API server of the same process, without the sockets and TLS between.

Used by `transport` for a manager beside its own API server, for requests with a whole response:
streams take a connection, whose end both sides see. A request that its sender gives up goes on, as
one that has arrived over a connection does.
"""

import asyncio
from collections.abc import Iterable
from urllib import parse

import multidict

from kilnwork.kit import asgi, coroutines, http_types

_END_S = 5.0


class Server:
    """The ASGI app of an API server; close it when nothing is sent any more."""

    def __init__(self, app: asgi.App) -> None:
        self._app = app
        self._crew = coroutines.Crew("requests in this process")

    async def close(self) -> None:
        """Wait a while for requests that were given up, then end them."""
        await self._crew.wait(timeout_s=_END_S)
        await self._crew.stop()

    async def exchange(
        self, request: http_types.Request, headers: Iterable[tuple[str, str]]
    ) -> http_types.Response:
        """Have it served. `headers`: all of them. Raises TimeoutError after `timeout_s`."""
        body = request.body if isinstance(request.body, bytes) else b""
        served = _Exchange(body)
        work = self._crew.start(request.path, self._serve(_scope(request, headers), served))
        async with asyncio.timeout(request.timeout_s):
            await asyncio.shield(work)
        return served.response()

    async def _serve(self, scope: asgi.Scope, served: "_Exchange") -> None:
        await self._app(scope, served.receive, served.send)


class _Exchange:
    """The server's side of one request."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._status = 0
        self._headers: asgi.Headers = ()
        self._pieces: list[bytes] = []

    async def receive(self) -> asgi.Message:
        if self._body is None:
            await asyncio.get_running_loop().create_future()  # who has sent it stays
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: asgi.Message) -> None:
        if message["type"] == "http.response.start":
            self._status, self._headers = message["status"], message["headers"]
        else:
            self._pieces.append(message.get("body", b""))

    def response(self) -> http_types.Response:
        headers = multidict.CIMultiDict(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in self._headers
        )
        return http_types.Response(self._status, "", b"".join(self._pieces), headers)


def _scope(request: http_types.Request, headers: Iterable[tuple[str, str]]) -> asgi.Scope:
    """As `kit.serving` makes it of a connection."""
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
