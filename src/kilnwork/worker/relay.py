"""The relay: two local Unix sockets whose connections are forwarded to a dispatcher on another
machine.

Used by `agent_process` and `sidecar_socket_server` when KILN_CHANNEL says tls://. Each connection
to the socket `channel` becomes a connection to the manager's `/channel`, after TLS and the Upgrade
(docs/decisions/0013). Each connection to `http` becomes a TLS connection to the manager and nothing
more. So agent and slots always speak frames over a Unix socket, and slots need no TLS. When a
connection cannot be forwarded, it is closed, and the agent or slot tries again. The CA file is read
for each connection, since its Secret may change.
"""

import asyncio
import functools
import logging
import ssl
from collections import deque
from typing import cast

from kilnwork.api import manager_access
from kilnwork.kit import coroutines, errors, http1_client, tcp_keepalive
from kilnwork.worker import settings

log = logging.getLogger(__name__)

JOIN_S = 5.0
"""Maximum seconds for TCP, TLS and the Upgrade together; then the connection is closed, so that the
agent or slot tries again: a manager that hangs must not keep it from the next manager.
"""

DRAIN_S = 5.0
"""Maximum seconds for which a connection whose other end is gone stays open, to send the remaining
data; after that the rest is dropped.
"""

_UPGRADE = http1_client.request_head(
    "GET",
    manager_access.CHANNEL_PATH,
    {
        "Host": manager_access.SERVER_NAME,
        "Connection": "Upgrade",
        "Upgrade": manager_access.CHANNEL_PROTOCOL,
    },
)


class CannotJoin(errors.KilnError):
    """The manager cannot be reached, or refused the connection, at the moment."""


class _End(asyncio.Protocol):
    """One end of a forwarded connection. Data that arrives before there is a `partner` is kept."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.partner: _End | None = None
        self.over = False
        self._early: deque[bytes] = deque()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.partner is None:
            self._early.append(data)
        else:
            self.partner.write(data)

    def pause_writing(self) -> None:
        # While data cannot be sent here, none is read there, so that nothing piles up.
        if self.partner is not None and self.partner.transport is not None:
            self.partner.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.partner is not None and self.partner.transport is not None:
            self.partner.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over = True
        self.transport = None
        if self.partner is not None:
            self.partner.close()

    def write(self, data: bytes) -> None:
        """Send data on this end; drop it if the connection is closed."""
        if self.transport is not None:
            self.transport.write(data)

    def close(self) -> None:
        """Close the connection once all written data is sent, or after `DRAIN_S`."""
        if self.transport is not None:
            self.transport.close()
            asyncio.get_running_loop().call_later(DRAIN_S, self.transport.abort)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def join(self, partner: "_End") -> None:
        """Forward all data to `partner` from now on, beginning with the data kept so far."""
        self.partner = partner
        while self._early:
            partner.write(self._early.popleft())


class _Near(_End):
    """The local end of a forwarded connection, from an agent or slot of this worker.

    Nothing is read before the remote end is connected.
    """

    def __init__(self, relay: "Relay", *, upgrade: bool) -> None:
        super().__init__()
        self._relay = relay
        self._upgrade = upgrade

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast(asyncio.Transport, transport).pause_reading()
        self._relay.accepted(self, upgrade=self._upgrade)


class _Far(_End):
    """The remote end of a forwarded connection, to the manager."""

    def __init__(self) -> None:
        super().__init__()
        self._head = b""
        self.switched: asyncio.Future[None] | None = None
        """The future of the response to the Upgrade; None unless it is awaited."""

    async def switch(self) -> None:
        """Send the Upgrade request for the channel. Raises CannotJoin."""
        self.switched = asyncio.get_running_loop().create_future()
        self.write(_UPGRADE)
        try:
            await self.switched
        finally:
            self.switched = None

    def data_received(self, data: bytes) -> None:
        if self.switched is None:
            super().data_received(data)
            return
        self._head += data
        try:
            cut = http1_client.cut_head(self._head)
            if cut is None or self.switched.done():
                return
            head = http1_client.parse_head(cut[0])
        except http1_client.BadResponse as error:
            self._fail(CannotJoin(str(error)))
            return
        if head.status == 101:
            self.switched.set_result(None)
            # Frames may arrive together with the status 101.
            if cut[1]:
                self._early.append(cut[1])
            return
        self._fail(CannotJoin(f"it responds with {head.status} {head.reason} to {_upgrade_text()}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(CannotJoin(f"it closed the connection{f' ({exc})' if exc else ''}"))
        super().connection_lost(exc)

    def _fail(self, error: Exception) -> None:
        if self.switched is not None and not self.switched.done():
            self.switched.set_exception(error)


class Relay:
    """Forwarder of local connections to the manager; see the module.

    `problem`: why the last connection failed; "" if it did not.
    """

    def __init__(self, given: settings.RemoteManager) -> None:
        self._given = given
        self._background = coroutines.BackgroundWork("relay")
        self._servers: list[asyncio.Server] = []
        self._ends: set[_End] = set()
        self._context: tuple[bytes, ssl.SSLContext] | None = None
        self.problem = ""

    @property
    def address(self) -> str:
        """Return the address of the manager for messages, with the current problem if any."""
        where = f"{self._given.host}:{self._given.port}"
        return f"{where} ({self.problem})" if self.problem else where

    async def start(self) -> None:
        """Listen on both sockets. The directory must exist and belong to this worker alone."""
        loop = asyncio.get_running_loop()
        for path, upgrade in ((self._given.channel, True), (self._given.http, False)):
            near = functools.partial(_Near, self, upgrade=upgrade)
            self._servers.append(await loop.create_unix_server(near, path))

    async def stop(self) -> None:
        """Close the sockets and all forwarded connections."""
        for server in self._servers:
            server.close()
        await self._background.stop()
        for end in list(self._ends):
            end.abort()

    def accepted(self, near: _Near, *, upgrade: bool) -> None:
        self._background.start("join", self._join(near, upgrade=upgrade))

    async def _join(self, near: _Near, *, upgrade: bool) -> None:
        far = _Far()
        try:
            async with asyncio.timeout(JOIN_S):
                await self._connect(far)
                if upgrade:
                    await far.switch()
        except (OSError, TimeoutError, CannotJoin) as error:
            self._failed(error)
            far.abort()
            near.abort()
            return
        except BaseException:
            far.abort()
            near.abort()
            raise
        self._worked()
        self._ends = {end for end in self._ends if not end.over} | {near, far}
        # One end may have closed while the other was being connected.
        if near.over or far.over or near.transport is None:
            near.close()
            far.close()
            return
        near.join(far)
        far.join(near)
        # Last: data of the near end must find the partner.
        near.transport.resume_reading()

    async def _connect(self, far: _Far) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(
            lambda: far,
            self._given.host,
            self._given.port,
            ssl=self._tls(),
            # The name in the manager's certificate, whatever its address.
            server_hostname=manager_access.SERVER_NAME,
            ssl_handshake_timeout=JOIN_S,
            ssl_shutdown_timeout=DRAIN_S,
        )
        tcp_keepalive.bound_silence(transport.get_extra_info("socket"))

    def _tls(self) -> ssl.SSLContext:
        """Return a TLS context for the CA file as it is now. Raises CannotJoin."""
        path = self._given.ca_file
        try:
            pem = path.read_bytes()
            if self._context is None or self._context[0] != pem:
                if not pem.strip():  # Python would use the CAs of the system instead
                    raise ValueError("it is empty")
                made = ssl.create_default_context(cadata=pem.decode("ascii"))
                self._context = pem, made
        except (OSError, ValueError, ssl.SSLError) as error:
            raise CannotJoin(f"the CA file {path} cannot be used: {error}") from error
        return self._context[1]

    def _failed(self, error: Exception) -> None:
        why = _explained(error, self._given)
        if why != self.problem:
            self.problem = why
            facts = {"manager": f"{self._given.host}:{self._given.port}", "why": why}
            log.warning("the manager cannot be reached", extra=facts)

    def _worked(self) -> None:
        if self.problem:
            self.problem = ""
            where = f"{self._given.host}:{self._given.port}"
            log.info("the manager can be reached again", extra={"manager": where})


def _explained(error: Exception, given: settings.RemoteManager) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not the manager's by the CA in {given.ca_file}: "
            f"{error.verify_message}"
        )
    if isinstance(error, TimeoutError):
        return f"no response within {JOIN_S:g} s"
    return str(error) or type(error).__name__


def _upgrade_text() -> str:
    return (
        f"{manager_access.CHANNEL_PATH}, which should switch to {manager_access.CHANNEL_PROTOCOL}"
    )
