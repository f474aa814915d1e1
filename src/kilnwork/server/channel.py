"""`/channel`: the dispatcher's links over HTTP, by an Upgrade (RFC 9110 §7.8).

Mounted by the composition roots. After `101` the frames of the Unix socket follow, both ways. No
credential is asked for here: a peer proves itself by its first frame, or loses the link
(`dispatch.hub. authentication`). Not WebSocket: docs/decisions/0013.
"""

import asyncio
from collections.abc import Callable

from kilnwork.api import manager
from kilnwork.kit import keepalive, serving
from kilnwork.server import asgi, errors

_PROTOCOL = manager.CHANNEL_PROTOCOL.encode()


class Channel:
    """The app. `new_link` makes the dispatcher's end of one more connection."""

    def __init__(self, new_link: Callable[[], asyncio.Protocol]) -> None:
        self._new_link = new_link

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Switch protocols, or say how to."""
        if scope["type"] != "http":
            return
        if scope["path"] != manager.CHANNEL_PATH:
            await asgi.problem(send, errors.NotFound(f"nothing is served at {scope['path']}"))
            return
        wanted = {value.lower() for name, value in scope["headers"] if name == b"upgrade"}
        hijack: serving.Hijack | None = scope.get("extensions", {}).get(serving.HIJACK)
        if hijack is None or scope["method"] != "GET" or wanted != {_PROTOCOL}:
            await asgi.problem(send, errors.UpgradeRequired())
            return
        try:
            taken = hijack()
        except serving.Gone:
            return
        keepalive.watch(taken.transport.get_extra_info("socket"))
        taken.transport.write(serving.switching(manager.CHANNEL_PROTOCOL))
        taken.hand_over(self._new_link())
