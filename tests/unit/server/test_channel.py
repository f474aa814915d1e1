"""`/channel` before the first frame: who is accepted, and which connections have ended."""

import asyncio
from typing import Any

from kilnwork.api import manager_access
from kilnwork.kit import asgi
from kilnwork.server import channel


async def test_disconnected_client_gets_no_link() -> None:
    def gone() -> asgi.Hijacked:
        raise asgi.Disconnected

    def link() -> asyncio.Protocol:
        raise AssertionError("the client has gone")

    async def receive() -> Any:
        raise AssertionError("there is no body to be read")

    async def send(message: Any) -> None:
        raise AssertionError(f"no client receives {message}")

    scope = {
        "type": "http",
        "method": "GET",
        "path": manager_access.CHANNEL_PATH,
        "headers": [(b"upgrade", manager_access.CHANNEL_PROTOCOL.encode())],
        "extensions": {asgi.HIJACK: gone},
    }
    await channel.ChannelApp(link)(scope, receive, send)
