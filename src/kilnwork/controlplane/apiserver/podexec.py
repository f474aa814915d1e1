"""`kubectl exec`, `attach` and `port-forward`: an upgraded connection, tunnelled to the Pod's node.

Used by `resource_handler`. Only the node understands the stream protocol (SPDY, WebSocket channels,
SPDY in a WebSocket): after the `101` of the node, bytes are copied in both directions without being
parsed, as by UpgradeAwareHandler of k8s.io/apimachinery. Our nodes speak version 5 of the WebSocket
channels themselves, which kube-apiserver translates to SPDY for a kubelet. If a node refuses, its
response is passed on.
"""

import asyncio
import contextlib
import urllib.parse
from typing import NamedTuple

from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import lookup_interface, pki, podlogs, requests, statuses
from kilnwork.kit import asgi, coroutines, tcp_keepalive

NAMES = ("exec", "attach", "portforward")
"""Subresources served here, with the verbs `create` (POST) and `get` (GET of a WebSocket)."""

CONNECT_S = 5.0
HEAD_S = 30.0
"""Timeout for a node to respond to the request."""

_MAX_HEAD = 64 * 1024
_NO_RESPONSE = (OSError, TimeoutError, EOFError, ValueError, asyncio.LimitOverrunError)
_SWITCHING = 101
_BYTES = "surrogateescape"
"""Error handler for query strings, since arguments of a command need not be UTF-8."""

_PATHS = {"exec": "exec", "attach": "attach", "portforward": "portForward"}
_ASKED = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
"""Our query parameters (core/v1 PodExecOptions) → parameters of the kubelet (ExecStdinParam, …)."""

_PASSED_ON = frozenset(
    (
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"sec-websocket-protocol",
        b"upgrade",
        b"user-agent",
        b"x-stream-protocol-version",
    )
)
"""Headers passed on to the node. The client's credential is not: a node trusts only the server."""


class StreamTarget(NamedTuple):
    """Address of a stream on a node; `path` includes the query."""

    host: str
    port: int
    path: str


class PodStreams:
    """Connector of clients with the streams of nodes, one per API server.

    `close` cuts off running streams.
    """

    def __init__(self, certificates: pki.Pki) -> None:
        self._tls = certificates.to_nodes()
        self._background = coroutines.BackgroundWork("pod streams")

    async def close(self) -> None:
        await self._background.stop()

    async def serve(
        self,
        pod: meta.JsonObject,
        request: requests.ApiRequest,
        *,
        reader: lookup_interface.Lookup,
        response: asgi.Response,
    ) -> None:
        """Connect the client to the node. Raises StatusError while a response can still be sent."""
        address = target(pod, request, reader)
        hijack = request.http.hijack
        if hijack is None:
            raise statuses.bad_request("Upgrade request required")
        try:
            node = await asyncio.wait_for(self._open(address), CONNECT_S)
        except (OSError, TimeoutError) as error:
            raise statuses.internal(f"error dialing backend: {_reason(error)}") from error
        with contextlib.ExitStack() as undo:  # also if the client has disconnected
            undo.callback(node.close)
            try:
                head = await asyncio.wait_for(_ask(node, address, request.http), HEAD_S)
                if _status(head) != _SWITCHING:
                    await _quote(head, node, response)
                    return
            except _NO_RESPONSE as error:
                raise statuses.internal(f"error dialing backend: {_reason(error)}") from error
            client = _take(hijack, head)
            undo.pop_all()
        self._background.start(request.subresource, _tunnel(client, node))

    async def _open(self, wanted: StreamTarget) -> "_Side":
        return _Side(
            *await asyncio.open_connection(wanted.host, wanted.port, ssl=self._tls, limit=_MAX_HEAD)
        )


class _Side:
    """One end of a tunnel."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        tcp_keepalive.enable(writer.get_extra_info("socket"))

    def close(self) -> None:
        """Close the connection after the written bytes are sent."""
        self.writer.close()


def target(
    pod: meta.JsonObject, request: requests.ApiRequest, reader: lookup_interface.Lookup
) -> StreamTarget:
    """Return the address of the stream on the Pod's node.

    Raises 400 if the request or the state of the Pod does not allow the stream, 404 if the Node
    does not exist, 500 if it names no kubelet port. Follows streamLocation of k8s.io/kubernetes
    pkg/registry/core/pod/strategy.go.
    """
    metadata = pod["metadata"]
    raw = request.http.scope.get("query_string", b"").decode("latin-1")
    query = urllib.parse.parse_qs(raw, keep_blank_values=True, errors=_BYTES)
    parts = [_PATHS[request.subresource], metadata["namespace"], metadata["name"]]
    if request.subresource == "portforward":
        arguments = [("port", ",".join(query["ports"]))] if "ports" in query else []
    else:
        parts.append(_container(pod, request.query.text("container")))
        arguments = [
            (parameter, "1") for option, parameter in _ASKED.items() if request.query.flag(option)
        ]
        arguments += [("command", word) for word in query.get("command", ())]
    node = (pod.get("spec") or {}).get("nodeName")
    if not node:
        text = f"pod {metadata['name']} does not have a host assigned"
        raise statuses.bad_request(text)
    host, _, port = podlogs.address(reader.get(api_resources.NODES, None, node), node).rpartition(
        ":"
    )
    path = "/".join(urllib.parse.quote(part, safe="") for part in parts)
    text = urllib.parse.urlencode(arguments, errors=_BYTES)
    return StreamTarget(host.strip("[]"), int(port), f"/{path}?{text}")


def _container(pod: meta.JsonObject, wanted: str) -> str:
    spec, name = pod.get("spec") or {}, pod["metadata"]["name"]
    main = [c.get("name", "") for c in spec.get("containers") or ()]
    kinds = ("initContainers", "containers", "ephemeralContainers")
    every = [c.get("name", "") for kind in kinds for c in spec.get(kind) or ()]
    if wanted and wanted not in every:
        raise statuses.bad_request(f"container {wanted} is not valid for pod {name}")
    if not wanted and len(main) != 1:
        text = f"a container name must be specified for pod {name}"
        raise statuses.bad_request(f"{text}, choose one of: [{' '.join(every)}]")
    return str(wanted or main[0])


async def _ask(node: _Side, wanted: StreamTarget, request: asgi.Request) -> bytes:
    """Send the request and return the head of the response."""
    host = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
    lines = [f"{request.method} {wanted.path} HTTP/1.1".encode()]
    # `Connection` is a hop-by-hop header: it is set here and not passed on.
    lines += [f"Host: {host}:{wanted.port}".encode(), b"Connection: Upgrade"]
    lines += [
        b"%b: %b" % pair for pair in request.scope["headers"] if pair[0].lower() in _PASSED_ON
    ]
    if request.method == "POST":
        lines.append(b"Content-Length: 0")
    node.writer.write(b"\r\n".join([*lines, b"", b""]))
    # The first bytes of the streams may follow the head. They stay in the reader for the tunnel.
    return await node.reader.readuntil(b"\r\n\r\n")


def _status(head: bytes) -> int:
    """Return the status code of a response head. Raises ValueError if it is not HTTP/1."""
    version, _, rest = head.partition(b" ")
    if not version.startswith(b"HTTP/1."):
        raise ValueError("the node does not speak HTTP/1.1")
    return int(rest[:3])


async def _quote(head: bytes, node: _Side, response: asgi.Response) -> None:
    """Send the node's error response to the client."""
    fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:-2])
    if fields.get(b"transfer-encoding") == b"chunked":
        body = await _chunks(node.reader)
    else:
        length = int(fields.get(b"content-length", b"0"))
        body = await node.reader.readexactly(min(length, _MAX_HEAD))
    content_type = fields.get(b"content-type", b"").decode("latin-1") or asgi.TEXT
    await response.send(_status(head), content_type, body)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    """Read a short chunked body (RFC 9112 §7.1)."""
    body = b""
    while length := int((await reader.readline()).partition(b";")[0], 16):
        body += await reader.readexactly(min(length, _MAX_HEAD))
        await reader.readline()
        if len(body) > _MAX_HEAD:
            raise ValueError("the node's refusal is too long")
    return body


def _take(hijack: asgi.Hijack, head: bytes) -> _Side:
    """Take over the client's connection and send the node's response head on it."""
    taken = hijack()
    taken.transport.write(head)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_MAX_HEAD)
    protocol = asyncio.StreamReaderProtocol(reader)
    taken.hand_over(protocol)
    return _Side(reader, asyncio.StreamWriter(taken.transport, protocol, reader, loop))


async def _tunnel(client: _Side, node: _Side) -> None:
    """Copy in both directions until either side closes."""
    background = coroutines.BackgroundWork("pod stream")
    ways = {
        background.start("in", _copy(client, node)),
        background.start("out", _copy(node, client)),
    }
    try:
        # The protocols close streams by messages, so a side that closes the connection is done.
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await background.stop()
        for side in (client, node):
            side.close()


async def _copy(source: _Side, sink: _Side) -> None:
    with contextlib.suppress(OSError):
        while piece := await source.reader.read(_MAX_HEAD):
            sink.writer.write(piece)
            await sink.writer.drain()


def _reason(error: BaseException) -> str:
    return str(error) or "timed out"
