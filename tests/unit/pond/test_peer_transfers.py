"""Peers: blobs only for clients with the pond's certificate."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.controllers.data_pond import tls_certificate
from kilnwork.data import errors
from kilnwork.data.pond import manifest
from kilnwork.kit import clock
from kilnwork.pond import peer_transfers
from support import ponds

FILES = {"a": bytes(range(256)) * 8000, "empty": b""}


def certificates(directory: Path) -> Path:
    directory.mkdir()
    pair = tls_certificate.create(now=clock.SystemClock().wall())
    (directory / "tls.crt").write_bytes(pair.certificate)
    (directory / "tls.key").write_bytes(pair.key)
    return directory


def made(pair: Path) -> peer_transfers.Peers:
    return peer_transfers.Peers(pair, time=clock.SystemClock())


class World:
    """A served pond and a client that fetches from it."""

    def __init__(self, directory: Path) -> None:
        self.kept = ponds.opened(directory / "pond")
        self.manifest: manifest.Manifest = ponds.pin(
            self.kept, ponds.CountingSource(FILES)
        ).manifest
        self.pair = certificates(directory / "pair")
        self.served = 0
        self.server = peer_transfers.PeerServer(
            self.kept, self.pair, served=self._count, damaged=lambda: None
        )
        self.address = ""

    def _count(self, count: int) -> None:
        self.served += count

    def digest(self, path: str) -> str:
        return next(file.digest for file in self.manifest.files if file.path == path)

    async def read(
        self, path: str, *, offset: int = 0, of: peer_transfers.Peers | None = None
    ) -> bytes:
        found = (of or made(self.pair)).origin("n", self.address, self.digest(path))

        def read() -> bytes:
            with found.open(offset, "") as content:
                assert content.start == offset
                return b"".join(content.pieces())

        return await asyncio.to_thread(read)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    made.address = await made.server.start("127.0.0.1")
    yield made
    await made.server.stop()
    made.kept.close()


@pytest.mark.parametrize("offset", [0, 1, 1_000_000, len(FILES["a"]) - 1])
async def test_a_blob_is_read_from_any_place(world: World, offset: int) -> None:
    assert await world.read("a", offset=offset) == FILES["a"][offset:]
    assert world.served == len(FILES["a"]) - offset


async def test_empty_blob_is_served(world: World) -> None:
    assert await world.read("empty") == b""


async def test_a_manifest_is_read(world: World) -> None:
    found = made(world.pair).manifest

    encoded = await asyncio.to_thread(found, world.address, world.manifest.digest)

    assert encoded == world.manifest.encoded


async def test_removed_blob_raises_source_missing(world: World) -> None:
    world.kept.blobs.remove(bytes.fromhex(world.digest("a")[7:]))

    with pytest.raises(errors.SourceMissing, match="any more"):
        await world.read("a")


@pytest.mark.parametrize(
    "path", ["blobs/../owner.lock", "blobs/zz", "leases/a", "blobs/" + "0" * 62]
)
async def test_nothing_else_is_served(world: World, path: str) -> None:
    found = made(world.pair).origin("n", world.address, path.removeprefix("blobs/"))

    def read() -> None:
        found.open(0, "").close()

    with pytest.raises(errors.SourceMissing):
        await asyncio.to_thread(read)


async def test_another_pond_gets_nothing(world: World, tmp_path: Path) -> None:
    other = made(certificates(tmp_path / "other"))

    with pytest.raises((errors.SourceRefused, errors.SourceUnreachable)):
        await world.read("a", of=other)
    assert world.served == 0


async def test_client_without_a_certificate_gets_no_response(world: World) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, _, port = world.address.rpartition(":")

    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    writer.write(b"GET /blobs/%s HTTP/1.1\r\n\r\n" % world.digest("a")[7:].encode())
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        assert await reader.read(100) == b""
    writer.close()

    assert world.served == 0


async def test_someone_who_claims_to_be_a_peer_is_not_believed(
    world: World, tmp_path: Path
) -> None:
    """Its certificate is another pond's."""
    served = ponds.opened(tmp_path / "impostor")
    impostor = peer_transfers.PeerServer(
        served, certificates(tmp_path / "theirs"), served=lambda _: None, damaged=lambda: None
    )
    world.address = await impostor.start("127.0.0.1")

    with pytest.raises(errors.SourceRefused, match="not trusted"):
        await world.read("a")
    await impostor.stop()
    served.close()


def test_a_peer_that_does_not_respond_is_doubted_for_a_while(tmp_path: Path) -> None:
    time = clock.ManualClock()
    asked = peer_transfers.Peers(certificates(tmp_path / "own"), time=time)
    with socket.socket() as silent:  # has the port, and does not listen
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert not asked.is_doubted(address)
        with pytest.raises(errors.SourceUnreachable):
            asked.manifest(address, f"sha256:{'0' * 64}")
    assert asked.is_doubted(address)

    time.advance(peer_transfers.DOUBT_S)
    assert not asked.is_doubted(address)
