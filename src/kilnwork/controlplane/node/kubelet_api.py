"""The kubelet's HTTPS API of the local node: logs, streams and health, as an ASGI app.

The usual client is the API server, with a client certificate; `access` decides about other clients.
The port is in the Node's `status.daemonEndpoints`. exec, attach and port-forward are in
`kubelet_streaming`.
"""

import contextlib
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kilnwork.controlplane.node import access, kubelet_streaming, log_reader
from kilnwork.kit import asgi, clock, coroutines, errors, serving

_STOP_S = 2.0
_TEXT = "text/plain"


class ContainerLog(NamedTuple):
    """Log of a container."""

    path: Path
    more: Callable[[], bool]
    """Returns whether the log may still grow."""


FindLog = Callable[[str, str, str, bool], ContainerLog | asgi.Refusal]
"""(namespace, pod, container, previous) → the log of the container."""


class KubeletApp:
    """ASGI app of the kubelet API. `find_log` is called for every log request."""

    def __init__(
        self,
        find_log: FindLog,
        *,
        allowed: access.NodeAccess,
        streaming: kubelet_streaming.ExecPaths | None = None,
        now: clock.Clock,
    ) -> None:
        self._find_log = find_log
        self._allowed = allowed
        self._streaming = streaming
        self._now = now
        self.ending = False
        """Set when the server stops: log followers then end as if the container had ended."""

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        request, response = asgi.Request(scope, receive), asgi.Response(send)
        parts = request.segments
        # Checked for every path, so that nothing is revealed to a client without a credential.
        if (refusal := await self._allowed.refusal(request)) is not None:
            await _refuse(response, refusal)
        elif parts == ["healthz"]:
            await _send(response, 200, "ok")
        elif request.method == "GET" and len(parts) == 4 and parts[0] == "containerLogs":
            await self._logs(request, response)
        elif self._streaming is not None and parts[0] in kubelet_streaming.PATHS:
            await self._streaming.serve(request, response)
        else:
            await _send(response, 404, "404 page not found")

    async def _logs(self, request: asgi.Request, response: asgi.Response) -> None:
        query = {name: value for name, value in request.query.items() if value}
        try:
            options = read_options(query, now=self._now.wall())
        except ValueError as error:
            await _send(response, 400, str(error))
            return
        _, namespace, pod, container = request.segments
        container_log = self._find_log(namespace, pod, container, parse_flag(query.get("previous")))
        if isinstance(container_log, asgi.Refusal):
            await _refuse(response, container_log)
            return
        await response.start(200, _TEXT)
        background = coroutines.BackgroundWork("kubelet log request")
        disconnected = background.start("disconnect", request.wait_disconnected())

        def more() -> bool:
            return container_log.more() and not (disconnected.done() or self.ending)

        try:
            reading = log_reader.read(container_log.path, options, more=more)
            # `aclosing` closes the file at once, also if the client has disconnected.
            async with contextlib.aclosing(reading):
                async for piece in reading:
                    await response.write(piece)
                    if disconnected.done():
                        return
        finally:
            await background.stop()
        await response.end()


async def _refuse(response: asgi.Response, refusal: asgi.Refusal) -> None:
    text = refusal.message.encode()
    await response.send(refusal.status, _TEXT, text, headers=refusal.headers)


async def _send(response: asgi.Response, status: int, text: str) -> None:
    await response.send(status, _TEXT, text.encode())


def parse_flag(text: str | None) -> bool:
    """Return a boolean query parameter: False if it is absent, 0 or false, else True."""
    # Like the conversion of apimachinery (Convert_Slice_string_To_bool).
    return text is not None and text.lower() not in ("0", "false")


def read_options(query: dict[str, str], *, now: float) -> log_reader.LogOptions:
    """Return the log options of a query. `now`: wall clock, seconds.

    Raises ValueError with a message for the client.
    """
    since: float | None = None
    if "sinceSeconds" in query:
        since = max(0.0, now - min(_number(query, "sinceSeconds", least=1), 1 << 53))
    if "sinceTime" in query:
        try:
            since = clock.parse_rfc3339(query["sinceTime"])
        except ValueError as error:
            raise ValueError(f"sinceTime: {error}") from error
    return log_reader.LogOptions(
        follow=parse_flag(query.get("follow")),
        tail_lines=_number(query, "tailLines", least=0) if "tailLines" in query else None,
        since=None if since is None else clock.rfc3339_micro(since),
        timestamps=parse_flag(query.get("timestamps")),
        limit_bytes=_number(query, "limitBytes", least=1) if "limitBytes" in query else None,
    )


def _number(query: dict[str, str], name: str, *, least: int) -> int:
    try:
        value = int(query[name])
    except ValueError as error:
        raise ValueError(f'{name}: "{query[name]}" is not a number') from error
    if value < least:
        raise ValueError(f"{name}: must be greater than or equal to {least}")
    return value


class Certificates(NamedTuple):
    """PEM files: the node's serving certificate and key, and the CA of client certificates."""

    certificate: Path
    key: Path
    ca: Path


class KubeletServer:
    """Serves an app over TLS on a port of `address`, in the running event loop.

    Port 0 means any free port.
    """

    def __init__(
        self, app: KubeletApp, *, address: str, certificates: Certificates, port: int = 0
    ) -> None:
        self._app = app
        self._certificates = certificates
        self._tls = _tls_context(certificates)
        listening = _bind(address, port)
        self.port: int = listening.getsockname()[1]
        self._listener = serving.Listener(app, listening, tls=self._tls)

    def reload(self) -> None:
        """Load the certificate files again. New connections use them."""
        self._tls.load_cert_chain(self._certificates.certificate, self._certificates.key)

    async def start(self) -> None:
        await self._listener.start()

    async def stop(self) -> None:
        """Close the port and end running requests."""
        self._app.ending = True
        await self._listener.stop(timeout_s=_STOP_S)


def _tls_context(certificates: Certificates) -> ssl.SSLContext:
    try:
        return serving.tls_context(
            certificates.certificate, certificates.key, client_ca=certificates.ca
        )
    except (ssl.SSLError, OSError) as error:
        raise errors.ConfigurationError(
            f"the certificates of the node cannot be used: {error}; the CA of its clients is "
            f"{certificates.ca}, which must be a file with certificates in PEM"
        ) from error


def _bind(address: str, port: int) -> socket.socket:
    try:
        return serving.bind(address, port)
    except OSError as error:
        raise errors.ConfigurationError(
            f"the node cannot listen on {address} port {port}: {error.strerror or error}; choose "
            "an --address of this machine and a free --port"
        ) from error
