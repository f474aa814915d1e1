"""Connections to sources and peers over checked addresses and TLS; they are reused.

Used by `http_source`, `job_source` and `peer_transfers`, from several threads. Blocking: each file
has a thread, which spends its time in the kernel and in SHA-256.
"""

import contextlib
import socket
import ssl
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from kilnwork.data import errors
from kilnwork.kit import egress, http1_client, tls_socket

CONNECT_S = 10.0
STALL_S = 60.0
"""Seconds without data from a server after which the connection to it is closed."""

MAX_IDLE = 64
"""Maximum number of idle connections that are kept: as many as files are fetched at the same
time.
"""


class Server(NamedTuple):
    """The address of a server to connect to.

    `tls_name`: the name that its certificate must have, "" for plain http.
    """

    host: str
    port: int
    tls_name: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Request(NamedTuple):
    """An HTTP request; the method is GET or HEAD."""

    server: Server
    target: str
    headers: Mapping[str, str]
    method: str = "GET"


class Exchange(NamedTuple):
    """An HTTP response whose body must still be read from the connection."""

    head: http1_client.ResponseHead
    connection: http1_client.Connection


class Connections:
    """A pool of connections to sources and peers.

    `policy`: checks addresses; None if the addresses do not come from users. `context`: the TLS
    context.
    """

    def __init__(self, policy: egress.Policy | None, context: Callable[[], ssl.SSLContext]) -> None:
        self._policy = policy
        self._context = context
        self._idle: dict[Server, list[http1_client.Connection]] = {}
        self._active: set[http1_client.Connection] = set()
        self._closed = False
        self._count = 0
        self._lock = threading.Lock()
        weakref.finalize(self, _close_all, self._idle)

    @contextlib.contextmanager
    def send(self, request: Request) -> Iterator[Exchange]:
        """Send a request and yield the response.

        The connection is reused if the body has been read to its end. Raises SourceUnreachable,
        also for a response that is not HTTP, and SourceRefused for an address that is not allowed.
        """
        with _explained(request.server):
            exchange = self._exchange(request)
        try:
            with _explained(request.server):
                yield exchange
        except BaseException:
            self._drop(exchange.connection)
            raise
        self._give_back(request.server, exchange.connection)

    def close(self) -> None:
        """Close idle connections, abort busy connections, and open no further ones."""
        with self._lock:
            self._closed = True
            _close_all(self._idle)
            self._count = 0
            for connection in self._active:
                with contextlib.suppress(OSError):
                    connection.socket.shutdown(socket.SHUT_RDWR)

    def _exchange(self, request: Request) -> Exchange:
        while True:
            idle = self._take(request.server)
            connection = idle or http1_client.Connection(self._connect(request.server))
            try:
                self._note(connection)
                connection.send(request.method, request.target, request.headers)
                return Exchange(connection.read_head(to=request.method), connection)
            except (OSError, http1_client.BadResponse):
                self._drop(connection)
                if idle is None:
                    raise  # an idle connection may have been closed: another try does no harm

    def _note(self, connection: http1_client.Connection) -> None:
        with self._lock:
            if self._closed:
                raise OSError("the agent stops")
            self._active.add(connection)

    def _drop(self, connection: http1_client.Connection) -> None:
        with self._lock:
            self._active.discard(connection)
        connection.close()

    def _take(self, server: Server) -> http1_client.Connection | None:
        with self._lock:
            kept = self._idle.get(server)
            if not kept:
                return None
            self._count -= 1
            return kept.pop()

    def _give_back(self, server: Server, connection: http1_client.Connection) -> None:
        with self._lock:
            self._active.discard(connection)
            if (
                connection.reusable
                and connection.finished
                and self._count < MAX_IDLE
                and not self._closed
            ):
                self._idle.setdefault(server, []).append(connection)
                self._count += 1
                return
        connection.close()

    def _connect(self, server: Server) -> socket.socket:
        plain = self._connected(server)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not server.tls_name:
                plain.settimeout(STALL_S)
                return plain
            secure = tls_socket.wrap(self._context(), plain, server_name=server.tls_name)
            secure.settimeout(STALL_S)
            return secure
        except BaseException:
            plain.close()
            raise

    def _connected(self, server: Server) -> socket.socket:
        """Return a socket connected to the first address of the server that is allowed and accepts.

        The connection is made to the address that was checked: the name is not resolved again.
        """
        found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
        failure: Exception = OSError(f"{server.host} has no address")
        for family, kind, protocol, _, address in found:
            try:
                if self._policy is not None:
                    self._policy.check(str(address[0]), server.port)
            except egress.EgressRefused as error:
                failure = errors.SourceRefused(
                    f"{server}: {error}; spec.sources[].allowAddresses of the DataPond can allow it"
                )
                continue
            made = socket.socket(family, kind, protocol)
            made.settimeout(CONNECT_S)
            try:
                made.connect(address)
            except OSError as error:
                made.close()
                failure = error
                continue
            return made
        raise failure


def _close_all(idle: dict[Server, list[http1_client.Connection]]) -> None:
    for kept in idle.values():
        for connection in kept:
            connection.close()
    idle.clear()


@contextlib.contextmanager
def _explained(server: Server) -> Iterator[None]:
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise errors.SourceRefused(
            f"the certificate of {server} is not trusted: {error.verify_message}"
        ) from error
    except ValueError as error:  # the host is not a name: a redirect may contain any text
        raise errors.SourceRefused(f"{str(server)[:80]!r} is no address: {error}") from error
    except (OSError, http1_client.BadResponse) as error:
        why = str(error) or type(error).__name__
        raise errors.SourceUnreachable(f"{server} cannot be read from: {why}") from error
