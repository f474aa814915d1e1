"""A driver's link through TLS and an Upgrade: it behaves like a socket, whatever the network
does.
"""

import asyncio
import os
import signal
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from concurrent import futures
from pathlib import Path
from typing import TypeVar

import pytest

from kilnwork.api import manager_access as names
from kilnwork.channel import errors, http_upgrade, messages
from kilnwork.kit import asgi, serving
from support import certificates, raw_peers, raw_worker, remote_manager, tcp_proxy

R = TypeVar("R")
HEADERS = {"Host": "manager"}
_clients = futures.ThreadPoolExecutor(8, "client")


async def in_thread(story: Callable[[], R]) -> R:
    """Run a blocking client in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_clients, story)


class Echo(asyncio.Protocol):
    """Protocol that sends data back; `end` in it ends the connection."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._world.lost += 1

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)
        if b"end" in data:
            self.transport.close()

    def pause_writing(self) -> None:
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        self.transport.resume_reading()


class World:
    """A server of `Echo`, with or without TLS."""

    def __init__(self, directory: Path, *, tls: bool) -> None:
        authority = certificates.Authority()
        pair = authority.issue_file("server", directory)
        listening = serving.bind("127.0.0.1", 0)
        self.port = listening.getsockname()[1]
        self.lost = 0
        self._client = ssl.create_default_context(cadata=authority.pem) if tls else None
        server = serving.tls_context(pair, pair) if tls else None
        self.listener = serving.Listener(self._app, listening, tls=server)

    async def _app(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        taken = scope["extensions"][asgi.HIJACK]()
        if scope["path"] != names.CHANNEL_PATH:
            taken.transport.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
            taken.transport.close()
            return
        taken.transport.write(asgi.switching(names.CHANNEL_PROTOCOL) + b"early")
        taken.hand_over(Echo(self))

    def connect(self, port: int | None = None) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", port or self.port), timeout=5)
        if self._client is None:
            return plain
        return self._client.wrap_socket(plain, server_hostname="127.0.0.1")

    def link(self, port: int | None = None) -> socket.socket:
        made = http_upgrade.switch(self.connect(port), names.CHANNEL_PATH, HEADERS)
        made.settimeout(30)
        assert exactly(made, 5) == b"early"
        return made


@pytest.fixture(params=["tls", "plain"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path, tls=request.param == "tls")
    await made.listener.start()
    yield made
    await made.listener.stop(timeout_s=1)


def exactly(end: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        data = end.recv(1 << 20)
        if not data:
            raise EOFError(bytes(found))
        found += data
    return bytes(found)


async def test_bytes_pass_both_ways(world: World) -> None:
    def story() -> None:
        with world.link() as link:
            for word in (b"a", b"bc", b"x" * 300_000):
                link.sendall(word)
                assert exactly(link, len(word)) == word

    await in_thread(story)


async def test_large_transfers_pass_both_ways_with_backpressure(world: World) -> None:
    many = os.urandom(20_000_000).replace(b"end", b"END")

    def story() -> None:
        with world.link() as link:
            sending = threading.Thread(target=link.sendall, args=(many,))
            sending.start()
            assert exactly(link, len(many)) == many
            sending.join()

    await in_thread(story)


async def test_server_can_close_the_tunnel(world: World) -> None:
    def story() -> bytes:
        with world.link() as link:
            link.sendall(b"the end")
            return exactly(link, 7) + link.recv(1)

    assert await in_thread(story) == b"the end"


async def test_closing_the_tunnel_ends_its_threads(world: World) -> None:
    def story() -> None:
        for _ in range(5):
            link = world.link()
            link.sendall(b"x")
            link.close()

    await in_thread(story)
    async with asyncio.timeout(30):
        while any(thread.name == "kiln tunnel" for thread in threading.enumerate()):
            await asyncio.sleep(0.01)


async def test_cut_network_closes_the_tunnel(world: World) -> None:
    async with tcp_proxy.TcpProxy(world.port) as wire:
        link = await in_thread(lambda: world.link(wire.port))
        wire.cut()

        def story() -> bytes:
            try:
                return link.recv(1)
            except ConnectionError:
                return b""

        assert await in_thread(story) == b""
        link.close()


async def test_unexpected_response_is_reported(world: World) -> None:
    with pytest.raises(http_upgrade.NotSwitched) as caught:
        await in_thread(lambda: http_upgrade.switch(world.connect(), "/other", HEADERS))
    response = caught.value.response
    assert (response.status, response.body) == (403, b"no")
    assert isinstance(caught.value, errors.ChannelError)


@pytest.mark.parametrize("world", ["tls"], indirect=True)
async def test_forked_child_does_not_keep_the_tunnel_open(world: World) -> None:
    def story() -> int:
        link = world.link()
        child = os.fork()
        if child == 0:
            signal.pause()
        link.close()
        return child

    child = await in_thread(story)
    try:
        async with asyncio.timeout(30):
            while not world.lost:
                await asyncio.sleep(0.01)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


async def test_frames_of_a_driver_pass(tmp_path: Path) -> None:
    """The hub is the same for every kind of link."""
    async with remote_manager.running(tmp_path) as far:
        worker = raw_worker.RawWorker(far.socket, slots=1)
        worker.credential = remote_manager.SECRET
        context = ssl.create_default_context(cafile=str(far.ca))

        def link() -> socket.socket:
            plain = socket.create_connection(("127.0.0.1", far.port), timeout=5)
            secure = context.wrap_socket(plain, server_hostname=names.SERVER_NAME)
            return http_upgrade.switch(secure, names.CHANNEL_PATH, HEADERS)

        made = await in_thread(link)
        driver = raw_peers.RawDriver(far.socket, credential=remote_manager.SECRET)
        driver._reader, driver._writer = await asyncio.open_unix_connection(sock=made)
        async with worker:
            driver.say(driver.hello())
            await driver.expect(messages.Attached)
            driver.template()
            driver.submit(driver.item(b"[[1,2],{}]"))
            await driver.wait_until_accepted(1)
        await driver.disconnect()
