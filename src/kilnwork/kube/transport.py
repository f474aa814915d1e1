"""HTTP to one API server: connections, TLS, credentials, timeouts, and one error class per
reaction.

Used by `client`, by sessions of the command line, and for requests to kubelets and managers. This
module knows URLs and bytes, but no resource and no object. It repeats a request by itself only if
the first try has certainly had no effect: when the credential had expired (401), and when the
server was too busy to begin (429 with Retry-After). In all other cases the caller decides; the type
of the error says whether repeating may help.
"""

import asyncio
import contextlib
import io
import logging
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, Self

import aiohttp
import msgspec
import multidict
import yarl

from kilnwork.kit import asgi, clock, http_types, ids, tcp_keepalive
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import config, credentials, errors, in_process, tls

log = logging.getLogger(__name__)

CLOSE_S = 1.0
"""Maximum seconds to wait until the event loop has closed the sockets of a closed client."""
IN_FLIGHT = 64
"""Maximum number of requests at the same time, not counting streams: enough to keep a server busy
without overloading it.
"""
_LARGE_BYTES = 1 << 18
BUSY_TRIES = 10
"""Maximum number of tries of a request to a busy server, as in client-go; a try with a renewed
credential is not counted.
"""
BUSY_S = 30.0
"""Maximum seconds of these tries; then the caller gets the error."""


class _Status(msgspec.Struct, frozen=True):
    """The fields of metav1.Status that an error needs."""

    message: str = ""
    reason: str = ""
    details: dict[str, Any] | None = None
    code: int = 0
    kind: str = ""


_read_status = msgspec.json.Decoder(_Status)


class Content(Protocol):
    """The body of a response, which arrives in pieces."""

    async def readany(self) -> bytes:
        """Return the bytes that have arrived, waiting for at least one; b"" at the end."""
        ...


class Transport:
    """A pool of connections to the server of a `config.Config`; an async context manager.

    `on_warning(text)` is called with the text of every Warning header (RFC 7234 §5.5, as KEP-1693
    uses it); None: warnings are logged. `throttled` counts how often a request waited because the
    server was too busy. `app`: the server, if it is in this process: then whole responses and
    watches need no connection. Raises ConfigurationError if the certificates in the configuration
    are invalid.
    """

    def __init__(
        self,
        settings: config.Config,
        *,
        user_agent: str,
        time: clock.Clock,
        on_warning: Callable[[str], None] | None = None,
        app: asgi.App | None = None,
    ) -> None:
        self.throttled = 0
        self._here = None if app is None else in_process.InProcessServer(app)
        self._settings = settings
        self._clock = time
        self._user_agent = user_agent
        self._on_warning = on_warning or _log_warning
        self._credentials = credentials.Credentials(settings, time=time)
        self._tls: tuple[credentials.Credential, ssl.SSLContext] | None = None
        if settings.server.startswith("https:") and (known := self._credentials.get_nowait()):
            self._context(known)  # raises now if the configuration has invalid PEM
        self._gate = asyncio.Semaphore(IN_FLIGHT)
        self._entropy = ids.system_entropy()
        self._session: aiohttp.ClientSession | None = None
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    async def __aenter__(self) -> Self:
        headers = {"User-Agent": self._user_agent}
        if not self._settings.compression:
            headers["Accept-Encoding"] = "identity"
        self._session = aiohttp.ClientSession(
            # No limit here: `_gate` limits requests, and streams do not count.
            connector=aiohttp.TCPConnector(limit=0, socket_factory=self._socket),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            await self._end_sockets()
        if self._here is not None:
            await self._here.close()

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        """Create a socket as aiohttp does, and record it until it is closed."""
        family, kind, protocol, _, _ = address
        made = socket.socket(family=family, type=kind, proto=protocol)
        self._sockets.add(made)
        return made

    async def _end_sockets(self) -> None:
        """Close sockets that are still open.

        A request that was aborted closes TLS gracefully, for which the peer must respond; once the
        event loop has ended, no code waits for that.
        """
        late = asyncio.get_running_loop().time() + CLOSE_S
        while left := [one for one in self._sockets if one.fileno() >= 0]:
            for one in left:
                with contextlib.suppress(OSError):  # no longer connected, or not yet
                    one.shutdown(socket.SHUT_RDWR)
            if asyncio.get_running_loop().time() > late:
                log.warning("connections are still open", extra={"connections": len(left)})
                return
            await asyncio.sleep(0.001)

    async def send(self, request: http_types.ClientRequest) -> http_types.ClientResponse:
        """Send a request and return the whole response.

        Raises a `KubeError` for an error or no response. A request that waits for a busy server
        still counts for `IN_FLIGHT`: such a server should get fewer requests.
        """
        if self._here is not None:
            return await self._served_here(self._here, request)
        async with self._gate, self.open(request) as response:
            return await self._whole(response)

    async def _served_here(
        self, server: in_process.InProcessServer, request: http_types.ClientRequest
    ) -> http_types.ClientResponse:
        shown = await self.credential()
        headers = [("User-Agent", self._user_agent), *self._headers(request, shown).items()]
        with self.failures():
            response = await server.exchange(request, headers)
        for name, value in response.headers.items():
            if name.lower() == "warning":
                self._on_warning(_warning_text(value))
        if response.status >= 300:
            raise self._api_error(response.status, response.headers, response.body)
        return response

    def _headers(
        self, request: http_types.ClientRequest, shown: credentials.Credential
    ) -> multidict.CIMultiDict[str]:
        headers = multidict.CIMultiDict(credentials.headers(self._settings, shown))
        headers.update(request.headers or {})
        headers["Accept"] = request.accept
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        return headers

    async def exchange(self, request: http_types.ClientRequest) -> http_types.ClientResponse:
        """Send a request as `send` does, but return error responses too.

        Raises a `KubeError` if there is no response.
        """
        async with self._gate:
            response = await self._begin(request)
            try:
                return await self._whole(response)
            finally:
                _end(response)

    async def _whole(self, response: aiohttp.ClientResponse) -> http_types.ClientResponse:
        with self.failures():
            body = await response.read()
        return http_types.ClientResponse(
            response.status, response.reason or "", body, response.headers
        )

    @contextlib.asynccontextmanager
    async def open(
        self, request: http_types.ClientRequest
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and return the response once its head has arrived.

        For bodies that arrive in pieces.
        """
        response = await self._begin(request)
        try:
            for value in response.headers.getall("Warning", ()):
                self._on_warning(_warning_text(value))
            if response.status >= 300:
                raise await self._error(response)
            yield response
        finally:
            _end(response)

    @contextlib.asynccontextmanager
    async def watch(self, request: http_types.ClientRequest) -> AsyncIterator[Content]:
        """Open a watch and return the body of the response.

        A watch needs no connection if the server is in this process.
        """
        if self._here is None:
            async with self.open(request) as response:
                keep_alive(response)
                yield response.content
            return
        shown = await self.credential()
        headers = [("User-Agent", self._user_agent), *self._headers(request, shown).items()]
        with self.failures():
            stream = await self._here.open(request, headers)
        try:
            if stream.status >= 300:
                with self.failures():
                    body = await stream.read()
                raise self._api_error(stream.status, stream.headers, body)
            yield stream
        finally:
            stream.close()

    async def _begin(self, request: http_types.ClientRequest) -> aiohttp.ClientResponse:
        """Send a request and return the response, of which only the head has arrived.

        The request is repeated while the response asks for that and repeating is allowed.
        """
        shown = await self.credential()
        patience_s = BUSY_S if request.timeout_s is None else min(BUSY_S, request.timeout_s)
        renewed, tries = False, 1
        while True:
            response = await self._start(request, shown)
            if response.status == 401 and not renewed:
                renewed = True
                try:
                    fresh = await self._renewed(shown)
                except BaseException:
                    _end(response)
                    raise
                # There is no other credential: the caller gets the 401.
                if fresh == shown:
                    return response
                shown = fresh
            elif response.status == 429 and tries < BUSY_TRIES:
                wait_s = self._busy_s(response)
                # None: no Retry-After. client-go does not repeat such a request either.
                if wait_s is None or wait_s > patience_s:
                    return response
                # The connection is released during the wait.
                response.release()
                self.throttled += 1
                tries += 1
                patience_s -= wait_s
                await asyncio.sleep(wait_s)
                continue
            else:
                return response
            response.release()

    def _busy_s(self, response: aiohttp.ClientResponse) -> float | None:
        """Return the seconds to wait if the server was too busy, or None.

        The delay has jitter, so that requests that were refused together are not repeated together.
        """
        asked_s = self._retry_after_s(response.headers)
        return None if asked_s is None else asked_s * (1 + 0.2 * self._entropy.random())

    async def _start(
        self, request: http_types.ClientRequest, shown: credentials.Credential
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise errors.KubeError("the client is not open: use it in `async with`")
        https = self._settings.server.startswith("https:")
        with self.failures():
            async with asyncio.timeout(request.head_timeout_s):
                return await self._session.request(
                    request.method,
                    # The path is encoded already, and must not be normalized.
                    yarl.URL(self._settings.server + request.path, encoded=True).update_query(
                        request.query or {}
                    ),
                    data=_sent(request.body),
                    headers=self._headers(request, shown),
                    # No redirects: the request must reach this server and no other.
                    allow_redirects=False,
                    ssl=self._context(shown) if https else True,
                    server_hostname=self._settings.tls_server_name,
                    proxy=self._settings.proxy_url,
                    timeout=aiohttp.ClientTimeout(
                        total=request.timeout_s, connect=http_types.CONNECT_S
                    ),
                )

    async def credential(self) -> credentials.Credential:
        if (known := self._credentials.get_nowait()) is not None:
            return known
        return await asyncio.to_thread(self._credentials.get)

    async def _renewed(self, refused: credentials.Credential) -> credentials.Credential:
        # In a thread, because it may run a login program.
        return await asyncio.to_thread(self._credentials.renew, refused)

    def _context(self, shown: credentials.Credential) -> ssl.SSLContext:
        """Return the TLS context for a client certificate.

        Each certificate has its own context, so that its connections are not used with another one.
        """
        if self._tls is not None and (self._tls[0].cert, self._tls[0].key) == (
            shown.cert,
            shown.key,
        ):
            return self._tls[1]
        try:
            made = tls.context(self._settings, shown)
        except kit_errors.ConfigurationError as error:
            if self._tls is None:
                raise
            # The files may have been read while they were being replaced: the next read will show.
            log.warning("client certificate is unusable, old one kept", extra={"error": str(error)})
            return self._tls[1]
        self._tls = shown, made
        return made

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Convert errors in a `with` block to `KubeError`.

        For sending a request, and for reading the body of a response from `open`.
        """
        server = self._settings.server
        try:
            yield
        # First, since it is a ClientError too.
        except aiohttp.ClientConnectorCertificateError as error:
            raise errors.Untrusted(
                f"the certificate of {server} is not trusted: {error.certificate_error}"
            ) from error
        # Before OSError, whose subclass it is.
        except TimeoutError as error:
            raise errors.Unavailable(0, "Timeout", f"{server} did not respond in time") from error
        except (aiohttp.ClientError, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise errors.Unavailable(
                0, "Unreachable", f"cannot reach {server}: {reason}"
            ) from error

    async def _error(self, response: aiohttp.ClientResponse) -> errors.ApiError:
        with self.failures():
            body = await response.read()
        return self._api_error(response.status, response.headers, body)

    def _api_error(self, code: int, headers: Mapping[str, str], body: bytes) -> errors.ApiError:
        status = _status(body)
        return errors.from_status(
            code,
            status.reason,
            status.message,
            details=status.details,
            retry_after_s=self._retry_after_s(headers),
        )

    def _retry_after_s(self, headers: Mapping[str, str]) -> float | None:
        value = headers.get("Retry-After")
        return http_types.retry_after_s(value, now_s=self._clock.wall())


def keep_alive(response: aiohttp.ClientResponse) -> None:
    """Enable TCP keep-alive, by which the kernel detects a peer that is gone without closing.

    Otherwise an idle watch would wait for such a peer for ever, since its client sends nothing.
    """
    connection = response.connection
    raw = (
        connection.transport.get_extra_info("socket")
        if connection and connection.transport
        else None
    )
    if raw is None:
        # A lost connection no longer has a socket.
        return
    with contextlib.suppress(OSError, AttributeError):
        tcp_keepalive.bound_silence(raw)


def _end(response: aiohttp.ClientResponse) -> None:
    """Return the connection to the pool after a whole response; otherwise abort it.

    A graceful end of TLS would wait for the peer, half a minute for a peer that hangs.
    """
    connection = response.connection  # None once the response was read
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


def _sent(body: bytes | Path | None) -> bytes | io.BytesIO | None:
    """Return the body of a request in the form in which it is sent.

    A large body is sent in pieces, so that other coroutines run in between. It is created again for
    each try.
    """
    if isinstance(body, Path):
        raise TypeError("files are sent by the blocking client only")
    return io.BytesIO(body) if body is not None and len(body) > _LARGE_BYTES else body


def status_error(body: bytes) -> errors.ApiError:
    """Return the error for a metav1.Status that was received in a stream."""
    status = _status(body)
    # No code: the error counts as one of the server, after which the caller tries again.
    return errors.from_status(
        status.code or 500, status.reason, status.message, details=status.details
    )


def _status(body: bytes) -> _Status:
    """Return the metav1.Status in a body; for any other body, a Status with its beginning as
    message.
    """
    try:
        return _read_status.decode(body)
    except msgspec.MsgspecError:
        return _Status(message=body[:200].decode(errors="replace").strip())


def _warning_text(value: str) -> str:
    # The form is `299 - "text"`; only the text is for users.
    _, quote, rest = value.partition('"')
    if not quote:
        return value
    return rest.rpartition('"')[0].replace('\\"', '"').replace("\\\\", "\\")


def _log_warning(text: str) -> None:
    log.warning("API server warns", extra={"warning": text})
