"""A blocking HTTP client of a manager, which keeps connections and retries while the manager is
away.

Used by `connector` and `sdk.job_requests` (requests of the SDK), `data.remote_blobs` (blobs) and
`data.stores.manager_http_store` (objects). This module does not import TLS; only a `Connector` that
needs TLS does. So slots, which connect to a relay over a Unix socket, do not load it. The client
does not follow redirects.
"""

import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from kilnwork.kit import backoff, errors, http1_client, http_types, ids
from kilnwork.kit import clock as clocks

RETRY = backoff.Backoff(base_s=0.05, max_s=2.0, jitter=0.2)
MAX_IDLE = 4
"""Maximum number of idle connections that are kept open."""

_PIECE_BYTES = 256 << 10
_UNAUTHORIZED, _NO_ROOM = 401, 507
_LATER = frozenset({429, 502, 503, 504})
"""Statuses to retry: the manager, or a proxy, is starting, stopping or overloaded."""

R = TypeVar("R")


class TryAgain(Exception):
    """The request failed, but a retry may succeed: no response came, or one such as 429 or 503.

    `wait_s`: how long to wait before the retry, if the server asks for that.
    """

    def __init__(self, text: str, *, wait_s: float = 0.0) -> None:
        super().__init__(text)
        self.wait_s = wait_s


class OpenResponse(NamedTuple):
    """A response whose body is still to be read from the connection.

    `repeated`: an earlier attempt, whose response was lost, may have processed the request.
    """

    head: http1_client.ResponseHead
    connection: http1_client.Connection
    repeated: bool


class Failures(NamedTuple):
    """The exception classes to raise when the manager does not return an expected response."""

    unreachable: type[errors.KilnError]
    refused: type[errors.KilnError]
    full: type[errors.KilnError]


_ANY_FAILURE = Failures(errors.KilnError, errors.KilnError, errors.KilnError)


class Connector(Protocol):
    """Connects to one manager, with credentials; its methods are called from several threads."""

    def connect(self) -> socket.socket:
        """Return a new connected socket: over TLS, or to a relay.

        Raises OSError if a retry may help, and otherwise KilnError.
        """
        ...

    def headers(self) -> Mapping[str, str]:
        """Return the headers to send with each request."""
        ...

    def refused(self) -> None:
        """Use another credential from now on, if there is one, since the current one was
        rejected.
        """
        ...


class SlotManager(NamedTuple):
    """The connection of a slot to the manager.

    `spool`: the directory of this worker for data that waits to be sent.
    """

    connector: Connector
    spool: Path | None


slot_manager: SlotManager | None = None
"""The connection of this process to the manager, for slots of workers that share no directory with
the manager: such a worker sets it before it forks slots. None in all other processes.
"""


class Client:
    """A client of one manager; safe to use from several threads, and in a forked child.

    `what`: the path to name in messages. `patience_s`: seconds for which the manager may be away.
    """

    def __init__(
        self,
        connector: Connector,
        failures: Failures = _ANY_FAILURE,
        *,
        what: str = "",
        patience_s: float = 60.0,
        clock: clocks.Clock | None = None,
        entropy: ids.Entropy | None = None,
    ) -> None:
        self._connector = connector
        self._failures = failures
        self._what = what
        self._patience_s = patience_s
        self._clock = clock or clocks.SystemClock()
        self._entropy = entropy or ids.system_entropy()
        self._idle: list[http1_client.Connection] = []
        self._owner = os.getpid()
        self._pause = threading.Event()
        weakref.finalize(self, _close, self._idle)

    def send(
        self,
        request: http_types.ClientRequest,
        expected: tuple[int, ...],
        read: Callable[[OpenResponse], R],
        *,
        lend: bool = False,
    ) -> R:
        """Send a request that may be repeated until there is a response, for at most `patience_s`.

        `read` is called with a response whose status is in `expected`, perhaps more than once.
        `lend`: the caller owns the connection afterwards, and closes it or gives it back once the
        body is read. Raises the configured failures.
        """
        until = self._clock.monotonic() + self._patience_s
        failures = 0
        while True:
            try:
                return self.send_once(request, expected, read, repeated=failures > 0, lend=lend)
            except TryAgain as error:
                failures += 1
                if self._clock.monotonic() + error.wait_s > until:
                    raise self._failures.unreachable(self._no_patience(error)) from error
                # Random, so that clients that were refused together do not retry together.
                asked_s = error.wait_s * (1 + 0.2 * self._entropy.random())
                self._pause.wait(max(asked_s, RETRY.delay_s(failures, entropy=self._entropy)))

    def send_once(
        self,
        request: http_types.ClientRequest,
        expected: tuple[int, ...],
        read: Callable[[OpenResponse], R],
        *,
        repeated: bool = False,
        lend: bool = False,
    ) -> R:
        """Send a request once; return the result of `read`, which is called with the response.

        Raises `TryAgain` if a retry may help, otherwise the errors of `send`.
        """
        renewed = False
        while True:
            connection, used = self._take()
            try:
                connection.socket.settimeout(request.timeout_s)
                head = _exchange(connection, request, self._connector.headers())
                if head.status == _UNAUTHORIZED and not renewed:
                    renewed = True
                    connection.close()
                    self._connector.refused()
                    continue
                if expected and head.status not in expected:
                    raise self._refusal(head, connection)
                found = read(OpenResponse(head, connection, repeated))
                if not lend:
                    self.give_back(connection)
                return found
            except (OSError, http1_client.BadResponse) as error:
                connection.close()
                repeated = True
                if not used:
                    raise TryAgain(str(error) or type(error).__name__) from error
            except BaseException:
                connection.close()
                raise

    def exchange(self, request: http_types.ClientRequest) -> http_types.ClientResponse:
        """Send a request once and return the response, whatever its status.

        Raises `TryAgain` if there is no response.
        """
        return self.send_once(request, (), _whole)

    def close(self) -> None:
        """Close the idle connections; later requests open new connections."""
        _close(self._idle)

    def _no_patience(self, error: TryAgain) -> str:
        if error.wait_s:
            return (
                f"the manager's {self._what} is busy ({error}) and asks to wait "
                f"{error.wait_s:,.0f} s, of {self._patience_s:g} s at most: try again later"
            )
        return (
            f"the manager's {self._what} cannot be reached for {self._patience_s:g} s "
            f"({error}): is it running?"
        )

    def _refusal(
        self, head: http1_client.ResponseHead, connection: http1_client.Connection
    ) -> Exception:
        response = http_types.ClientResponse(head.status, head.reason, connection.read())
        connection.close()
        text = response.message()
        if head.status in _LATER:
            asked_s = http_types.retry_after_s(
                head.headers.get("retry-after"), now_s=self._clock.wall()
            )
            return TryAgain(text, wait_s=asked_s or 0.0)
        if head.status == _NO_ROOM:
            return self._failures.full(text)
        return self._failures.refused(f"the manager refuses {self._what}: {text}")

    def _take(self) -> tuple[http1_client.Connection, bool]:
        """Return a connection, and whether it was used before.

        The server may have closed a connection that was used before.
        """
        if self._owner != os.getpid():  # after a fork, connections belong to the parent
            self._owner = os.getpid()
            _close(self._idle)
        with contextlib.suppress(IndexError):
            return self._idle.pop(), True
        try:
            return http1_client.Connection(self._connector.connect()), False
        except OSError as error:
            raise TryAgain(str(error) or type(error).__name__) from error

    def give_back(self, connection: http1_client.Connection) -> None:
        """Return a connection to the pool once its response is read, or close it."""
        if connection.reusable and len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()


def drop(response: OpenResponse) -> None:
    """Read and discard the body of a response, so that the connection can be used again."""
    response.connection.read()


def _whole(response: OpenResponse) -> http_types.ClientResponse:
    head, body = response.head, response.connection.read(most=16 << 20)
    return http_types.ClientResponse(head.status, head.reason, body, head.headers)


def _exchange(
    connection: http1_client.Connection,
    request: http_types.ClientRequest,
    caller: Mapping[str, str],
) -> http1_client.ResponseHead:
    method, content = request.method, request.body
    headers = {**caller, **(request.headers or {})}
    if request.accept:
        headers["Accept"] = request.accept
    if content is not None and request.content_type:
        headers["Content-Type"] = request.content_type
    try:
        if isinstance(content, Path):
            with content.open("rb") as opened:
                size = os.fstat(opened.fileno()).st_size
                pieces = iter(lambda: opened.read(_PIECE_BYTES), b"")
                connection.send(method, request.target(), headers, body=pieces, length=size)
        else:
            body = () if content is None else (content,)
            length = None if method == "GET" else len(content or b"")
            connection.send(method, request.target(), headers, body=body, length=length)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the peer has stopped reading: its response may give the reason
    return connection.read_head(to=method)


def _close(idle: list[http1_client.Connection]) -> None:
    while idle:
        idle.pop().close()
