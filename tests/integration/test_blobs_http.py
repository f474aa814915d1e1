"""Blobs over HTTP: access rights, storage, and a cache in front that verifies what it returns."""

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent import futures
from pathlib import Path
from typing import TypeVar

import pytest

from kilnwork.api import attempts, manager_access
from kilnwork.channel import errors as channel_errors
from kilnwork.data import cached_blobs, disk_checks, errors, local_blobs, remote_blobs
from kilnwork.kit import asgi, http1_client, serving
from kilnwork.kit import errors as kit_errors
from kilnwork.server import blobs as blob_server
from kilnwork.server import errors as server_errors
from kilnwork.server import problems
from support import file_descriptors, tcp_proxy

LARGE = 3 << 20
R = TypeVar("R")


class Verifier:
    """Tokens: `w` of cluster ns/c; `d` of a driver in ns; `f` has other rights."""

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        if credential == "later":
            raise kit_errors.KilnError("the caches are not full yet")
        return (namespace, cluster, credential) == ("ns", "c", "w")

    async def verify_driver(self, namespace: str, credential: str) -> bool:
        if credential == "f":
            raise channel_errors.LinkRefused("Forbidden", "you may not create tasks", retry=False)
        return namespace == "ns" and credential == "d"

    async def verify_executor(self, executor: str, namespace: str, credential: str) -> bool:
        return (executor, namespace, credential) == ("http", "", "e")

    async def verify_attempt(
        self, ref: attempts.AttemptRef, namespace: str, pod: str, credential: str
    ) -> bool:
        return (namespace, pod, credential) == ("ns", "p", "a") and ref.attempt == 1


class Caller:
    """A driver that shows its `tokens` one after the other, as the manager refuses them."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens) or ["d"]
        self.port = 0

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))

    def headers(self) -> Mapping[str, str]:
        return {"Host": "x", manager_access.TOKEN_HEADER: self._tokens[0]}

    def refused(self) -> None:
        if len(self._tokens) > 1:
            del self._tokens[0]


class World:
    """The server, the requests that it got, and caches in front of it."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.directory = directory
        self.asked: list[str] = []
        self.served = 0
        self.instead: list[int] = []
        """Statuses of the next responses."""
        listening = serving.bind("127.0.0.1", 0)
        self.port = listening.getsockname()[1]
        self._app = blob_server.BlobsApp(self.root, Verifier())
        self.listener = serving.Listener(self._respond, listening)
        self.kept = local_blobs.Blobs(self.root / "ns", durable=True)

    async def _respond(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        self.asked.append(scope["method"])
        if self.instead:
            error = server_errors.HttpError("a test says so")
            error.status = self.instead.pop(0)
            await problems.send(problems.response(send), error)
            return
        await self._app(scope, receive, send)
        self.served += 1

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))

    def cache(
        self,
        name: str = "cache",
        *,
        caller: Caller | None = None,
        port: int | None = None,
        most_bytes: int = cached_blobs.CACHE_BYTES,
    ) -> cached_blobs.CachedBlobs:
        caller = caller or Caller()
        caller.port = port or self.port
        store = remote_blobs.RemoteBlobs(caller, path="/blobs/ns", patience_s=3.0)
        return cached_blobs.CachedBlobs(self.directory / name / "ns", store, most_bytes=most_bytes)

    def ask(
        self, method: str, path: str, body: bytes | None = None, /, **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = http1_client.Connection(self.connect())
        reported = {
            "Host": "x",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        length = None if body is None else len(body)
        connection.send(method, path, reported, body=(body or b"",), length=length)
        response = connection.read_head(to=method)
        found = response.status, connection.read(most=1 << 30), response.headers
        connection.close()
        return found


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.listener.start()
    yield made
    await made.listener.stop(timeout_s=1.0)


_clients = futures.ThreadPoolExecutor(16, "client")
"""Not the threads of the server."""


async def in_thread(story: Callable[[], R]) -> R:
    """Run a blocking client in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_clients, story)


def name_of(content: bytes) -> str:
    return local_blobs.text(hashlib.sha256(content).digest())


# the server


@pytest.mark.parametrize("size", [0, 1, 70_000, LARGE])
async def test_blob_is_stored_and_returned(world: World, size: int) -> None:
    content = os.urandom(size)
    path = f"/blobs/ns/{name_of(content)}"
    status, _, _ = await in_thread(
        lambda: world.ask("PUT", path, content, authorization="Bearer d")
    )
    assert status == 201
    assert world.kept.get(local_blobs.parse(name_of(content))) == content
    got = await in_thread(lambda: world.ask("GET", path, x_kiln_token="d"))
    assert got[:2] == (200, content)
    headers = (await in_thread(lambda: world.ask("HEAD", path, x_kiln_token="d")))[2]
    assert headers["content-length"] == str(size)
    assert (await in_thread(lambda: world.ask("POST", path, b"", x_kiln_token="d")))[0] == 204


ATTEMPT = "019aa0b2-0000-7000-8000-000000000000/1/"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x_kiln_token": "a", "x_kiln_attempt": f"p {ATTEMPT}1"}, 404),
        ({"x_kiln_token": "a", "x_kiln_attempt": f"p {ATTEMPT}2"}, 401),
        ({"x_kiln_token": "a", "x_kiln_attempt": f"q {ATTEMPT}1"}, 401),
        ({"x_kiln_token": "d", "x_kiln_attempt": f"p {ATTEMPT}1"}, 401),
        ({"x_kiln_token": "a", "x_kiln_attempt": "p"}, 400),
        ({"x_kiln_token": "a", "x_kiln_attempt": f"p {ATTEMPT}-1"}, 401),
        ({}, 401),
        ({"x_kiln_token": "wrong"}, 401),
        ({"authorization": "Basic d"}, 401),
        ({"x_kiln_token": "f"}, 403),
        ({"x_kiln_token": "w"}, 401),
        ({"x_kiln_token": "w", "x_kiln_cluster": "ns/c"}, 404),
        ({"x_kiln_token": "w", "x_kiln_cluster": "ns/other"}, 401),
        ({"x_kiln_token": "w", "x_kiln_cluster": "other/c"}, 401),
        ({"x_kiln_token": "d", "x_kiln_cluster": "ns/c"}, 401),
        ({"x_kiln_token": "later", "x_kiln_cluster": "ns/c"}, 503),
        ({"x_kiln_token": "d"}, 404),
    ],
)
async def test_access_depends_on_token_and_namespace(
    world: World, headers: dict[str, str], status: int
) -> None:
    path = f"/blobs/ns/{name_of(b'nothing')}"
    assert (await in_thread(lambda: world.ask("GET", path, **headers)))[0] == status


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD", "POST"])
async def test_blob_of_another_namespace_is_not_found(world: World, method: str) -> None:
    path = f"/blobs/other/{name_of(b'x')}"
    body = b"x" if method == "PUT" else None
    assert (await in_thread(lambda: world.ask(method, path, body, x_kiln_token="d")))[0] == 401
    assert not (world.root / "other").exists()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/blobs/ns/md5:00", 400),
        ("GET", "/blobs/ns/sha256:zz", 400),
        ("GET", "/blobs/ns/sha256:00/x", 404),
        ("GET", "/blobs/../ns", 404),
        ("GET", "/blobs/%2e%2e/sha256:" + 64 * "0", 404),
        ("DELETE", "/blobs/ns/sha256:" + 64 * "0", 405),
        ("GET", "/blobs/ns", 405),
        ("POST", "/blobs/ns/sha256:" + 64 * "0", 404),
    ],
)
async def test_malformed_blob_names_are_refused(
    world: World, method: str, path: str, status: int
) -> None:
    assert (await in_thread(lambda: world.ask(method, path, x_kiln_token="d")))[0] == status


async def test_content_with_another_digest_is_not_kept(world: World) -> None:
    path = f"/blobs/ns/{name_of(b'this')}"
    status, body, _ = await in_thread(lambda: world.ask("PUT", path, b"that", x_kiln_token="d"))
    assert status == 400
    assert name_of(b"that") in body.decode()
    assert list(world.kept.entries()) == []
    assert [p for p in world.kept.directory.iterdir() if p.is_file()] == []


async def test_put_that_is_cut_off_leaves_no_file(world: World) -> None:
    content = os.urandom(LARGE)

    def story() -> None:
        connection = http1_client.Connection(world.connect())
        head = {"Host": "x", "X-Kiln-Token": "d", "Content-Length": str(LARGE)}
        connection.send("PUT", f"/blobs/ns/{name_of(content)}", head, body=(content[:-1],))
        connection.close()

    await in_thread(story)
    async with asyncio.timeout(30):
        while not world.asked or any(p.is_file() for p in world.kept.directory.glob("*")):
            await asyncio.sleep(0.01)
    assert list(world.kept.entries()) == []


async def test_stalled_reader_is_cut_off(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(asgi, "STALL_S", 0.1)
    size = 64 << 20
    digest = world.kept.put([bytes(size)])[0]
    before = file_descriptors.open_descriptors()
    with world.connect() as connection:
        path = f"/blobs/ns/{local_blobs.text(digest)}"
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nX-Kiln-Token: d\r\n\r\n"
        connection.sendall(head.encode())
        async with asyncio.timeout(30):
            while not world.served:
                await asyncio.sleep(0.01)
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(1 << 20):
                size -= len(piece)
    assert size > 0
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []
    assert file_descriptors.open_descriptors() == before


async def test_many_blobs_are_renewed_at_once(world: World) -> None:
    digests = [world.kept.put([bytes([n])])[0] for n in range(3)]
    for digest in digests:
        os.utime(world.kept.path(digest), (1, 1))
    store = world.cache()._store
    await in_thread(lambda: store.touch_all([*digests[:2], hashlib.sha256(b"none").digest()]))
    times = [world.kept.path(digest).stat().st_mtime for digest in digests]
    assert [then > 1 for then in times] == [True, True, False]


# the cache


@pytest.mark.parametrize("size", [0, 5, LARGE])
async def test_cache_uploads_and_reads_blobs_of_others(world: World, size: int) -> None:
    content = os.urandom(size)
    digest, _ = await in_thread(lambda: world.cache("a").put([content]))
    assert world.kept.get(digest) == content
    other = world.cache("b")
    assert await in_thread(lambda: bytes(other.get(digest))) == content
    asked = len(world.asked)
    assert await in_thread(lambda: bytes(other.get(digest))) == content
    assert len(world.asked) == asked


async def test_blob_written_in_pieces_is_uploaded(world: World) -> None:
    def story() -> bytes:
        with world.cache().writer() as new:
            new.write(b"one")
            new.write(b"two")
            return new.commit()[0]

    assert bytes(world.kept.get(await in_thread(story))) == b"onetwo"


async def test_second_put_uploads_nothing(world: World) -> None:
    cache, content = world.cache(), os.urandom(LARGE)
    for _ in range(3):
        await in_thread(lambda: cache.put([content]))
    assert world.asked == ["POST", "PUT"]
    await in_thread(lambda: world.cache("cache").put([content]))
    assert world.asked == ["POST", "PUT", "POST"]


async def test_concurrent_misses_fetch_once(world: World) -> None:
    digest, _ = world.kept.put([os.urandom(LARGE)])
    caches = [world.cache() for _ in range(8)]
    got = await asyncio.gather(*(in_thread(lambda c=c: c.get(digest).nbytes) for c in caches))  # type: ignore[misc]
    assert got == [LARGE] * 8
    assert world.asked == ["GET"]


async def test_damaged_copy_is_fetched_again(world: World) -> None:
    cache, content = world.cache(), os.urandom(LARGE)
    digest, _ = await in_thread(lambda: cache.put([content]))
    cache.path(digest).write_bytes(b"rubbish")
    assert await in_thread(lambda: bytes(world.cache().get(digest))) == content


async def test_damage_at_the_manager_is_an_error(world: World) -> None:
    digest, _ = world.kept.put([b"good"])
    world.kept.path(digest).write_bytes(b"evil")
    with pytest.raises(errors.BlobDamaged, match="damaged at the manager"):
        await in_thread(lambda: world.cache().get(digest))


async def test_unknown_blob_is_missing(world: World) -> None:
    digest = hashlib.sha256(b"nothing").digest()
    with pytest.raises(errors.BlobMissing, match="the manager has no blob"):
        await in_thread(lambda: world.cache().get(digest))
    assert await in_thread(lambda: world.cache().touch(digest)) is False


async def test_blob_that_the_manager_lost_is_uploaded_again(world: World) -> None:
    await in_thread(lambda: world.cache().put([b"mine"]))
    digest = hashlib.sha256(b"mine").digest()
    world.kept.path(digest).unlink()
    assert await in_thread(lambda: world.cache().touch(digest)) is True
    assert bytes(world.kept.get(digest)) == b"mine"


async def test_full_cache_evicts_the_least_recently_used_blob(world: World) -> None:
    cache = world.cache(most_bytes=4 << 20)
    digests = []
    for age in range(8, 0, -1):
        digest, _ = await in_thread(lambda: cache.put([os.urandom(1 << 20)]))
        os.utime(cache.path(digest), (age * -100 + 1e9, age * -100 + 1e9))
        digests.append(digest)
    there = [cache.path(digest).exists() for digest in digests]
    assert there[-1]
    assert sum(there) <= 5
    assert await in_thread(lambda: cache.get(digests[0]).nbytes) == 1 << 20


async def test_cache_waits_for_a_starting_manager(world: World) -> None:
    world.instead = [503, 502, 429]
    digest, _ = await in_thread(lambda: world.cache().put([b"x"]))
    assert bytes(world.kept.get(digest)) == b"x"


async def test_unreachable_manager_is_named(world: World) -> None:
    await world.listener.stop(timeout_s=1)
    with pytest.raises(errors.BlobsUnreachable, match="is it running"):
        await in_thread(lambda: world.cache().put([b"x"]))


async def test_cut_connections_are_opened_again(world: World) -> None:
    content = os.urandom(LARGE)
    digest, _ = world.kept.put([content])
    async with tcp_proxy.TcpProxy(world.port) as wire:
        reading = asyncio.get_running_loop().run_in_executor(
            _clients, lambda: [_got(world, wire, digest, content) for _ in range(20)]
        )
        for _ in range(20):
            wire.cut()
            await asyncio.wait((reading,), timeout=0.05)
        assert all(await reading)


def _got(world: World, wire: tcp_proxy.TcpProxy, digest: bytes, content: bytes) -> bool:
    cache = world.cache(os.urandom(4).hex(), port=wire.port)
    return cache.get(digest) == content


async def test_expired_token_is_renewed_once(world: World) -> None:
    await in_thread(lambda: world.cache(caller=Caller("old", "d")).put([b"x"]))
    assert world.asked == ["PUT", "PUT"]
    with pytest.raises(errors.BlobsRefused, match="Unauthorized"):
        await in_thread(lambda: world.cache(caller=Caller("old", "older")).put([b"y"]))


async def test_missing_right_is_named(world: World) -> None:
    with pytest.raises(errors.BlobsRefused, match="you may not create tasks"):
        await in_thread(lambda: world.cache(caller=Caller("f")).put([b"x"]))


async def test_full_disk_is_an_error(world: World) -> None:
    world.instead = [507]
    with pytest.raises(errors.BlobNotWritten, match="a test says so"):
        await in_thread(lambda: world.cache().put([b"x"]))


async def test_disk_space_is_reserved_for_the_journal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may submit in one namespace cannot fill the disk for all."""
    free = os.statvfs(world.directory)
    monkeypatch.setattr(disk_checks, "SPARE_BYTES", free.f_blocks * free.f_frsize)
    monkeypatch.setattr(disk_checks, "_SPARE_PART", 1)
    with pytest.raises(errors.BlobNotWritten, match="which the journal needs"):
        await in_thread(lambda: world.cache().put([b"x"]))
    assert not list(world.kept.entries())


async def test_no_file_descriptor_is_left_open(world: World) -> None:
    digest, _ = world.kept.put([os.urandom(LARGE)])
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    def story() -> None:
        for n in range(5):
            cache = world.cache(str(n))
            os.close(cache.open(digest))
            cache._store.close()

    await in_thread(story)
    async with asyncio.timeout(30):
        while len(os.listdir("/proc/self/fd")) > before + 6:  # noqa: PTH208  mappings hold one each
            await asyncio.sleep(0.01)
