"""Blocking connections to one manager with TLS, credentials and tokens, from any thread.

Used by the SDK, by executors, and by shell completion. `ManagerConnector.find` carries out
`discovery_protocol`; then it provides the blocking HTTP client and the channel with new
connections, the URL path of the manager, and headers with the credentials.
"""

import os
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib import parse

import msgspec

from kilnwork.api import manager_access
from kilnwork.endpoints import discovery_protocol, manager_client
from kilnwork.endpoints import errors as endpoint_errors
from kilnwork.kit import clock as clocks
from kilnwork.kit import errors, http1_client, http_types, tcp_keepalive, tls_socket
from kilnwork.kube import config, credentials, tls

RELOAD_S = 5.0
"""Seconds after which a kubeconfig is read again; it is also read after a rejected credential."""

T = TypeVar("T")


class ServerConnector:
    """Connects to the server of a kubeconfig, with the credentials in it.

    `load`: returns the current kubeconfig; it is called repeatedly, since tokens in it are renewed.
    """

    def __init__(self, load: Callable[[], config.Config], clock: clocks.Clock) -> None:
        self._load = load
        self._clock = clock
        self._known: tuple[config.Config, credentials.Credentials] | None = None
        self._contexts: dict[tuple[str | None, str | None], ssl.SSLContext] = {}
        self._reload_at = 0.0
        self.settings = load()

    def connect(self) -> socket.socket:
        """Return a new connection to the server, with TLS unless its URL is plain http.

        Raises OSError, and ConfigurationError if the server's certificate is wrong or the proxy of
        the kubeconfig cannot be used.
        """
        settings = self.settings
        parts = parse.urlsplit(settings.server)
        host = parts.hostname or ""
        connected = _dial(settings, host, parts.port or (443 if parts.scheme == "https" else 80))
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tcp_keepalive.bound_silence(connected)
            if parts.scheme == "http":
                return connected
            name = settings.tls_server_name or host
            return tls_socket.wrap(self._context(), connected, server_name=_plain(name))
        except ssl.SSLCertVerificationError as error:
            connected.close()
            raise errors.ConfigurationError(
                f"{settings.server} is not the server of the kubeconfig: its certificate "
                f"({error.verify_message})"
            ) from error
        except BaseException:
            connected.close()
            raise

    def headers(self) -> dict[str, str]:
        """Return the headers that authenticate to the server."""
        shown = dict(credentials.headers(self.settings, self._held().get()))
        return {"Host": parse.urlsplit(self.settings.server).netloc, **shown}

    def refused(self) -> None:
        """Reload the credential after the server has rejected it (401)."""
        self._reload_at = 0.0
        held = self._held()
        held.renew(held.get())

    def token(self) -> str | None:
        """Return the token of the kubeconfig, or None if its credential is not a token."""
        return self._held().get().token

    def path(self, path: str) -> str:
        """Return the path of the kubeconfig's server URL, followed by `path`."""
        return parse.urlsplit(self.settings.server).path.rstrip("/") + path

    def _held(self) -> credentials.Credentials:
        """Return the credentials of the kubeconfig, which is read again if it was read more than
        `RELOAD_S` ago.
        """
        now_s = self._clock.monotonic()
        if self._known is None or now_s >= self._reload_at:
            self._reload_at = now_s + RELOAD_S
            now = self._load()
            if self._known is None or self._known[0] != now:
                self._known = now, credentials.Credentials(now)
                self.settings = now
                self._contexts.clear()
        return self._known[1]

    def _context(self) -> ssl.SSLContext:
        now = self._held().get()
        key = now.cert, now.key
        if key not in self._contexts:
            self._contexts.clear()
            self._contexts[key] = tls.context(self.settings, now)
        return self._contexts[key]


class ManagerConnector:
    """Connects to one manager, for work in one namespace. Call `find` before using it."""

    def __init__(
        self,
        load: Callable[[], config.Config],
        *,
        namespace: str,
        clock: clocks.Clock | None = None,
    ) -> None:
        self._clock = clock or clocks.SystemClock()
        self._server = ServerConnector(load, self._clock)
        self._namespace = namespace
        self._lock = threading.Lock()
        self._account: tuple[discovery_protocol.AccountToken, float] | None = None
        self.connect = self._server.connect
        self.prefix = ""
        """Prefix of the manager's paths on the server: that of the service proxy, or ""."""

    @property
    def server(self) -> str:
        """Return the URL of the server, for messages."""
        return self._server.settings.server

    def find(self) -> dict[str, Any]:
        """Find the manager and return its `/v1/endpoints` document.

        Raises ConfigurationError, which says what is missing.
        """
        steps = discovery_protocol.ask_server(self._server.settings)
        document = self._carry_out(steps, self._server)
        if document is not None:
            return document
        home = manager_access.manager_namespace(os.environ)
        self.prefix = manager_access.proxy_path(home)
        return self._carry_out(discovery_protocol.ask_behind(home), self)

    def get(self, path: str) -> http_types.ClientResponse:
        """Send a GET for a path of the manager and return the response.

        Raises ConfigurationError if there is no response.
        """
        steps = discovery_protocol.get(self.prefix + path)
        return self._carry_out(steps, self if self.prefix else self._server)

    def path(self, path: str) -> str:
        """Return the server's URL path for a path of the manager."""
        return self._server.path(self.prefix + path)

    def headers(self) -> Mapping[str, str]:
        """Return the headers that authenticate to the server and to the manager."""
        shown = self._server.headers()
        if self.prefix or "Authorization" not in shown:
            shown |= self._token_headers()
        return shown

    def refused(self) -> None:
        """Reload the credential after it was rejected (401)."""
        self._server.refused()
        self._account = None

    def token(self) -> str:
        """Return the token that authenticates a driver to the manager.

        Raises ConfigurationError if there is no token, and OSError if a token must be requested
        from the API server and that fails for now.
        """
        return self._token_headers()[manager_access.TOKEN_HEADER]

    def _token_headers(self) -> Mapping[str, str]:
        """Return headers with the token for the manager: that of the kubeconfig, if it has one.

        Otherwise a token of the ServiceAccount `kilnwork-driver` in the namespace is requested.
        """
        own = self._server.token()
        if own:
            return {manager_access.TOKEN_HEADER: own}
        with self._lock:
            now = self._clock.monotonic()
            if self._account is None or now >= self._account[1]:
                steps = discovery_protocol.request_token(
                    self.server, self._namespace, (manager_access.DRIVER_ACCOUNT,)
                )
                try:
                    made = self._send_all(steps, self._server)
                except (manager_client.TryAgain, endpoint_errors.ManagerNotReady) as error:
                    raise ConnectionError(str(error)) from error  # retried by the link
                self._account = made, now + made.lasts_s
            return self._account[0].headers

    def _carry_out(
        self, steps: discovery_protocol.Steps[T], connector: manager_client.Connector
    ) -> T:
        try:
            return self._send_all(steps, connector)
        except manager_client.TryAgain as error:
            raise endpoint_errors.EndpointError(
                endpoint_errors.unanswered(self.server, error)
            ) from error

    def _send_all(
        self, steps: discovery_protocol.Steps[T], connector: manager_client.Connector
    ) -> T:
        http = manager_client.Client(connector)
        try:
            request = next(steps)
            while True:
                path = self._server.path(request.path)
                sent = msgspec.structs.replace(request, path=path, timeout_s=http_types.CONNECT_S)
                request = steps.send(http.exchange(sent))
        except StopIteration as done:
            found: T = done.value
            return found
        finally:
            http.close()


def _plain(host: str) -> str | bytes:
    """Return a host name, as bytes if it is ASCII.

    For a str, Python imports the IDNA codec (RFC 3490), which takes as long as connecting.
    """
    return host.encode() if host.isascii() else host


def _dial(settings: config.Config, host: str, port: int) -> socket.socket:
    """Return a TCP connection to a server, through the proxy of the kubeconfig if it names one.

    Raises OSError, and ConfigurationError for a proxy that cannot be used.
    """
    if settings.proxy_url is None:
        address: tuple[Any, int] = (_plain(host), port)  # typeshed does not allow bytes
        return socket.create_connection(address, timeout=http_types.CONNECT_S)
    proxy = parse.urlsplit(settings.proxy_url)
    if proxy.scheme != "http" or proxy.username:
        raise errors.ConfigurationError(
            f"proxy-url of the kubeconfig for {settings.server}: drivers take http://HOST:PORT "
            "without a password"
        )
    connected = socket.create_connection(
        (proxy.hostname, proxy.port or 80), timeout=http_types.CONNECT_S
    )
    connection = http1_client.Connection(connected)
    try:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        connection.send("CONNECT", target, {"Host": target})
        head = connection.read_head(to="CONNECT")
        if head.status != 200:
            raise ConnectionError(
                f"the proxy {proxy.netloc} responds with {head.status} {head.reason}"
            )
        return connected
    except http1_client.BadResponse as error:
        connected.close()
        raise ConnectionError(f"the proxy {proxy.netloc}: {error}") from error
    except BaseException:
        connected.close()
        raise
