"""Channel over HTTP: `/channel` upgrades a connection (RFC 9110 §7.8) to a link of the dispatcher.

Mounted by the composition roots. After `101` both sides send the same frames as on the Unix socket.
No credential is needed here: a peer authenticates itself in its first frame, or its link is closed
(`dispatch.hub.authentication`). Not WebSocket: docs/decisions/0013.
"""

import asyncio
from collections.abc import Callable

from kilnwork.api import manager_access
from kilnwork.kit import asgi, tcp_keepalive
from kilnwork.server import errors, problems


class ChannelApp:
    """ASGI app of `/channel`. `new_link` makes the dispatcher's end of a new connection."""

    def __init__(self, new_link: Callable[[], asyncio.Protocol]) -> None:
        self._new_link = new_link

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Serve one request (ASGI)."""
        request, response = asgi.Request(scope, receive), problems.response(send)
        await problems.respond(self._switch(request), request, response)

    async def _switch(self, request: asgi.Request) -> None:
        """Switch the connection from HTTP to the channel protocol.

        Raises UpgradeRequired, which tells the client how to connect, if the request is not an
        upgrade.
        """
        if request.path != manager_access.CHANNEL_PATH:
            raise errors.NotFound(f"nothing is served at {request.path}")
        wanted = {name.lower() for name in request.headers(b"upgrade")}
        hijack = request.hijack
        if hijack is None or request.method != "GET" or wanted != {manager_access.CHANNEL_PROTOCOL}:
            raise errors.UpgradeRequired
        taken = hijack()
        tcp_keepalive.bound_silence(taken.transport.get_extra_info("socket"))
        taken.transport.write(asgi.switching(manager_access.CHANNEL_PROTOCOL))
        taken.hand_over(self._new_link())
