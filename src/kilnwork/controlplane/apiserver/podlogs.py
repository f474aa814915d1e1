"""`kubectl logs`: fetches pods/NAME/log from the node that runs the Pod and passes it on.

Used by `resource_handler`. The kubelet API of the node is on the port in the Node's status, over
TLS: the server presents a client certificate of the CA and verifies the certificate of the node.
Logs are streamed without buffering, also with `follow`.
"""

import asyncio
import contextlib
import urllib.parse
from collections.abc import AsyncIterator, Mapping
from typing import Any

from kilnwork import version
from kilnwork.api import api_resources, meta
from kilnwork.controlplane.apiserver import lookup_interface, pki, requests, statuses
from kilnwork.kit import asgi, coroutines, http_types
from kilnwork.kit import clock as clocks
from kilnwork.kube import config, errors, transport, watch_stream

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
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


class PodLogs:
    """Reads container logs from the nodes that run the Pods.

    There is one per API server. Call `close` at the end.
    """

    def __init__(self, certificates: pki.Pki, *, clock: clocks.Clock) -> None:
        self._certificates = certificates
        self._clock = clock
        self._nodes: dict[str, transport.Transport] = {}

    async def close(self) -> None:
        """Close the connections to nodes; running streams end."""
        # Popped one by one, since a request may add a node during the await.
        while self._nodes:
            _, node = self._nodes.popitem()
            await node.__aexit__()

    async def send(
        self,
        pod: meta.JsonObject,
        request: requests.ApiRequest,
        *,
        reader: lookup_interface.Lookup,
        response: asgi.Response,
    ) -> None:
        """Send the container's log until the log ends or the client disconnects.

        Raises StatusError before anything is sent.
        """
        server, wanted_request = target(pod, request.query, reader)
        node = await self._node(server)
        try:
            async with node.open(wanted_request) as log_response:
                await _pass_on(
                    watch_stream.pieces(node, log_response.content), request.http, response
                )
        except errors.NotFound as error:
            raise statuses.StatusError(404, "NotFound", str(error)) from error
        except errors.Invalid as error:
            raise statuses.bad_request(str(error)) from error
        except errors.KubeError as error:
            if isinstance(error, errors.ApiError) and error.status:
                raise statuses.internal(str(error)) from error
            name = pod["spec"].get("nodeName", "")
            raise statuses.internal(f"node {name} cannot be reached: {error}") from error

    async def _node(self, server: str) -> transport.Transport:
        if server not in self._nodes:
            pair = self._certificates.kubelet_client
            settings = config.Config(
                server=server,
                ca_file=self._certificates.ca_certificate,
                client_cert_file=pair.certificate,
                client_key_file=pair.key,
                compression=False,
            )
            opened = transport.Transport(
                settings, user_agent=f"kilnwork/{version.__version__}", time=self._clock
            )
            self._nodes[server] = await opened.__aenter__()
        return self._nodes[server]


def target(
    pod: meta.JsonObject, query: requests.Query, reader: lookup_interface.Lookup
) -> tuple[str, http_types.ClientRequest]:
    """Return the URL of the node and the request to send to it.

    Raises 400 when the query or the state of the Pod does not allow it, 404 if the Node does not
    exist, 500 if it names no kubelet port.
    """
    metadata = pod["metadata"]
    container = _container(pod, query.text("container"))
    name = (pod.get("spec") or {}).get("nodeName")
    if not name:
        raise statuses.bad_request(
            f'container "{container}" in pod "{metadata["name"]}" is waiting to start: '
            "the Pod is not bound to a node yet"
        )
    where = address(reader.get(api_resources.NODES, None, name), name)
    path = "/".join(
        urllib.parse.quote(part, safe="")
        for part in ("containerLogs", metadata["namespace"], metadata["name"], container)
    )
    return f"https://{where}", http_types.ClientRequest(
        # No timeout: a log that is followed may be silent for hours.
        method="GET",
        path=f"/{path}",
        query=_options(query),
        accept="*/*",
        timeout_s=None,
    )


def _options(query: requests.Query) -> dict[str, str]:
    options: dict[str, str] = {}
    for name in _NUMBERS:
        number = query.number(name)
        if number is not None and number < (0 if name == "tailLines" else 1):
            raise statuses.bad_request(f"{name} must be greater than or equal to 0")
    for name in _PASSED_ON:
        if name in _FLAGS:
            if query.flag(name):
                options[name] = "true"
        elif query.text(name):
            options[name] = query.text(name)
    return options


def _container(pod: meta.JsonObject, wanted: str) -> str:
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    names = [c.get("name", "") for c in spec.get("containers") or ()]
    kinds = ("initContainers", "ephemeralContainers")
    others = [c.get("name", "") for kind in kinds for c in spec.get(kind) or ()]
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
    """Return `host:port` of a node's kubelet API. Raises StatusError if it has none."""
    if node is None:
        raise statuses.not_found(api_resources.NODES, name)
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


async def _pass_on(
    log: AsyncIterator[bytes], request: asgi.Request, response: asgi.Response
) -> None:
    """Copy a log to the response until the log ends or the client disconnects.

    The disconnect is waited for too, so that a silent log is not followed for a client that has
    left.
    """
    await response.start(200, asgi.TEXT)
    background = coroutines.BackgroundWork("pod log")
    copying = background.start("copy", _copy(log, response))
    gone = background.start("disconnect", request.wait_disconnected())
    try:
        await asyncio.wait({copying, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await background.stop()


async def _copy(log: AsyncIterator[bytes], response: asgi.Response) -> None:
    with contextlib.suppress(errors.Unavailable):  # the log ends when the node disconnects
        async for part in log:
            await response.write(part)
    await response.end()
