"""A server for one ASGI app on one bound socket, plain or over TLS.

Used by the embedded API server, by the node for its kubelet paths, by the manager and by ponds. It
has uvicorn's protocol without uvicorn's server: no signal handlers, no log lines, no periodic
callback, and a stop with a time limit. The app finds in its scope, through `asgi.Request`:

- `scope["state"]["peer_certificate"]`: what the TLS client has shown (`ssl.getpeercert`), or None;
- `scope["state"]["abort"]`: what `Request.cut` calls;
- `scope["state"]["flow"]`: what `Request.drained` waits for;
- `scope["extensions"][asgi.HIJACK]`, only when the client asks for another protocol by
  `Connection: Upgrade` (RFC 9110 §7.8). An app that does not call it responds as always, and the
  upgrade is ignored.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from urllib import parse

import httptools
import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.server import ServerState

from kilnwork.kit import asgi

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 300
"""Seconds for which an idle connection is kept: longer than clients keep theirs, so that no request
meets a closed connection.
"""

BACKLOG = 2048
HEAD_BYTES = 1 << 20
"""Maximum bytes of a request line with its headers; httptools itself would keep any number (Go:
MaxHeaderBytes).
"""

HEAD_S = 32.0
"""Maximum seconds for reading request line and headers, so that idle clients hold no connections
(k8s.io/apiserver pkg/server/secure_serving.go: ReadHeaderTimeout).
"""

_JOIN_BYTES = 16 << 10
"""Maximum bytes that are copied to be sent together."""

_EARLY_BYTES = 64 << 10
"""Maximum bytes that a client may send of the next protocol before the app has responded; then
reading pauses.
"""


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; its connections send small responses at once (TCP_NODELAY). Raises
    OSError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted connections inherit TCP_NODELAY. asyncio sets it only on sockets made with
    # proto=IPPROTO_TCP.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    found.setblocking(False)
    try:
        found.bind((host, port))
        found.listen(BACKLOG)
    except OSError:
        found.close()
        raise
    return found


def tls_context(
    certificate: Path,
    key: Path,
    *,
    client_ca: Path | None = None,
    demanded: bool = False,
) -> ssl.SSLContext:
    """Return the TLS settings of a server, from the PEM files of its certificate and key.

    `client_ca`: clients may present a certificate of this CA. `demanded`: they must.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.load_verify_locations(cafile=str(client_ca))
        context.verify_mode = ssl.CERT_REQUIRED if demanded else ssl.CERT_OPTIONAL
    context.set_alpn_protocols(["http/1.1"])
    return context


class Listener:
    """A server of one ASGI app on one listening socket."""

    def __init__(
        self, app: asgi.App, listening: socket.socket, *, tls: ssl.SSLContext | None = None
    ) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._socket = listening
        self._tls = tls
        self._state = _State()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to accept connections."""
        self._config.load()
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            return _Protocol(self._config, self._state, {}, _loop=loop)

        self._server = await loop.create_server(
            protocol, sock=self._socket, ssl=self._tls, backlog=BACKLOG
        )

    async def stop(self, *, timeout_s: float) -> None:
        """Accept no more connections, let running requests end, and abort connections whose
        requests do not end in time.

        Connections that apps have taken over are closed last.
        """
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
        for transport in self._state.taken:
            transport.abort()
        self._server = None


class _State(ServerState):
    """The state that all connections of one listener share."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[asyncio.Transport] = []

    def take(self, transport: asyncio.Transport) -> None:
        """Record a connection that an app has taken over, and forget connections that have
        ended.
        """
        self.taken = [known for known in self.taken if not known.is_closing()]
        self.taken.append(transport)


_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"content-length: 0\r\nconnection: close\r\n\r\n"
)


class _Together:
    """A transport that sends the head of a response together with its body.

    The head waits until the end of this turn of the loop, so that head and body go in one system
    call and one packet. uvicorn writes them separately.
    """

    __slots__ = ("_held", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._held = b""

    def write(self, data: bytes) -> None:
        """Send data, at the latest at the end of this turn of the loop."""
        if self._held:
            held, self._held = self._held, b""
            if len(data) <= _JOIN_BYTES:
                self._transport.write(held + data)
                return
            self._transport.write(held)
        elif 0 < len(data) <= _JOIN_BYTES:
            self._held = data
            self._loop.call_soon(self.flush)
            return
        self._transport.write(data)

    def write_whole(self, head: bytes, body: bytes) -> None:
        """Send a whole response now, with its body."""
        self.flush()
        if len(body) <= _JOIN_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)

    def flush(self) -> None:
        """Send the data that is held back."""
        if self._held:
            held, self._held = self._held, b""
            if not self._transport.is_closing():
                self._transport.write(held)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self.flush()
        self._transport.close()


class _Cycle(httptools_impl.RequestResponseCycle):
    """One request and its response; a whole response (`asgi.WHOLE`) is written at once.

    uvicorn writes head and body apart, and searches each header twice with regular expressions.
    """

    transport: Any  # a `_Together`
    _head = b""
    """The head of a whole response; kept until its body comes."""

    async def send(self, message: Any) -> None:
        """Send one ASGI message."""
        if self._head:
            self._write_whole(message["body"])
        elif asgi.WHOLE in message and self._is_plain():
            self._head = _head(message["status"], message["headers"])
            self.response_started = True
            self.waiting_for_100_continue = False
        else:
            await super().send(message)

    def _is_plain(self) -> bool:
        """Return whether head and body can simply be written: the connection stays open and
        writable, and the method is not HEAD.
        """
        return (
            self.keep_alive
            and not (self.disconnected or self.response_started or self.flow.write_paused)
            and self.scope["method"] != "HEAD"
        )

    def _write_whole(self, body: bytes) -> None:
        head, self._head = self._head, b""
        if self.disconnected:
            return
        self.transport.write_whole(head, body)
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:  # the server is stopping
            self.transport.close()
        self.on_response()


def _head(status: int, headers: asgi.Headers) -> bytes:
    """Return the bytes of a response's head. Raises RuntimeError for characters that would end a
    line too early (RFC 9110 §5.5).
    """
    lines = b"\r\n".join([name + b": " + value for name, value in headers])
    ends = len(headers) - 1
    if lines.count(b"\n") != ends or lines.count(b"\r") != ends or b"\0" in lines:
        raise RuntimeError("a header of the response has a line end or a NUL in it")
    return b"%b%b\r\n\r\n" % (httptools_impl.STATUS_LINE[status], lines)


class _Protocol(httptools_impl.HttpToolsProtocol):
    """uvicorn's HTTP protocol with access to the TLS client's certificate and with hijacking."""

    server_state: _State

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        shown = tls.getpeercert() if tls is not None else None
        self.app_state = {
            "peer_certificate": shown,
            "abort": transport.abort,
            "flow": self.flow,
        }
        self._together = _Together(transport, self.loop)
        self._asking: httptools_impl.RequestResponseCycle | None = None
        self._early = bytearray()
        self._useless_bytes = 0
        self._patience: asyncio.TimerHandle | None = None
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        super().connection_lost(exc)

    def on_body(self, body: bytes) -> None:
        self._useless_bytes = 0
        super().on_body(body)

    def on_headers_complete(self) -> None:
        self._useless_bytes = 0
        self._in_time()
        self._complete_scope()
        # None for the first request.
        before: httptools_impl.RequestResponseCycle | None = self.cycle
        self.cycle = cycle = self._new_cycle()
        if self.parser.should_upgrade() and self._may_upgrade():
            extensions: dict[str, Any] = {asgi.HIJACK: lambda: self._give_away(cycle)}
            self.scope["extensions"] = extensions
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:  # pipelined requests: one after the other
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _complete_scope(self) -> None:
        scope: Any = self.scope
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = self.parser.get_http_version()
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["path"] = parse.unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""

    def _new_cycle(self) -> "_Cycle":
        keeps_alive = self.scope["http_version"] != "1.0" and self.parser.should_keep_alive()
        return _Cycle(
            scope=self.scope,
            transport=cast(Any, self._together),
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=[],
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=keeps_alive,
            on_response=self.on_response_complete,
        )

    def _may_upgrade(self) -> bool:
        """Return whether the request may upgrade: it is not HTTP/1.0 (RFC 9110 §7.8) and has no
        body.
        """
        if self.scope["http_version"] != "1.1" or self._get_upgrade() is None:
            return False
        lengths = [value for name, value in self.headers if name == b"content-length"]
        chunked = any(name == b"transfer-encoding" for name, _ in self.headers)
        return not chunked and lengths in ([], [b"0"])

    def data_received(self, data: bytes) -> None:
        if self._asking is not None:
            self._keep(data)
            return
        self._unset_keepalive_if_required()
        self._useless_bytes += len(data)
        try:
            self.parser.feed_data(data)
            self._watch_head()
        except httptools.HttpParserUpgrade as upgrade:
            if not self.cycle.response_complete:
                self._asking = self.cycle
                self._keep(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _watch_head(self) -> None:
        """Limit the size and duration of an incomplete head, and of trailers of chunked bodies."""
        # None before the first request.
        cycle: httptools_impl.RequestResponseCycle | None = self.cycle
        idle = cycle is None or cycle.response_complete
        if self._useless_bytes > HEAD_BYTES:
            if idle:
                self.transport.write(_TOO_LARGE)
            self.transport.close()
        elif idle and self.timeout_keep_alive_task is None and self._patience is None:
            self._patience = self.loop.call_later(HEAD_S, self.transport.abort)

    def _in_time(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _keep(self, data: bytes) -> None:
        """Buffer data that follows an upgrade request until the app responds."""
        self._early += data
        if len(self._early) > _EARLY_BYTES:
            self.flow.pause_reading()

    def on_response_complete(self) -> None:
        """Continue after a complete response.

        If the client had asked for an upgrade and the app did not accept it, parse the data that
        followed the request as HTTP.
        """
        self._together.flush()
        responded = self._asking is not None and self._asking.response_complete
        early = bytes(self._early) if responded else b""
        if responded:
            self._asking = None
            self._early.clear()
        super().on_response_complete()
        if early and not self.transport.is_closing():
            self.data_received(early)

    def _give_away(self, cycle: httptools_impl.RequestResponseCycle) -> asgi.Hijacked:
        if cycle.disconnected:
            raise asgi.Disconnected
        if cycle is not self._asking or cycle.response_started:
            raise RuntimeError("this connection is no longer there to be taken")
        self._unset_keepalive_if_required()
        # For uvicorn the response is complete: it must send none when the app returns or raises.
        cycle.response_started = cycle.response_complete = True
        self.connections.discard(self)
        self.server_state.take(self.transport)
        self.transport.pause_reading()
        early, self._early = bytes(self._early), bytearray()
        return asgi.Hijacked(self.transport, early)
