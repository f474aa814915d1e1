"""Connections for HTTP exchanges: only to checked addresses, and each known to its exchange.

Used by `exchange`. A context variable holds the exchange that a connection is for, since aiohttp
passes nothing from its caller to a connector.
"""

import asyncio
import contextvars
import ipaddress
import socket
from typing import Any, Protocol

import aiohttp
from aiohttp import abc

from kilnwork.kit import egress

MAX_IDLE_S = 15.0
"""Seconds for which an idle connection is kept for the next request to the same server."""

MAX_SPOILED = 10
"""Maximum number of connections to try to a server that sends data that was not requested."""

MAX_PASSED = 1000


class Waiting(Protocol):
    """An exchange that waits for a connection."""

    def named(self) -> None:
        """Record that the host name is resolved, and that connecting to the address is allowed."""
        ...

    async def connected(self, connection: aiohttp.connector.Connection) -> None:
        """Accept a connection on which nothing was sent for this exchange yet."""
        ...


current: contextvars.ContextVar[Waiting] = contextvars.ContextVar("exchange")
"""The exchange that requests a connection."""


class GuardedResolver(abc.AbstractResolver):
    """A system resolver that drops addresses to which connecting is forbidden."""

    def __init__(self, policy: egress.Policy) -> None:
        self._policy = policy

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[abc.ResolveResult]:
        """Return the addresses of a host to which connecting is allowed.

        Raises `AddressRefused` if there is none, and OSError if the name cannot be resolved.
        """
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG
        )
        left: list[abc.ResolveResult] = []
        refused: egress.EgressRefused | None = None
        for kind, _, protocol, _, address in found:
            try:
                self._policy.check(str(address[0]), port)
            except egress.EgressRefused as error:
                refused = error
                continue
            left.append(
                abc.ResolveResult(
                    hostname=host,
                    host=str(address[0]),
                    port=int(address[1]),
                    family=kind,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        if not left:
            raise AddressRefused(f"{host}: {refused}" if refused else f"{host} has no address")
        return left

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""


class AddressRefused(OSError):
    """All addresses of a host name are refused. An OSError, so that aiohttp handles it as such."""


class GuardedConnector(aiohttp.TCPConnector):
    """A connector that returns a connection only after the exchange that waits for it has agreed.

    `shared`: whether requests to the same server reuse connections, one after the other; otherwise
    each request has a connection of its own.
    """

    def __init__(self, policy: egress.Policy, *, shared: bool) -> None:
        keep: dict[str, Any] = {"keepalive_timeout": MAX_IDLE_S} if shared else {}
        super().__init__(
            resolver=GuardedResolver(policy),
            use_dns_cache=False,
            limit=0,
            force_close=not shared,
            **keep,
        )
        self._policy = policy
        self._passed: set[tuple[str, int]] = set()
        """Hosts and ports that were checked: names, and addresses to which connecting is
        allowed."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,
    ) -> aiohttp.connector.Connection:
        """Return a connection for the current exchange. Raises AddressRefused, TimeoutError and the
        exceptions of aiohttp.
        """
        exchange = current.get()
        place = req.url.host or "", req.url.port or 0
        if place not in self._passed:
            self._check_literal(*place)
            self._passed.add(place)
            if len(self._passed) > MAX_PASSED:
                self._passed.clear()
        connection = await self._connect_clean(req, traces, timeout)
        try:
            await exchange.connected(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connect_clean(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        """Return a connection on which no data is pending.

        aiohttp would take surplus data of a server for the response to the next request.
        """
        for _ in range(MAX_SPOILED):
            connection = await super().connect(req, traces, timeout)
            if connection.protocol is None or not connection.protocol.should_close:
                return connection
            connection.close()
        raise aiohttp.ClientConnectionError(f"{req.url.host} sends before it is asked")

    async def _resolve_host(self, host: str, port: int, traces: Any = None) -> Any:
        found = await super()._resolve_host(host, port, traces)
        current.get().named()
        return found

    def _check_literal(self, host: str, port: int) -> None:
        """Check an IP address in the URL, which needs no resolution and so is not seen by the
        resolver.
        """
        if not (":" in host or host[-1:].isdigit()):
            return
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return  # not an IP address; aiohttp refuses other notations that the system accepts
        try:
            self._policy.check(host, port)
        except egress.EgressRefused as error:
            raise AddressRefused(str(error)) from error
