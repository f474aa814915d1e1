"""Downloads by slow clients: little memory for each, and a limit on their number."""

import asyncio
import contextlib
import socket
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.server.jobs import file_bodies, settings
from support import jobs_http, waiting

LINES = b'{"id":"1"}\n{"id":"2"}\n'
READERS = 40
RESULT = b"x" * (32 << 20)
"""More than the buffers of both sockets take."""


async def _slow(world: jobs_http.World, path: str) -> socket.socket:
    """Return a client that has sent a request and reads nothing; its own buffer is small."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", world.port))
    await loop.sock_sendall(client, jobs_http.head("GET", path))
    return client


@contextlib.asynccontextmanager
async def _readers(world: jobs_http.World, path: str, many: int) -> AsyncIterator[None]:
    clients: list[socket.socket] = []
    try:
        while len(clients) < many:
            clients.append(await _slow(world, path))
        yield
    finally:
        for client in clients:
            client.close()


async def _result(world: jobs_http.World) -> str:
    job = str((await world.ask("POST", "/jobs", LINES)).json["id"])
    world.jobs.publish(job, RESULT)
    return f"/jobs/{job}/results"


async def test_slow_readers_hold_little_memory(tmp_path: Path) -> None:
    chosen = settings.JobsApiSettings(downloads=1000)
    async with jobs_http.World(tmp_path, chosen).running() as world:
        path = await _result(world)
        assert (await world.ask("GET", path)).body == RESULT
        tracemalloc.start()
        try:
            async with _readers(world, path, READERS):
                held = [-1]

                async def settled() -> bool:
                    """Wait until no reader takes any more."""
                    await asyncio.sleep(0.2)
                    held.append(tracemalloc.get_traced_memory()[0])
                    return len(held) > 4 and held[-1] == pytest.approx(held[-4], rel=0.02)

                await waiting.wait_until_async(settled, what="all are served as far as they go")
                assert held[-1] > READERS * file_bodies.PIECE_BYTES // 2, "a reader reads after all"
                assert held[-1] < READERS * 2 * file_bodies.PIECE_BYTES + (8 << 20)
                assert (await world.ask("GET", "/jobs?limit=1")).status == 200
        finally:
            tracemalloc.stop()


async def test_concurrent_downloads_are_limited(tmp_path: Path) -> None:
    chosen = settings.JobsApiSettings(downloads=4)
    async with jobs_http.World(tmp_path, chosen).running() as world:
        path = await _result(world)
        async with _readers(world, path, 3):  # the share of one user

            async def refused() -> bool:
                response = await world.ask("GET", path, Range="bytes=0-1")
                return response.status == 429 and response.headers["retry-after"] == "1"

            await waiting.wait_until_async(refused, what="three downloads are under way")
            other = await world.ask("GET", path, token="reader", Range="bytes=0-1")
            assert (other.status, other.body) == (206, b"xx")
            head = await world.ask("HEAD", path)
            assert (head.status, head.headers["content-length"]) == (200, str(len(RESULT)))

        async def served() -> bool:
            return (await world.ask("GET", path, Range="bytes=0-1")).status == 206

        await waiting.wait_until_async(served, what="those that have left make room")


async def test_stalled_manifest_reader_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_bodies, "STALL_S", 0.5)
    chosen = settings.JobsApiSettings(downloads=1)
    async with jobs_http.World(tmp_path, chosen).running() as world:
        made = await world.ask("POST", "/jobs?itemsPerPart=1", b"{}\n" * 10_000)
        path = f"/jobs/{made.json['id']}/manifest"

        async def served() -> bool:
            return (await world.ask("GET", path)).status == 200

        async with _readers(world, path, 1):
            await waiting.wait_until_async(served, what="the manifest is served", timeout_s=30)
