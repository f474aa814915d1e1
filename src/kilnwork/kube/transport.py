"""HTTP to one API server: connections, TLS, credential, time limits, and errors by reaction.

Used by `client`; it knows URLs and bytes, but no resource and no object. It never asks twice by
itself: whether to is in the error's type, and when is the caller's matter.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from email import utils
from typing import Any, Self

import aiohttp
import msgspec
import yarl

from kilnwork.kit import clock
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import config, errors, tls

log = logging.getLogger(__name__)

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"

CONNECT_S = 10.0
"""A server that does not take a connection in this time is down or behind a wrong address."""
IN_FLIGHT = 64
"""Requests at once, streams not counted: enough to keep a server busy without burying it."""
TOKEN_AGE_S = 60.0
"""How long a token file's content is used before it is read again; kubelets rotate it hourly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request. `path` is already percent-encoded.

    `timeout_s` bounds all of it, `head_timeout_s` the time until the answer begins; None: no limit.
    """

    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    timeout_s: float | None = 30.0
    head_timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer that was not an error."""

    status: int
    content_type: str
    body: bytes


class _Status(msgspec.Struct, frozen=True):
    """metav1.Status, as far as an error needs it."""

    message: str = ""
    reason: str = ""
    details: dict[str, Any] | None = None
    code: int = 0
    kind: str = ""


_read_status = msgspec.json.Decoder(_Status)


class Transport:
    """Connections to the server of a `config.Config`; an async context manager.

    `on_warning(text)` is told every Warning header (RFC 7234 §5.5, as KEP-1693 uses it); None logs.
    Raises ConfigurationError when the certificates in the configuration cannot be used.
    """

    def __init__(
        self,
        settings: config.Config,
        *,
        user_agent: str,
        time: clock.Clock,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = time
        self._user_agent = user_agent
        self._on_warning = on_warning or _log_warning
        self._tls = tls.context(settings) if settings.server.startswith("https:") else None
        self._gate = asyncio.Semaphore(IN_FLIGHT)
        self._session: aiohttp.ClientSession | None = None
        self._token = settings.token
        self._token_read: float | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls or False),
            headers={"User-Agent": self._user_agent},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, request: Request) -> Answer:
        """Send and read the whole answer; raises a `KubeError` when it is an error or none came."""
        async with self._gate, self.open(request) as response:
            with self.failures():
                body = await response.read()
        return Answer(response.status, response.content_type, body)

    @contextlib.asynccontextmanager
    async def open(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send and give the answer once its head is here, for bodies that come bit by bit."""
        response = await self._start(request)
        if response.status == 401 and self._token_file_changed():
            response.release()
            response = await self._start(request)
        try:
            for value in response.headers.getall("Warning", ()):
                self._on_warning(_warning_text(value))
            if response.status >= 300:
                raise await self._error(response)
            yield response
        finally:
            # Ends a stream left early; an answer read whole has given its connection back already.
            response.close()

    async def _start(self, request: Request) -> aiohttp.ClientResponse:
        if self._session is None:
            raise errors.KubeError("the client is not open: use it in `async with`")
        headers = {"Accept": request.accept}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        token = self._credential()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        with self.failures():
            async with asyncio.timeout(request.head_timeout_s):
                return await self._session.request(
                    request.method,
                    yarl.URL(self._settings.server + request.path, encoded=True).update_query(
                        request.query or {}
                    ),
                    data=request.body,
                    headers=headers,
                    allow_redirects=False,
                    server_hostname=self._settings.tls_server_name,
                    timeout=aiohttp.ClientTimeout(total=request.timeout_s, connect=CONNECT_S),
                )

    def _credential(self) -> str | None:
        if self._settings.token or self._settings.token_file is None:
            return self._token
        now = self._clock.monotonic()
        if self._token_read is None or now - self._token_read >= TOKEN_AGE_S:
            self._read_token(now)
        return self._token

    def _read_token(self, now: float) -> None:
        path = self._settings.token_file
        if path is None:
            return
        try:
            self._token = path.read_text().strip()
        except OSError as error:
            if self._token is None:
                raise kit_errors.ConfigurationError(
                    f"cannot read the token file {path}: {error.strerror}"
                ) from error
            log.warning("token file is unreadable, old token kept", extra={"file": str(path)})
        self._token_read = now

    def _token_file_changed(self) -> bool:
        if self._settings.token or self._settings.token_file is None:
            return False
        before = self._token
        self._read_token(self._clock.monotonic())
        return self._token != before

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Around sending and around reads of a body got by `open`: failures become ours."""
        server = self._settings.server
        try:
            yield
        except aiohttp.ClientConnectorCertificateError as error:
            raise errors.Untrusted(
                f"the certificate of {server} is not trusted: {error.certificate_error}"
            ) from error
        except TimeoutError as error:
            raise errors.Unavailable(0, "Timeout", f"{server} did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise errors.Unavailable(
                0, "Unreachable", f"cannot reach {server}: {reason}"
            ) from error

    async def _error(self, response: aiohttp.ClientResponse) -> errors.ApiError:
        with self.failures():
            body = await response.read()
        status = _status(body)
        return errors.from_status(
            response.status,
            status.reason,
            status.message,
            details=status.details,
            retry_after_s=self._retry_after_s(response.headers.get("Retry-After")),
        )

    def _retry_after_s(self, value: str | None) -> float | None:
        """Seconds for both forms of Retry-After (RFC 9110 §10.2.3); None for nonsense."""
        if value is None:
            return None
        if value.strip().isdecimal():
            return float(value)
        try:
            moment = utils.parsedate_to_datetime(value).timestamp()
        except ValueError:
            return None
        return max(0.0, moment - self._clock.wall())


def status_error(body: bytes) -> errors.ApiError:
    """The error that a metav1.Status inside a stream stands for."""
    status = _status(body)
    return errors.from_status(
        status.code or 500, status.reason, status.message, details=status.details
    )


def _status(body: bytes) -> _Status:
    """The Status in a body; of one that is none, its beginning as the message."""
    try:
        return _read_status.decode(body)
    except msgspec.MsgspecError:
        return _Status(message=body[:200].decode(errors="replace").strip())


def _warning_text(value: str) -> str:
    """The quoted text of `299 - "text"`."""
    _, quote, rest = value.partition('"')
    if not quote:
        return value
    return rest.rpartition('"')[0].replace('\\"', '"').replace("\\\\", "\\")


def _log_warning(text: str) -> None:
    log.warning("API server warns", extra={"warning": text})
