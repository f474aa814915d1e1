"""Pod logs: asked of a node over mutual TLS and passed on as they come."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kilnwork.api import api_resources
from kilnwork.controlplane.apiserver import authn, pki, podlogs, requests, statuses
from kilnwork.kit import asgi
from kilnwork.kit import clock as clocks
from support import memory_lookup

NAME, NAMESPACE = "talker", "default"


class Kubelet:
    """The log path of a node; it remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.more = asyncio.Event()
        self.left = asyncio.Event()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(str(request.rel_url))
        container = request.match_info["container"]
        if container == "gone":
            return web.Response(status=404, text="no such container")
        if container == "waiting":
            return web.Response(status=400, text='container "waiting" is waiting to start')
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"line 1\n")
        if "follow" in request.query:
            try:
                await self.more.wait()
            finally:
                self.left.set()
            await response.write(b"line 2\n")
        await response.write_eof()
        return response


@pytest.fixture
def certificates(tmp_path: Path) -> pki.Pki:
    made = pki.Pki(tmp_path / "pki", clock=clocks.SystemClock())
    made.prepare()
    return made


@pytest.fixture
def kubelet() -> Kubelet:
    return Kubelet()


@pytest.fixture
async def port(certificates: pki.Pki, kubelet: Kubelet) -> AsyncIterator[int]:
    pair = certificates.node("local")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.ca_certificate)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(pair.certificate, pair.key)
    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", kubelet.serve)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.fixture
async def logs(certificates: pki.Pki) -> AsyncIterator[podlogs.PodLogs]:
    made = podlogs.PodLogs(certificates, clock=clocks.SystemClock())
    yield made
    await made.close()


def pod(*containers: str, node: str = "local", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": NAME, "namespace": NAMESPACE, **metadata},
        "spec": {"nodeName": node, "containers": [{"name": name} for name in containers]},
    }


def nodes(port: int) -> memory_lookup.MemoryLookup:
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    return memory_lookup.MemoryLookup(
        (api_resources.NODES, {"metadata": {"name": "local"}, "status": status})
    )


class Client:
    """Both directions of an ASGI request."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.gone = asyncio.Event()
        self.got = asyncio.Event()

    async def receive(self) -> asgi.Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: asgi.Message) -> None:
        self.sent.append(message)
        if message.get("body"):
            self.got.set()

    @property
    def response(self) -> asgi.Response:
        return asgi.Response(self.send)

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.sent)

    def request(self, query: bytes = b"") -> requests.ApiRequest:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{NAME}/log"
        scope = {"method": "GET", "path": path, "query_string": query, "headers": []}
        return requests.parse(
            asgi.Request(scope, self.receive), user=authn.ADMIN, find=lambda *_: api_resources.PODS
        )


async def test_whole_log_is_passed_on(logs: podlogs.PodLogs, port: int, kubelet: Kubelet) -> None:
    client = Client()
    asked = client.request(b"tailLines=5&timestamps=True&previous=false&pretty=x&container=main")
    await logs.send(pod("main", "side"), asked, reader=nodes(port), response=client.response)
    assert client.sent[0]["status"] == 200
    assert client.body == b"line 1\n"
    assert not client.sent[-1].get("more_body")
    assert kubelet.asked == ["/containerLogs/default/talker/main?tailLines=5&timestamps=true"]


async def test_followed_log_comes_line_by_line(
    logs: podlogs.PodLogs, port: int, kubelet: Kubelet
) -> None:
    client = Client()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            logs.send(
                pod("main"),
                client.request(b"follow"),
                reader=nodes(port),
                response=client.response,
            )
        )
        await asyncio.wait_for(client.got.wait(), 30)
        assert client.body == b"line 1\n"
        kubelet.more.set()
    assert client.body == b"line 1\nline 2\n"


async def test_disconnected_client_ends_the_stream_on_the_node(
    logs: podlogs.PodLogs, port: int, kubelet: Kubelet
) -> None:
    client = Client()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            logs.send(
                pod("main"),
                client.request(b"follow"),
                reader=nodes(port),
                response=client.response,
            )
        )
        await asyncio.wait_for(client.got.wait(), 30)
        client.gone.set()
    await asyncio.wait_for(kubelet.left.wait(), 30)


@pytest.mark.parametrize(
    ("container", "code", "text"),
    [
        ("gone", 404, "no such container"),
        ("waiting", 400, 'container "waiting" is waiting to start'),
    ],
)
async def test_error_of_the_node_becomes_a_status(
    logs: podlogs.PodLogs, port: int, container: str, code: int, text: str
) -> None:
    client = Client()
    with pytest.raises(statuses.StatusError) as caught:
        await logs.send(
            pod(container), client.request(), reader=nodes(port), response=client.response
        )
    assert (caught.value.code, caught.value.message) == (code, text)
    assert client.sent == []


async def test_unreachable_node_is_named(logs: podlogs.PodLogs) -> None:
    client = Client()
    with pytest.raises(statuses.StatusError, match="node local cannot be reached") as caught:
        await logs.send(pod("main"), client.request(), reader=nodes(1), response=client.response)
    assert caught.value.code == 500


@pytest.mark.parametrize(
    ("found", "query", "code", "text"),
    [
        (pod("main"), b"container=x", 400, "container x is not valid for pod talker"),
        (pod("a", "b"), b"", 400, "choose one of: [a b]"),
        (pod("main", node=""), b"", 400, "is waiting to start"),
        (pod("main", node="other"), b"", 404, 'nodes "other" not found'),
        (pod("main"), b"tailLines=-1", 400, "tailLines must be greater"),
        (pod("main"), b"sinceSeconds=x", 400, "invalid syntax"),
    ],
)
def test_invalid_log_requests_are_rejected(
    found: dict[str, Any], query: bytes, code: int, text: str
) -> None:
    asked = Client().request(query)
    with pytest.raises(statuses.StatusError) as caught:
        podlogs.target(found, asked.query, nodes(10250))
    assert caught.value.code == code
    assert text in caught.value.message


def test_annotation_selects_the_container() -> None:
    annotations = {"kubectl.kubernetes.io/default-container": "b"}
    found = pod("a", "b", annotations=annotations)
    server, request = podlogs.target(found, Client().request().query, nodes(10250))
    assert server == "https://127.0.0.1:10250"
    assert request.target() == "/containerLogs/default/talker/b"
