"""The small HTTP server on a Unix socket, spoken to byte by byte."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kilnwork.worker import unix_http_server
from support import short_paths


@dataclass
class Site:
    """Echoes method, target and the length of the body; `/slow` never responds, `/wait` when it
    may.
    """

    path: Path
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    may_respond: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: list[str] = field(default_factory=list)

    async def handle(self, request: unix_http_server.HttpRequest) -> unix_http_server.HttpResponse:
        self.asked.set()
        if request.target == "/slow":
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled.append(request.target)
        if request.target == "/wait":
            await self.may_respond.wait()
        if request.target == "/bug":
            raise RuntimeError("a bug")
        text = f"{request.method} {request.target} {len(request.body)}"
        return unix_http_server.HttpResponse(status=200, body=text.encode())

    async def send(self, data: bytes, *, until: bytes = b"") -> bytes:
        """All that comes back until the server closes, or until `until` was seen."""
        reader, writer = await asyncio.open_unix_connection(str(self.path))
        writer.write(data)
        found = b""
        async with asyncio.timeout(30):
            while not until or until not in found:
                piece = await reader.read(65536)
                if not piece:
                    break
                found += piece
        await hang_up(writer)
        return found


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    directory = short_paths.directory()
    listener = socket.socket(socket.AF_UNIX)
    listener.setblocking(False)
    listener.bind(str(directory / "s"))
    listener.listen()
    made = Site(directory / "s")
    server = unix_http_server.UnixHttpServer(made.handle)
    await server.start(listener)
    yield made
    await server.close()
    listener.close()
    (directory / "s").unlink(missing_ok=True)
    directory.rmdir()


GET = b"GET /a HTTP/1.1\r\nHost: t\r\n\r\n"
LAST = b"GET /b HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"


async def test_connection_is_kept_alive_for_several_requests(site: Site) -> None:
    found = await site.send(GET + LAST)
    assert found.index(b"GET /a 0") < found.index(b"GET /b 0")
    assert found.count(b"HTTP/1.1 200 OK") == 2
    assert found.count(b"Connection: close") == 1


async def test_chunked_body_and_http_1_0_client(site: Site) -> None:
    chunked = b"POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    assert b"POST /c 3" in await site.send(chunked, until=b"POST /c 3")
    assert (await site.send(b"GET /old HTTP/1.0\r\n\r\n")).endswith(b"GET /old 0")


async def test_client_that_expects_100_may_continue(site: Site) -> None:
    head = b"POST /d HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    assert await site.send(head, until=b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"


EXPECTING = b"POST /d HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
WAIT = b"GET /wait HTTP/1.1\r\nHost: t\r\n\r\n"


async def test_pipelined_client_that_expects_100_may_continue_in_turn(site: Site) -> None:
    reader, writer = await asyncio.open_unix_connection(str(site.path))
    writer.write(WAIT + EXPECTING)
    await site.asked.wait()
    site.may_respond.set()
    async with asyncio.timeout(30):
        found = await reader.readuntil(b"100 Continue\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 200 OK")
        writer.write(b"abc")
        assert b"200 OK" in await reader.readuntil(b"POST /d 3")
    await hang_up(writer)


async def test_client_that_did_not_wait_for_100_gets_none(site: Site) -> None:
    sending = asyncio.ensure_future(site.send(WAIT + EXPECTING + b"abc" + LAST))
    await site.asked.wait()
    site.may_respond.set()
    found = await sending
    assert found.count(b"HTTP/1.1 200 OK") == 3
    assert b"100 Continue" not in found


@pytest.mark.parametrize(
    "head",
    [
        EXPECTING.replace(b"HTTP/1.1", b"HTTP/1.0"),
        EXPECTING.replace(b"100-continue", b"another"),
    ],
)
async def test_only_the_expectation_of_100_is_met(site: Site, head: bytes) -> None:
    found = await site.send(head + b"abc", until=b"POST /d 3")
    assert found.startswith(b"HTTP/1.1 200 OK")


async def test_too_large_body_is_refused_before_it_is_sent(site: Site) -> None:
    head = EXPECTING.replace(b"Length: 3", b"Length: 262145")
    assert (await site.send(head)).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /a HTTP/1.1\r\nHost: t\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", b"400"),
        (b"POST /a HTTP/1.1\r\nContent-Length: 262145\r\n\r\n", b"413"),
        (b"GET /a HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", b"431"),
        (GET * 100, b"503"),
        (b"GET /bug HTTP/1.1\r\nConnection: close\r\n\r\n", b"500"),
    ],
)
async def test_malformed_requests_are_refused(site: Site, data: bytes, status: bytes) -> None:
    assert b"HTTP/1.1 " + status in await site.send(data)
    assert b"GET /b 0" in await site.send(LAST)


async def test_refused_client_may_finish_sending_and_reads_the_error(site: Site) -> None:
    reader, writer = await asyncio.open_unix_connection(str(site.path))
    writer.write(b"POST /big HTTP/1.1\r\nContent-Length: 900000\r\n\r\n")
    assert b" 413 " in await reader.read()  # to the end: nothing follows
    for _ in range(9):
        writer.write(bytes(100_000))
        await writer.drain()  # raises when the other side has closed
    await hang_up(writer)


async def _go_on(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(bytes(1000))
        await writer.drain()
        await asyncio.sleep(0.01)


async def test_refused_client_that_never_stops_is_disconnected(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unix_http_server, "LINGER_S", 0.05)
    _, writer = await asyncio.open_unix_connection(str(site.path))
    writer.write(b"nonsense\r\n\r\n")
    async with asyncio.timeout(30):
        with pytest.raises(ConnectionError):
            await _go_on(writer)


async def test_request_of_a_client_that_leaves_is_cancelled(site: Site) -> None:
    _, writer = await asyncio.open_unix_connection(str(site.path))
    writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
    await site.asked.wait()
    await hang_up(writer)
    async with asyncio.timeout(30):
        while not site.cancelled:
            await asyncio.sleep(0.01)
    assert site.cancelled == ["/slow"]


async def test_connections_beyond_the_limit_are_refused(site: Site) -> None:
    idle = [
        await asyncio.open_unix_connection(str(site.path))
        for _ in range(unix_http_server.MAX_CONNECTIONS)
    ]
    with contextlib.suppress(ConnectionError):
        assert await site.send(LAST) == b""
    for _, writer in idle:
        await hang_up(writer)
    async with asyncio.timeout(30):
        while b"GET /b 0" not in await site.send(LAST):
            await asyncio.sleep(0.01)
