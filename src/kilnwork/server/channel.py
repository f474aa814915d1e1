"""`/channel`: the dispatcher's links over HTTP, by an Upgrade (RFC 9110 §7.8).

Mounted by the composition roots. After `101` the frames of the Unix socket follow, both ways. No
credential is asked for here: a peer proves itself by its first frame, or loses the link (`dispatch.
gate`). Not WebSocket: docs/decisions/0013.
"""

import asyncio
import socket
from collections.abc import Callable

from kilnwork.api import manager
from kilnwork.kit import serving
from kilnwork.server import asgi, errors

_PROTOCOL = manager.CHANNEL_PROTOCOL.encode()

QUIET_S, PROBE_S, PROBES = 15, 5, 3
"""TCP keepalive: a peer whose machine or network is gone is noticed after half a minute."""


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
        taken = hijack()
        _keep_alive(taken.transport)
        taken.transport.write(serving.switching(manager.CHANNEL_PROTOCOL))
        taken.hand_over(self._new_link())


def _keep_alive(transport: asyncio.Transport) -> None:
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, QUIET_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
