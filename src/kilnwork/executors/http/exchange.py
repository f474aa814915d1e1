"""One HTTP request and its response, on a connection that can be aborted with proof of its end.

Used by `attempt`; `request_builder`, `results` and `har` use its values. Redirects are not followed
here. Exceptions of aiohttp are converted to `AttemptFailed`.
"""

import asyncio
import contextlib
import hashlib
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, cast

import aiohttp
import aiohttp.connector
import msgspec
import yarl
from aiohttp import http_exceptions
from aiohttp.client_proto import ResponseHandler

from kilnwork.api import http_task, reasons
from kilnwork.executors.http import errors, guarded_connector
from kilnwork.kit import clock

CUT_S = 5.0
"""Maximum time in seconds until the event loop has closed a socket that was aborted."""

IN_MEMORY_BYTES = 256 * 1024
"""Number of bytes of a body that are kept in memory; the rest goes to a temporary file."""

MAX_HEAD_BYTES = 64 * 1024
"""Maximum size in bytes of the status line and of each header of a response."""

_R = reasons.Reason


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A request in the form in which it is sent. `secret_headers`: names, in lower case, of headers
    with secrets.
    """

    method: str
    url: yarl.URL
    headers: Sequence[tuple[str, str]]
    body: bytes | None = None
    secret_headers: frozenset[str] = frozenset()


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """The deadlines, size limits and TLS settings of one exchange."""

    timeout: http_task.HttpTimeouts
    until: float
    """Deadline on the monotonic clock; not later than the end of `timeout.totalTimeout`, which
    includes all redirects."""
    max_bytes: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None


class Timings(msgspec.Struct):
    """Monotonic times at which the phases of an exchange ended; None for a phase that did not
    happen.
    """

    began: float
    named: float | None = None
    connected: float | None = None
    responded: float | None = None
    finished: float | None = None


class Body:
    """The body of a response: in memory while it is small, then in a file. Close it after use."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []
        self._file: IO[bytes] | None = None

    def write(self, piece: bytes) -> None:
        self.size += len(piece)
        if self._file is not None:
            self._file.write(piece)
            return
        self._pieces.append(piece)
        if self.size > IN_MEMORY_BYTES:
            self._spill()

    def _spill(self) -> IO[bytes]:
        if self._file is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
            self._file.writelines(self._pieces)
            self._pieces.clear()
        return self._file

    def read(self, limit: int = -1) -> bytes:
        """Return the body from its beginning, at most `limit` bytes."""
        if self._file is not None:
            self._file.seek(0)
            found = self._file.read(limit)
            self._file.seek(0, os.SEEK_END)
            return found
        whole = b"".join(self._pieces)
        return whole if limit < 0 else whole[:limit]

    def keep(self) -> tuple[bytes, str]:
        """Return the SHA-256 of the body, and a path at which this process can open it; blocks on
        the disk.
        """
        file = self._spill()
        file.flush()
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").digest()  # type: ignore[arg-type]
        return digest, f"/proc/self/fd/{file.fileno()}"

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A complete response. `address`: address of the server that sent it."""

    status: int
    reason: str
    version: str
    headers: list[tuple[str, str]]
    body: Body
    address: str
    timings: Timings
    redirect: str = ""

    def header(self, name: str) -> str | None:
        """Return the first value of a header of the response, or None if it is missing."""
        wanted = name.lower()
        for key, value in self.headers:
            if key.lower() == wanted:
                return value
        return None


@dataclass(slots=True)
class Sessions:
    """The aiohttp sessions, with the connections of all exchanges of a process."""

    shared: aiohttp.ClientSession
    own: aiohttp.ClientSession
    sockets: set[Any] = field(default_factory=set)

    async def close(self) -> None:
        await self.shared.close()
        await self.own.close()


OnConnected = Callable[[], Awaitable[None]]


class Exchange:
    """One request and its response; implements `guarded_connector.Waiting`.

    `on_connected` is awaited before anything is sent. `repeatable`: whether the request may use a
    connection that others have used, which the server may just have closed.
    """

    def __init__(
        self,
        sessions: Sessions,
        terms: Terms,
        time: clock.Clock,
        *,
        repeatable: bool,
        on_connected: OnConnected,
    ) -> None:
        self._session = sessions.shared if repeatable else sessions.own
        self._terms = terms
        self._clock = time
        self._on_connected = on_connected
        self._timings = Timings(time.monotonic())
        self._transport: asyncio.Transport | None = None
        self._protocol: ResponseHandler | None = None
        self._address = ""

    def named(self) -> None:
        self._timings.named = self._clock.monotonic()

    async def connected(self, connection: aiohttp.connector.Connection) -> None:
        self._timings.connected = self._clock.monotonic()
        self._transport = cast(asyncio.Transport, connection.transport)
        self._protocol = connection.protocol
        peer = self._transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        await self._on_connected()

    async def run(self, request: Outgoing) -> Received:
        """Send the request and read the whole response. Raises `AttemptFailed`.

        After a cancellation, call `cut` to prove that the connection is gone.
        """
        token = guarded_connector.current.set(self)
        try:
            return await self._run(request)
        except (
            guarded_connector.AddressRefused,
            aiohttp.ClientError,
            OSError,
            TimeoutError,
        ) as error:
            raise _failure(error, self._terms, self._transport is not None) from error
        except http_exceptions.HttpProcessingError as error:
            raise _no_http(error.message) from error
        except ValueError as error:
            raise errors.AttemptFailed(_R.INVALID_SPEC, f"it cannot be sent: {error}") from error
        finally:
            guarded_connector.current.reset(token)

    async def _run(self, request: Outgoing) -> Received:
        terms = self._terms
        left_s = terms.until - self._timings.began
        if left_s <= 0:
            raise TimeoutError
        async with self._session.request(
            request.method,
            request.url,
            headers=request.headers,
            data=request.body,
            allow_redirects=False,
            ssl=terms.tls or True,
            server_hostname=terms.server_name,
            timeout=aiohttp.ClientTimeout(
                total=left_s,
                connect=terms.timeout.socket_timeout,
                sock_read=terms.timeout.read_timeout,
            ),
        ) as response:
            self._timings.responded = self._clock.monotonic()
            body = Body()
            try:
                await self._read(response, body)
            except BaseException:
                body.close()
                raise
            self._timings.finished = self._clock.monotonic()
            self._transport = None  # from now on another exchange may use it
            version = response.version
            return Received(
                status=response.status,
                reason=_text(response.reason or ""),
                version="" if version is None else f"HTTP/{version.major}.{version.minor}",
                headers=[(str(n), _text(value)) for n, value in response.headers.items()],
                body=body,
                address=self._address,
                timings=self._timings,
                redirect=_text(response.headers.get("Location", "")),
            )

    async def _read(self, response: aiohttp.ClientResponse, body: Body) -> None:
        limit = self._terms.max_bytes
        while piece := await response.content.readany():
            if body.size + len(piece) > limit:
                message = f"the body has more than {limit} bytes"
                raise errors.AttemptFailed(_R.RESPONSE_TOO_LARGE, message)
            body.write(piece)

    async def cut(self) -> bool:
        """Abort the connection; return whether it is certain that it is gone, after at most
        `CUT_S`.
        """
        transport, protocol = self._transport, self._protocol
        self._transport = None
        if transport is None:
            return True  # there was no connection, or the cancelled code has closed it
        transport.abort()
        # aiohttp creates this future at the first access. If it is never accessed, a reset leaves
        # no unretrieved exception.
        closed = None if protocol is None else protocol.closed
        if closed is None:
            return True
        with contextlib.suppress(
            TimeoutError, aiohttp.ClientError, OSError
        ):  # the connection was reset
            async with asyncio.timeout(CUT_S):
                await asyncio.shield(closed)
        return closed.done()


def _text(received: str) -> str:
    """Return a header value as text that can be encoded, since aiohttp decodes bytes that are not
    UTF-8 to surrogates.
    """
    if received.isascii():
        return received
    return received.encode(errors="surrogateescape").decode(errors="replace")


def _failure(
    error: BaseException,
    terms: Terms,
    was_connected: bool,  # noqa: FBT001
) -> errors.AttemptFailed:
    refused = _find(error, guarded_connector.AddressRefused)
    if refused is not None:
        return errors.AttemptFailed(_R.ADDRESS_REFUSED, str(refused))
    if isinstance(error, TimeoutError):
        given = terms.timeout
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            message = f"no connection within socketTimeout, {given.socket_timeout:g} s"
        elif isinstance(error, aiohttp.SocketTimeoutError):
            message = f"nothing came within readTimeout, {given.read_timeout:g} s"
        else:
            message = f"it took longer than totalTimeout, {given.total_timeout:g} s"
        return errors.AttemptFailed(_R.REQUEST_TIMED_OUT, message)
    if isinstance(error, aiohttp.ClientResponseError):
        return _no_http(error.message)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        error = aiohttp.ServerDisconnectedError()  # without the partial response in its text
    text = " ".join(str(error).split())
    what = "the connection ended early" if was_connected else "no connection"
    return errors.AttemptFailed(_R.REQUEST_FAILED, f"{what}: {text or type(error).__name__}")


def _no_http(message: str) -> errors.AttemptFailed:
    """Return an error for a response that is not HTTP, with only the first line of aiohttp's
    message.

    The further lines show the position of the problem in the response.
    """
    first, *_ = message.strip().splitlines() or [""]
    return errors.AttemptFailed(_R.INVALID_RESPONSE, f"no HTTP: {first.rstrip(': ')}")


def _find(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error
