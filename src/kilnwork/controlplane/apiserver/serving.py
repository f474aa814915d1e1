"""Listening: ASGI apps on two ports of 127.0.0.1, TLS on one and plain http on the next.

Used by `cluster`. uvicorn's protocol without uvicorn's server: no signal handlers, no log lines, no
ticking, and a stop that ends within the time it is given. Client certificates are asked for, not
demanded, and reach the app as `scope["state"]["peer_certificate"]`.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.server import ServerState

from kilnwork.controlplane.apiserver import pki, requests
from kilnwork.kit import errors, ids

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
KEEP_ALIVE_S = 300
"""Longer than clients keep idle connections, so that no request meets a closed one."""

_FREE_PORT_TRIES = 100
_LOWEST_FREE_PORT = 10240
_LAST_PORT = 65535
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_BACKLOG = 2048


class _Protocol(httptools_impl.HttpToolsProtocol):
    """uvicorn's HTTP protocol that also says who the TLS client is."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        self.app_state = {"peer_certificate": tls.getpeercert() if tls is not None else None}


@dataclass(frozen=True, slots=True)
class Ports:
    """Two bound sockets next to each other."""

    tls: socket.socket
    plain: socket.socket

    @property
    def number(self) -> int:
        """The port with TLS; plain http is on the one after it."""
        return int(self.tls.getsockname()[1])

    def close(self) -> None:
        """Give both ports back."""
        self.tls.close()
        self.plain.close()


def bind(port: int, *, preferred: int | None = None, entropy: ids.Entropy | None = None) -> Ports:
    """Take `port` and the one after it; for 0 a free pair, `preferred` if that is free.

    A free pair lies below the ports that the kernel gives to outgoing connections, so that after a
    crash no connection sits on it when the next server wants it again.
    Raises ConfigurationError naming the process that holds the port.
    """
    if port:
        return _bind_pair(port)
    for candidate in [preferred] if preferred else []:
        try:
            return _bind_pair(candidate)
        except errors.ConfigurationError:
            break
    below = _lasting_ports()
    chance = entropy or ids.system_entropy()
    for _ in range(_FREE_PORT_TRIES):
        found = _try_pair(chance.choice(below) if below else 0)
        if found is not None:
            return found
    raise errors.ConfigurationError("no two free ports next to each other on 127.0.0.1")


def _lasting_ports() -> range:
    """Where pairs may begin that no outgoing connection gets; empty if there is no such place."""
    try:
        first_ephemeral = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return range(0)
    return range(_LOWEST_FREE_PORT, first_ephemeral - 1)


def _try_pair(port: int) -> Ports | None:
    """The pair that begins with `port`, with any free one for 0; None if either is taken."""
    try:
        first = _bind(port)
    except OSError:
        return None
    number = int(first.getsockname()[1])
    try:
        if number < _LAST_PORT:
            return Ports(first, _bind(number + 1))
    except OSError:
        pass
    first.close()
    return None


def _bind_pair(port: int) -> Ports:
    if not 1 <= port <= 65534:
        raise errors.ConfigurationError(f"port {port}: choose one from 1 to 65534")
    bound: list[socket.socket] = []
    for number in (port, port + 1):
        try:
            bound.append(_bind(number))
        except OSError as error:
            for earlier in bound:
                earlier.close()
            raise errors.ConfigurationError(_in_use(number, port, error)) from error
    return Ports(*bound)


def _bind(port: int) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted connections inherit it. asyncio sets it only on sockets made with proto=IPPROTO_TCP.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    found.setblocking(False)
    try:
        found.bind((HOST, port))
        found.listen(_BACKLOG)
    except OSError:
        found.close()
        raise
    return found


def _in_use(number: int, port: int, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return f"port {number} on {HOST} is reserved for root: choose a --port from 1024 up"
    holder = port_holder(number)
    held = f"is in use by {holder}" if holder else f"cannot be used: {error.strerror}"
    need = "" if number == port else f" (plain http goes to the port after {port})"
    return f"port {number} on {HOST} {held}{need}: stop that process, or choose another --port"


def port_holder(port: int) -> str:
    """`process PID (command)` that listens on the port; empty when that cannot be seen."""
    wanted = {f"socket:[{inode}]" for inode in _listening(port)}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and wanted & _open_files(entry):
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                return f"process {entry.name} ({command[:80]})"
    return ""


def _open_files(process: Path) -> set[str]:
    """What the descriptors of a process lead to; empty for one that is not ours."""
    found: set[str] = set()
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(descriptor.readlink()))
    return found


def _listening(port: int) -> set[str]:
    """Inodes of the sockets that listen on a port (proc(5), /proc/net/tcp)."""
    found = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def tls_context(certificates: pki.Pki) -> ssl.SSLContext:
    """The server's TLS settings: its certificate, and clients may present one of the same CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificates.server.certificate, certificates.server.key)
    context.load_verify_locations(cafile=str(certificates.ca_certificate))
    context.verify_mode = ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context


class Listener:
    """One app on one socket."""

    def __init__(
        self, app: requests.App, listening: socket.socket, *, tls: ssl.SSLContext | None = None
    ) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._socket = listening
        self._tls = tls
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Accept connections."""
        self._config.load()
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            return _Protocol(self._config, self._state, {}, _loop=loop)

        self._server = await loop.create_server(
            protocol, sock=self._socket, ssl=self._tls, backlog=_BACKLOG
        )

    async def stop(self, *, timeout_s: float) -> None:
        """Accept no more, let running requests end, cut those that do not end in time."""
        if self._server is None:
            self._socket.close()
            return
        self._server.close()
        for connection in tuple(self._state.connections):
            connection.shutdown()
        running: Sequence[asyncio.Task[Any]] = tuple(self._state.tasks)
        if running:
            _, late = await asyncio.wait(running, timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                log.warning("requests cut off", extra={"requests": len(late)})
                await asyncio.wait(late, timeout=1.0)
        for connection in tuple(self._state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()
        self._server = None
