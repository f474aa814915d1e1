"""One listener for ASGI apps: who the client is, and connections given away to the app."""

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self, cast

import pytest
import uvloop

from kilnwork.kit import asgi, serving
from support import certificates


class Echo(asyncio.Protocol):
    """The other protocol of these tests: everything comes back in capitals."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data.upper())


async def app(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
    """`/echo` switches when it is asked to, `/refuse` refuses, others respond plainly."""
    hijack = scope.get("extensions", {}).get(asgi.HIJACK)
    if hijack is not None and scope["path"] in ("/echo", "/refuse"):
        taken: asgi.Hijacked = hijack()
        if scope["path"] == "/refuse":
            taken.transport.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
            taken.transport.close()
            return
        await asyncio.sleep(0)
        taken.transport.write(asgi.switching("echo"))
        taken.hand_over(Echo())
        return
    shown = scope["state"]["peer_certificate"]
    name = dict(part[0] for part in shown["subject"])["commonName"] if shown else "anonymous"
    asked = "asked" if hijack is not None else "not asked"
    while (await receive()).get("more_body"):
        pass
    body = f"{scope['path']} {name} {asked}".encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    """Run a coroutine to its end on either event loop."""

    def in_loop(story: Awaitable[None]) -> None:
        async def bounded() -> None:
            await asyncio.wait_for(story, 30)

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(bounded())

    return in_loop


class World:
    """A listener of `served`, plain or with TLS, and connections to it."""

    def __init__(self, directory: Path | None = None, served: asgi.App = app) -> None:
        self._sockets = serving.bind("127.0.0.1", 0)
        self.port: int = self._sockets.getsockname()[1]
        self.client_tls: ssl.SSLContext | None = None
        tls = None
        if directory is not None:
            authority = certificates.Authority()
            ca = directory / "ca.pem"
            ca.write_text(authority.pem)
            server = authority.issue_file("server", directory)
            tls = serving.tls_context(server, server, client_ca=ca)
            self.client_tls = ssl.create_default_context(cafile=str(ca))
            self.client_tls.load_cert_chain(authority.issue_file("me", directory))
        self.listener = serving.Listener(served, self._sockets, tls=tls)

    async def __aenter__(self) -> Self:
        await self.listener.start()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.listener.stop(timeout_s=1.0)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.client_tls)


def asking(path: str, *, more: str = "", version: str = "1.1") -> bytes:
    asked = "Connection: Upgrade\r\nUpgrade: echo\r\n"
    return f"GET {path} HTTP/{version}\r\nHost: x\r\n{asked}{more}\r\n".encode()


async def body_of(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-len"))
    return await reader.readexactly(int(length.split(b":")[1]))


async def ended(reader: asyncio.StreamReader) -> bool:
    """The connection is over, politely or not."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param else None


Run = Callable[[Awaitable[None]], None]


def test_an_app_takes_the_connection_with_what_came_early(run: Run, place: Path | None) -> None:
    async def story() -> None:
        async with World(place) as world:
            reader, writer = await world.connect()
            writer.write(asking("/echo") + b"early, ")
            assert await reader.readuntil(b"\r\n\r\n") == asgi.switching("echo")
            writer.write(b"and late")
            assert await reader.readexactly(15) == b"EARLY, AND LATE"
            writer.close()

    run(story())


def test_a_client_that_left_cannot_be_taken(run: Run, place: Path | None) -> None:
    said: list[BaseException] = []

    async def late(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        with pytest.raises(asgi.Disconnected) as caught:
            scope["extensions"][asgi.HIJACK]()
        said.append(caught.value)

    async def story() -> None:
        async with World(place, late) as world:
            _, writer = await world.connect()
            writer.write(asking("/echo"))
            await writer.drain()
            writer.close()
            while not said:
                await asyncio.sleep(0.01)

    run(story())


def test_hijacked_connection_ends_with_the_listener(run: Run, place: Path | None) -> None:
    async def story() -> None:
        async with World(place) as world:
            reader, writer = await world.connect()
            writer.write(asking("/echo"))
            await reader.readuntil(b"\r\n\r\n")
        assert await ended(reader)
        writer.close()

    run(story())


def test_an_app_may_refuse_with_bytes_of_its_own(run: Run) -> None:
    async def story() -> None:
        async with World() as world:
            reader, writer = await world.connect()
            writer.write(asking("/refuse"))
            assert (await reader.read()).startswith(b"HTTP/1.1 403 Forbidden\r\n")
            writer.close()

    run(story())


def test_an_upgrade_that_no_app_takes_is_a_plain_request(run: Run, place: Path | None) -> None:
    async def story() -> None:
        who = b"me" if place else b"anonymous"
        async with World(place) as world:
            reader, writer = await world.connect()
            writer.write(asking("/a") + b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await body_of(reader) == b"/a " + who + b" asked"
            assert await body_of(reader) == b"/b " + who + b" not asked"
            writer.write(asking("/echo") + b"x")
            assert await reader.readuntil(b"\r\n\r\n") == asgi.switching("echo")
            assert await reader.readexactly(1) == b"X"
            writer.close()

    run(story())


def test_upgrade_waits_for_the_earlier_responses(run: Run) -> None:
    async def story() -> None:
        async with World() as world:
            reader, writer = await world.connect()
            writer.write(b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n" + asking("/echo") + b"e")
            assert await body_of(reader) == b"/first anonymous not asked"
            assert await reader.readuntil(b"\r\n\r\n") == asgi.switching("echo")
            assert await reader.readexactly(1) == b"E"
            writer.close()

    run(story())


@pytest.mark.parametrize(
    "request_bytes",
    [
        asking("/echo", version="1.0"),
        asking("/echo", more="Content-Length: 3\r\n") + b"abc",
        b"GET /echo HTTP/1.1\r\nHost: x\r\nUpgrade: echo\r\n\r\n",
        b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nUpgrade: echo\r\n\r\n",
    ],
    ids=["http 1.0", "with a body", "no connection header", "connection header without upgrade"],
)
def test_request_that_is_no_upgrade_is_handled_as_http(run: Run, request_bytes: bytes) -> None:
    async def story() -> None:
        async with World() as world:
            reader, writer = await world.connect()
            writer.write(request_bytes)
            assert await body_of(reader) == b"/echo anonymous not asked"
            writer.close()

    run(story())


def test_much_that_comes_early_is_kept_whole(run: Run, place: Path | None) -> None:
    async def story() -> None:
        many = b"x" * 3_000_000
        async with World(place) as world:
            reader, writer = await world.connect()
            writer.write(asking("/echo") + many)
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(many)) == many.upper()
            writer.close()

    run(story())


def test_nonsense_is_refused(run: Run) -> None:
    async def story() -> None:
        async with World() as world:
            reader, writer = await world.connect()
            writer.write(b"\x16\x03\x01 hello\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()

    run(story())


@pytest.mark.parametrize("line", [b"X: " + b"a" * 1000 + b"\r\n", b"a" * 1000])
def test_heads_have_a_size(run: Run, place: Path | None, line: bytes) -> None:
    async def story() -> None:
        async with World(place) as world:
            reader, writer = await world.connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nY: ")
            with contextlib.suppress(ConnectionError):
                for _ in range(20 * serving.HEAD_BYTES // len(line)):
                    writer.write(line)
                    await writer.drain()
                pytest.fail("twenty times as much was read")
            with contextlib.suppress(ConnectionError):
                assert (await reader.read()).startswith(b"HTTP/1.1 431 ")
            writer.close()

    run(story())


def test_trailers_of_chunks_have_a_size(run: Run) -> None:
    async def story() -> None:
        async with World() as world:
            reader, writer = await world.connect()
            writer.write(b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
            with contextlib.suppress(ConnectionError):
                for _ in range(20 * serving.HEAD_BYTES // 1000):
                    writer.write(b"X: " + b"a" * 1000 + b"\r\n")
                    await writer.drain()
                pytest.fail("twenty times as much was read")
            assert await ended(reader)
            writer.close()

    run(story())


def test_large_bodies_and_many_requests_are_no_heads(run: Run) -> None:
    async def story() -> None:
        async with World() as world:
            reader, writer = await world.connect()
            size = 3 * serving.HEAD_BYTES
            writer.write(b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
            writer.write(b"b" * size)
            assert await body_of(reader) == b"/a anonymous not asked"
            for _ in range(5):
                writer.write(b"GET /b HTTP/1.1\r\nHost: x\r\nX: %b\r\n\r\n" % (b"y" * 500_000))
                assert await body_of(reader) == b"/b anonymous not asked"
            writer.close()

    run(story())


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:", b"\r\n"])
def test_heads_have_a_time(run: Run, sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one on a connection that is kept, too."""
    monkeypatch.setattr(serving, "HEAD_S", 0.2)

    async def story() -> None:
        async with World() as world:
            reader, writer = await world.connect()
            writer.write(sent)
            assert await ended(reader)
            writer.close()
            if not sent:
                return
            reader, writer = await world.connect()
            writer.write(b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await body_of(reader) == b"/b anonymous not asked"
            writer.write(sent)
            assert await ended(reader)
            writer.close()

    run(story())


async def in_both_ways(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
    """`/whole` responds at once, `/pieces` with the same bit by bit; `?SIZE` of the body."""
    request, response = asgi.Request(scope, receive), asgi.Response(send)
    data = b"x" * int(scope["query_string"])
    if request.path == "/whole":
        await response.send(200, asgi.TEXT, data)
    else:
        await response.start(200, asgi.TEXT, length=len(data))
        await response.write(data, more=False)


@pytest.mark.parametrize("line", ["GET {} HTTP/1.1", "HEAD {} HTTP/1.1", "GET {} HTTP/1.0"])
@pytest.mark.parametrize("size", [0, 10, 1_000_000])
def test_a_whole_response_is_that_of_pieces(
    run: Run, place: Path | None, line: str, size: int
) -> None:
    async def all_of(world: World, path: str) -> bytes:
        reader, writer = await world.connect()
        first, last = line.format(path), f"GET {path} HTTP/1.1"
        writer.write(f"{first}\r\n\r\n{last}\r\nConnection: close\r\n\r\n".encode())
        found = await reader.read()
        writer.close()
        return found

    async def story() -> None:
        async with World(place, in_both_ways) as world:
            whole = await all_of(world, f"/whole?{size}")
            assert whole == await all_of(world, f"/pieces?{size}")
            assert f"content-length: {size}\r\n".encode() in whole
            assert whole.endswith(b"\r\n\r\n" + b"x" * size)

    run(story())


@pytest.mark.parametrize(
    "header", [(b"x", b"a\r\nb: c"), (b"x", b"\n"), (b"x\r", b""), (b"x", b"\0")]
)
def test_a_header_cannot_end_its_line(run: Run, header: tuple[bytes, bytes]) -> None:
    async def hostile(scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        await asgi.Response(send).send(200, asgi.TEXT, b"fine", headers=(header,))

    async def story() -> None:
        async with World(served=hostile) as world:
            reader, writer = await world.connect()
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 500 ")
            writer.close()

    run(story())
