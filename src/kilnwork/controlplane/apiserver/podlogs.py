"""`kubectl logs`: GET pods/NAME/log, asked of the node that runs the Pod and passed on.

Used by the HTTP app. The node's kubelet paths are on the port in its status, over TLS; we present a
client certificate of our CA and check the node's. Streams without buffering, also with `follow`.
"""

import asyncio
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp

from kilnwork.api import meta, resource
from kilnwork.controlplane.apiserver import lookup, pki, requests, statuses
from kilnwork.kit import coroutines

_PASSED_ON = (
    "follow",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "tailLines",
    "timestamps",
    "limitBytes",
    "stream",
)
_FLAGS = frozenset({"follow", "previous", "timestamps"})
_NUMBERS = ("tailLines", "sinceSeconds", "limitBytes")
_CONNECT_TIMEOUT_S = 5.0
_NOT_FOUND, _BAD_REQUEST, _OK = 404, 400, 200
_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


class PodLogs:
    """The way to the nodes. One per API server; close it."""

    def __init__(self, certificates: pki.Pki) -> None:
        self._tls = certificates.to_nodes()
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close connections to nodes; running streams end."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(
        self,
        pod: meta.JsonObject,
        request: requests.Request,
        *,
        reader: lookup.Lookup,
        send: requests.Send,
    ) -> None:
        """Answer with the container's log until it or the client ends.

        Raises StatusError before anything is sent.
        """
        url = target(pod, request.query, reader)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S)
        try:
            async with self._open().get(url, timeout=timeout) as answer:
                await _check(answer)
                await _pass_on(answer, request.receive, send)
        except aiohttp.ClientConnectorError as error:
            node = pod["spec"].get("nodeName", "")
            raise statuses.internal(f"node {node} cannot be reached: {error}") from error

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls, limit=0)
            self._session = aiohttp.ClientSession(
                connector=connector, trust_env=False, auto_decompress=False
            )
        return self._session


def target(pod: meta.JsonObject, query: requests.Query, reader: lookup.Lookup) -> str:
    """The URL on the node; 400 when the question or the state of the Pod allows no answer."""
    metadata = pod["metadata"]
    container = _container(pod, query.text("container"))
    name = (pod.get("spec") or {}).get("nodeName")
    if not name:
        raise statuses.bad_request(
            f'container "{container}" in pod "{metadata["name"]}" is waiting to start: '
            "the Pod is not bound to a node yet"
        )
    where = address(reader.get(resource.NODES, None, name), name)
    path = "/".join(
        urllib.parse.quote(part, safe="")
        for part in ("containerLogs", metadata["namespace"], metadata["name"], container)
    )
    return f"https://{where}/{path}?{urllib.parse.urlencode(_options(query))}"


def _options(query: requests.Query) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _NUMBERS:
        number = query.number(name)
        if number is not None and number < (0 if name == "tailLines" else 1):
            raise statuses.bad_request(f"{name} must be greater than or equal to 0")
    for name in _PASSED_ON:
        if name in _FLAGS:
            if query.flag(name):
                found[name] = "true"
        elif query.text(name):
            found[name] = query.text(name)
    return found


def _container(pod: meta.JsonObject, wanted: str) -> str:
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    names = [c.get("name", "") for c in spec.get("containers") or ()]
    others = [c.get("name", "") for c in spec.get("initContainers") or ()]
    if wanted:
        if wanted not in names + others:
            raise statuses.bad_request(
                f"container {wanted} is not valid for pod {metadata['name']}"
            )
        return wanted
    chosen = (metadata.get("annotations") or {}).get(_DEFAULT_CONTAINER)
    if chosen in names:
        return str(chosen)
    if len(names) != 1:
        raise statuses.bad_request(
            f"a container name must be specified for pod {metadata['name']}, "
            f"choose one of: [{' '.join(names)}]"
        )
    return str(names[0])


def address(node: meta.JsonObject | None, name: str) -> str:
    """`host:port` of a node's kubelet paths; StatusError if it has none."""
    if node is None:
        raise statuses.not_found(resource.NODES, name)
    status: Mapping[str, Any] = node.get("status") or {}
    endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
    port = endpoint.get("Port")
    if not port:
        raise statuses.internal(
            f"node {name} serves neither logs nor streams: its status names no kubelet port"
        )
    addresses = {a.get("type"): a.get("address") for a in status.get("addresses") or ()}
    host = addresses.get("InternalIP") or "127.0.0.1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _check(answer: aiohttp.ClientResponse) -> None:
    """A refusal of the node in the form of a Status."""
    if answer.status == _OK:
        return
    text = (await answer.text(errors="replace")).strip() or answer.reason or "no reason given"
    if answer.status == _NOT_FOUND:
        raise statuses.StatusError(404, "NotFound", text)
    if answer.status == _BAD_REQUEST:
        raise statuses.bad_request(text)
    raise statuses.internal(text)


async def _pass_on(
    answer: aiohttp.ClientResponse, receive: requests.Receive, send: requests.Send
) -> None:
    """Copy until the node or the client has enough: a silent log must not outlive its reader."""
    await send({"type": "http.response.start", "status": _OK, "headers": [_TEXT]})
    crew = coroutines.Crew("pod log")
    copying = crew.start("copy", _copy(answer, send))
    gone = crew.start("disconnect", _disconnected(receive))
    try:
        await asyncio.wait({copying, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await crew.stop()


async def _copy(answer: aiohttp.ClientResponse, send: requests.Send) -> None:
    async for part in _parts(answer):
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: requests.Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _parts(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """What the node sends, as it comes; a node that goes away ends the log."""
    try:
        async for part in answer.content.iter_any():
            yield part
    except aiohttp.ClientPayloadError:
        return
