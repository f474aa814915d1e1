"""The way to a manager: the server of a `kiln up` itself, or through the API server of a cluster.

Used by `remote`. In a cluster the way leads through the API server's proxy of the manager's
Service (`api.manager`), so that a kubeconfig is all that is needed. The proxy keeps the caller's
own credential for itself: the manager is shown a token in a header of its own, that of the
kubeconfig, or one of ServiceAccount `kilnwork-driver` of the namespace. Blocking, any thread.
"""

import os
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any
from urllib import parse

import msgspec

from kilnwork.api import manager
from kilnwork.channel import errors as channel_errors
from kilnwork.channel import tunnel
from kilnwork.kit import clock as clocks
from kilnwork.kit import errors, http1, keepalive
from kilnwork.kube import config, credentials, tls

ANSWER_S = 10.0
"""For a connection with TLS, and for an answer."""

_RENEW_AT = 0.8
"""Of a token's life, as the kubelet does."""

_LOOK_AGAIN_S = 5.0
"""A kubeconfig is read anew after so long, or when what it said was refused."""

Document = dict[str, Any]


class Way:
    """To one manager, for what is done in one namespace. `find` it before it is used.

    `load`: what the kubeconfig says now; it is asked again, since tokens are renewed there.
    """

    def __init__(
        self,
        load: Callable[[], config.Config],
        *,
        namespace: str,
        clock: clocks.Clock | None = None,
    ) -> None:
        self._load = load
        self._namespace = namespace
        self._clock = clock or clocks.SystemClock()
        self._lock = threading.Lock()
        self._known: tuple[config.Config, credentials.Credentials] | None = None
        self._contexts: dict[tuple[str | None, str | None], ssl.SSLContext] = {}
        self._driver: tuple[str, float] | None = None
        self._look_again = 0.0
        self.settings = load()
        self.prefix = ""
        """Path at the server under which the manager's own paths are."""

    def find(self) -> Document:
        """Where the manager is; what it says of itself (`/v1/endpoints`). Raises
        ConfigurationError with what is missing."""
        answer, document = self.ask("GET", manager.ENDPOINTS_PATH)
        if answer.status == 200 and "channel" in document:
            return document
        if answer.status == 401:
            raise errors.ConfigurationError(
                f"{self.settings.server} does not accept the token: take the kubeconfig that "
                "`kiln up` prints, or its data directory; for another cluster log in again"
            )
        if answer.status in (403, 404) and self._is_kubernetes():
            return self._find_in_cluster()
        raise errors.ConfigurationError(
            f"{self.settings.server} is no kiln server: it has no /v1 "
            f"({answer.status} {answer.reason})"
        )

    def ask(
        self, method: str, path: str, body: Document | None = None
    ) -> tuple[http1.Answer, Document]:
        """A document of the manager. Raises ConfigurationError when nobody answers."""
        try:
            answer, found = self._ask(method, path, body)
            if answer.status == 401:
                self.refused()
                answer, found = self._ask(method, path, body)
            return answer, _document(found)
        except (OSError, http1.BadAnswer) as error:
            raise errors.ConfigurationError(
                errors.unanswered(self.settings.server, error)
            ) from error

    def channel(self) -> socket.socket:
        """A fresh link. Raises OSError and ChannelError for what may be better the next time,
        ConfigurationError for what will not."""
        answered = self._switch()
        if isinstance(answered, tunnel.NotSwitched) and answered.status == 401:
            self.refused()
            answered = self._switch()
        if isinstance(answered, socket.socket):
            return answered
        if answered.status in (401, 403):
            said = _message(answered.body) or str(answered)
            raise errors.ConfigurationError(f"{self.settings.server} refuses the channel: {said}")
        raise answered

    def connect(self) -> socket.socket:
        """A fresh connection to the server, with TLS unless it is plain http. Raises OSError, and
        ConfigurationError when the server is not who it should be."""
        settings = self.settings
        parts = parse.urlsplit(settings.server)
        host = parts.hostname or ""
        connected = _dial(settings, host, parts.port or (443 if parts.scheme == "https" else 80))
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            keepalive.watch(connected)
            if parts.scheme == "http":
                return connected
            name = settings.tls_server_name or host
            return self._context().wrap_socket(connected, server_hostname=name)
        except ssl.SSLCertVerificationError as error:
            connected.close()
            raise errors.ConfigurationError(
                f"{settings.server} is not the server of the kubeconfig: its certificate "
                f"({error.verify_message})"
            ) from error
        except BaseException:
            connected.close()
            raise

    def path(self, path: str) -> str:
        """Where a path of the manager is at the server."""
        return parse.urlsplit(self.settings.server).path.rstrip("/") + self.prefix + path

    def headers(self) -> Mapping[str, str]:
        """Who we are, to whoever is on the way."""
        shown = self._shown()
        if self.prefix or "Authorization" not in shown:
            shown[manager.TOKEN_HEADER] = self.token()
        return shown

    def refused(self) -> None:
        """What was shown is not accepted (401): show something else, if there is something."""
        self._look_again = 0.0
        held = self._held()
        held.renew(held.get())
        self._driver = None

    def token(self) -> str:
        """What the manager knows a driver by. Raises ConfigurationError when there is none."""
        own = self._held().get().token
        if own:
            return own
        with self._lock:
            now = self._clock.monotonic()
            if self._driver is None or now >= self._driver[1]:
                self._driver = self._request_token(now)
            return self._driver[0]

    # private

    def _is_kubernetes(self) -> bool:
        """Every API server has /version, and lets everybody read it."""
        answer, document = self.ask("GET", "/version")
        return answer.status == 200 and "gitVersion" in document

    def _find_in_cluster(self) -> Document:
        self._refuse_acting()
        home = manager.home(os.environ)
        self.prefix = manager.proxy_path(home)
        answer, document = self.ask("GET", manager.ENDPOINTS_PATH)
        if answer.status == 200 and "channel" in document:
            return document
        raise errors.ConfigurationError(_in_words(answer, document, home))

    def _held(self) -> credentials.Credentials:
        """The credentials of the kubeconfig as it is, or was a moment ago."""
        now_s = self._clock.monotonic()
        if self._known is None or now_s >= self._look_again:
            self._look_again = now_s + _LOOK_AGAIN_S
            now = self._load()
            if self._known is None or self._known[0] != now:
                self._known = now, credentials.Credentials(now)
                self.settings = now
                self._contexts.clear()
        return self._known[1]

    def _shown(self) -> dict[str, str]:
        shown = dict(credentials.headers(self.settings, self._held().get()))
        return {"Host": parse.urlsplit(self.settings.server).netloc, **shown}

    def _context(self) -> ssl.SSLContext:
        now = self._held().get()
        key = now.cert, now.key
        if key not in self._contexts:
            self._contexts.clear()
            self._contexts[key] = tls.context(self.settings, now)
        return self._contexts[key]

    def _ask(self, method: str, path: str, body: Document | None) -> tuple[http1.Answer, bytes]:
        # whether it is a `kiln up` is asked by our own credential alone: a cluster's API server
        # must not see a token for the manager, nor be asked for one before it is needed
        shown = dict(self.headers()) if self.prefix else self._shown()
        return self._exchange(method, self.path(path), shown, body)

    def _exchange(
        self, method: str, path: str, shown: dict[str, str], body: Document | None
    ) -> tuple[http1.Answer, bytes]:
        connection = http1.Connection(self.connect())
        try:
            connection.socket.settimeout(ANSWER_S)
            data = None if body is None else msgspec.json.encode(body)
            if data is not None:
                shown["Content-Type"] = "application/json"
            length = None if data is None else len(data)
            connection.send(method, path, shown, body=(data or b"",), length=length)
            answer = connection.answer(to=method)
            return answer, connection.read(most=16 << 20)
        finally:
            connection.close()

    def _switch(self) -> socket.socket | tunnel.NotSwitched:
        headers = self.headers()  # before there is a connection that would have to be closed
        try:
            return tunnel.switch(self.connect(), self.path(manager.CHANNEL_PATH), headers)
        except tunnel.NotSwitched as error:
            return error
        except http1.BadAnswer as error:
            raise channel_errors.LinkClosed(f"{self.settings.server}: {error}") from error

    def _request_token(self, now: float) -> tuple[str, float]:
        """Of the namespace's driver account, and until when to use it; TokenRequest
        (authentication.k8s.io/v1)."""
        namespace, account = self._namespace, manager.DRIVER_ACCOUNT
        quoted = parse.quote(namespace, safe="")
        base = parse.urlsplit(self.settings.server).path.rstrip("/")
        path = f"{base}/api/v1/namespaces/{quoted}/serviceaccounts/{account}/token"
        answer, body = self._exchange("POST", path, self._shown(), manager.token_request())
        if answer.status == 201:
            made = msgspec.json.decode(body)
            lives_s = float(made["spec"].get("expirationSeconds") or manager.TOKEN_S)
            return str(made["status"]["token"]), now + _RENEW_AT * lives_s
        said = _message(body) or f"{answer.status} {answer.reason}"
        why = f"the kubeconfig for {self.settings.server} has no token, which drivers need"
        if answer.status == 404:
            raise errors.ConfigurationError(
                f"{why}, and namespace {namespace} has no ServiceAccount {account} whose token "
                f"could be used: `kiln install --only drivers --drivers-in {namespace}` makes one, "
                "`kiln token ACCOUNT` a token of another"
            )
        raise errors.ConfigurationError(
            f"{why}, and you may not ask for one of ServiceAccount {account}: {said}. "
            "`kiln token ACCOUNT` makes one of another account"
        )

    def _refuse_acting(self) -> None:
        if self.settings.impersonate is not None:
            raise errors.ConfigurationError(manager.ACTS)


def _dial(settings: config.Config, host: str, port: int) -> socket.socket:
    """A TCP connection, through the kubeconfig's proxy if it names one. Raises OSError."""
    if settings.proxy_url is None:
        return socket.create_connection((host, port), timeout=ANSWER_S)
    proxy = parse.urlsplit(settings.proxy_url)
    if proxy.scheme != "http" or proxy.username:
        raise errors.ConfigurationError(
            f"proxy-url of the kubeconfig for {settings.server}: drivers take http://HOST:PORT "
            "without a password"
        )
    connected = socket.create_connection((proxy.hostname, proxy.port or 80), timeout=ANSWER_S)
    connection = http1.Connection(connected)
    try:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        connection.send("CONNECT", target, {"Host": target})
        answer = connection.answer(to="CONNECT")
    except http1.BadAnswer as error:
        connected.close()
        raise ConnectionError(f"the proxy {proxy.netloc}: {error}") from error
    if answer.status != 200:
        connected.close()
        raise ConnectionError(f"the proxy {proxy.netloc} answers {answer.status} {answer.reason}")
    return connected


def _in_words(answer: http1.Answer, document: Document, home: str) -> str:
    """What stands in the way to the manager of a cluster; a Status is by the API server itself."""
    said = document.get("detail") or document.get("message") or f"{answer.status} {answer.reason}"
    by_manager = answer.status in (403, 404) and document.get("kind") != "Status"
    return manager.obstacle(0 if by_manager else answer.status, said, home=home)


def _message(body: bytes) -> str:
    """The sentence of a Status or of problem details."""
    document = _document(body)
    return str(document.get("detail") or document.get("message") or "")


def _document(body: bytes) -> Document:
    """The JSON object of an answer; empty when it is something else."""
    try:
        return msgspec.json.decode(body, type=Document)
    except msgspec.MsgspecError:
        return {}
