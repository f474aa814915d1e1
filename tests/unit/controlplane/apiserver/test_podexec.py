"""Streams of Pods: what becomes of the node's connection when the client's comes to nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.api import api_resources
from kilnwork.controlplane.apiserver import authn, pki, podexec, requests
from kilnwork.kit import asgi, serving
from kilnwork.kit import clock as clocks
from support import memory_lookup

POD = {
    "metadata": {"name": "p", "namespace": "default"},
    "spec": {"nodeName": "local", "containers": [{"name": "main"}]},
}


class Node:
    """Agrees to every upgrade, then sees when the other side hangs up."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(asgi.switching("SPDY/3.1"))
        await reader.read()
        self.left.set()
        writer.close()


@pytest.fixture
def certificates(tmp_path: Path) -> pki.Pki:
    made = pki.Pki(tmp_path / "pki", clock=clocks.SystemClock())
    made.prepare()
    return made


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
async def nodes(certificates: pki.Pki, node: Node) -> AsyncIterator[memory_lookup.MemoryLookup]:
    pair = certificates.node("local")
    tls = serving.tls_context(
        pair.certificate, pair.key, client_ca=certificates.ca_certificate, demanded=True
    )
    async with await asyncio.start_server(node.serve, "127.0.0.1", 0, ssl=tls) as server:
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": server.sockets[0].getsockname()[1]}},
        }
        known = {"metadata": {"name": "local"}, "status": status}
        yield memory_lookup.MemoryLookup((api_resources.NODES, known))


def raise_disconnected() -> asgi.Hijacked:
    raise asgi.Disconnected


async def receive() -> asgi.Message:
    return {"type": "http.disconnect"}


async def send(message: asgi.Message) -> None:
    raise AssertionError(f"unexpected message: {message}")


async def test_disconnected_client_leaves_no_connection_to_the_node(
    certificates: pki.Pki, node: Node, nodes: memory_lookup.MemoryLookup
) -> None:
    scope = {
        "method": "POST",
        "path": "/api/v1/namespaces/default/pods/p/exec",
        "query_string": b"command=true&stdout=true",
        "headers": [],
        "extensions": {asgi.HIJACK: raise_disconnected},
    }
    asked = requests.parse(
        asgi.Request(scope, receive), user=authn.ADMIN, find=lambda *_: api_resources.PODS
    )
    streams = podexec.PodStreams(certificates)
    with pytest.raises(asgi.Disconnected):
        await streams.serve(POD, asked, reader=nodes, response=asgi.Response(send))
    await asyncio.wait_for(node.left.wait(), 30)
    await streams.close()
