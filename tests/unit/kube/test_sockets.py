"""Connections of requests that are cut off are closed at once, whatever the server does."""

import asyncio
import gc
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import api_resources
from kilnwork.kube import client, config, errors
from support import certificates, waiting

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
LINE = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"1"}}}\n'
ITEM = b"%x\r\n%s\r\n" % (len(LINE), LINE)
REFUSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 1000\r\n\r\n"

Work = Callable[[client.Client], Coroutine[Any, Any, None]]


class Hanging:
    """A TLS server that sends one thing to each client and then neither reads nor closes."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listening.getsockname()[1]}"
        self.response = b""
        self.heard = threading.Event()
        self._held: list[ssl.SSLSocket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def stop(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(30)
        for one in self._held:
            one.close()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._listening.accept()
            except OSError:
                return
            found = self._context.wrap_socket(plain, server_side=True)
            self._held.append(found)
            found.recv(65536)
            found.sendall(self.response)
            self.heard.set()


@pytest.fixture
def authority() -> certificates.Authority:
    return certificates.Authority()


@pytest.fixture
def server(authority: certificates.Authority, tmp_path: Path) -> Iterator[Hanging]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue_file("server", tmp_path))
    found = Hanging(context)
    yield found
    found.stop()


def connections(server: Hanging) -> int:
    """Open sockets of this process that are connected to the server, whatever opened them."""
    port = f"{int(server.url.rpartition(':')[2]):04X}"
    lines = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{line[9]}]" for line in lines if line[2].endswith(f":{port}")}
    found = 0
    for path in Path("/proc/self/fd").iterdir():
        try:
            found += str(path.readlink()) in inodes
        except OSError:
            continue
    return found


async def watch(kube: client.Client) -> None:
    async for _ in kube.watch(api_resources.PODS, "x", resource_version="1", type=dict):
        pass


async def get(kube: client.Client) -> None:
    await kube.get(api_resources.PODS, "a", "x")


@pytest.mark.parametrize(
    ("says", "work"),
    [(HEAD + ITEM, watch), (HEAD, watch), (b"", watch), (HEAD, get), (b"", get), (REFUSED, get)],
    ids=["watch", "quiet watch", "watch before its head", "get", "get before its head", "401"],
)
async def test_a_request_that_is_cancelled_leaves_no_socket(
    server: Hanging, authority: certificates.Authority, says: bytes, work: Work
) -> None:
    server.response = says
    gc.disable()
    try:
        settings = config.Config(server=server.url, ca_data=authority.pem, token="t")
        async with client.Client(settings) as kube:
            running = asyncio.create_task(work(kube))
            await waiting.wait_until_async(server.heard.is_set, what="the server has sent it")
            await asyncio.sleep(0.01)  # any moment will do
            running.cancel()
            await asyncio.wait([running])
        assert connections(server) == 0
    finally:
        gc.enable()


async def test_a_watch_that_is_cancelled_closes_its_connection_while_the_client_goes_on(
    server: Hanging, authority: certificates.Authority
) -> None:
    server.response = HEAD + ITEM
    settings = config.Config(server=server.url, ca_data=authority.pem)
    async with client.Client(settings) as kube:
        running = asyncio.create_task(watch(kube))
        await waiting.wait_until_async(server.heard.is_set, what="the server has sent it")
        assert connections(server) == 1
        await asyncio.sleep(0.01)  # any moment will do
        running.cancel()
        await asyncio.wait([running])
        await waiting.wait_until_async(
            lambda: connections(server) == 0, what="the connection is closed", timeout_s=5
        )


async def test_a_renewal_that_fails_leaves_no_socket(
    server: Hanging, authority: certificates.Authority, tmp_path: Path
) -> None:
    server.response = REFUSED
    token = tmp_path / "token"
    token.write_text("t")
    settings = config.Config(server=server.url, ca_data=authority.pem, token_file=token)
    async with client.Client(settings, timeout_s=2.0) as kube:
        with pytest.raises(errors.KubeError):
            await get(kube)
    assert connections(server) == 0
