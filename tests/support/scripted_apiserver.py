"""A small scripted HTTP server on loopback that plays a misbehaving API server."""

from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp.web

Handler = Callable[[aiohttp.web.Request], Awaitable[aiohttp.web.StreamResponse]]


class ScriptedApiServer:
    """HTTP server that responds by `handler` and records requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.headers: list[dict[str, str]] = []
        self.handler: Handler | None = None
        self.url = ""

    async def serve(self, request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
        body = await request.read()
        self.asked.append((request.method, request.path, dict(request.query), body))
        self.headers.append(dict(request.headers))
        assert self.handler is not None
        return await self.handler(request)

    def respond(
        self, body: Any, *, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """Respond to every request with the same JSON."""

        async def handler(_: aiohttp.web.Request) -> aiohttp.web.Response:
            return aiohttp.web.json_response(body, status=status, headers=headers)

        self.handler = handler
