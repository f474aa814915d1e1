"""The kubelet's paths over real TLS: who may ask, and the responses."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from kilnwork.controlplane.apiserver import pki
from kilnwork.controlplane.node import access, kubelet_api, log_writer
from kilnwork.kit import asgi, clock
from kilnwork.kube import reviews


class DenyingReviewer:
    """A reviewer that knows no token and no right."""

    async def user(self, token: str) -> reviews.User | None:
        return None

    async def allows(self, user: reviews.User, verb: str, subresource: str) -> bool:
        return False


class World:
    """One container with a log, its node's server, and the certificates of one CA."""

    def __init__(self, directory: Path) -> None:
        self.certificates = pki.Pki(directory / "pki", clock=clock.SystemClock())
        self.certificates.prepare()
        self.path = directory / "0.log"
        self.log = log_writer.LogWriter(self.path, now=clock.ManualClock())
        self.runs = True
        pair = self.certificates.node("n1")
        mine = kubelet_api.Certificates(
            pair.certificate, pair.key, self.certificates.ca_certificate
        )
        app = kubelet_api.KubeletApp(
            self.find, allowed=access.NodeAccess(DenyingReviewer()), now=clock.SystemClock()
        )
        self.server = kubelet_api.KubeletServer(app, address="127.0.0.1", certificates=mine)

    def find(
        self,
        namespace: str,
        pod: str,
        name: str,
        previous: bool,  # noqa: FBT001
    ) -> kubelet_api.ContainerLog | asgi.Refusal:
        if (namespace, pod, name) != ("ns", "p", "main"):
            return asgi.Refusal(404, f'pod "{pod}" is not here')
        if previous:
            return asgi.Refusal(400, "previous terminated container not found")
        return kubelet_api.ContainerLog(self.path, lambda: self.runs)

    def session(self, *, certificate: bool = True) -> aiohttp.ClientSession:
        context = ssl.create_default_context(cafile=str(self.certificates.ca_certificate))
        if certificate:
            pair = self.certificates.kubelet_client
            context.load_cert_chain(pair.certificate, pair.key)
        return aiohttp.ClientSession(
            f"https://127.0.0.1:{self.server.port}", connector=aiohttp.TCPConnector(ssl=context)
        )

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session() as session, session.get(path) as response:
            return response.status, await response.text()


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    await made.server.start()
    yield made
    await made.server.stop()


async def test_log_of_a_container_is_served(world: World) -> None:
    world.log.write("stdout", b"one\ntwo\n")
    assert await world.get("/containerLogs/ns/p/main") == (200, "one\ntwo\n")
    assert await world.get("/containerLogs/ns/p/main?tailLines=1") == (200, "two\n")


async def test_healthz_returns_ok(world: World) -> None:
    assert await world.get("/healthz") == (200, "ok")


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/containerLogs/ns/other/main", 404, 'pod "other" is not here'),
        ("/containerLogs/ns/p/main?previous=true", 400, "previous terminated container not found"),
        ("/containerLogs/ns/p/main?tailLines=x", 400, 'tailLines: "x" is not a number'),
        ("/containerLogs/ns/p/main?tailLines=-1", 400, "tailLines: must be greater than or equal"),
        ("/containerLogs/ns/p/main?sinceTime=x", 400, "sinceTime: "),
        ("/containerLogs/ns/p/main?sinceTime=2026-01-02T03:04:05", 400, "sinceTime: "),
        ("/containerLogs/ns%2Fp/p/main", 404, "is not here"),
        ("/exec/ns/p/main", 404, "404 page not found"),
    ],
)
async def test_invalid_requests_are_refused(
    world: World, path: str, status: int, text: str
) -> None:
    got = await world.get(path)
    assert got[0] == status
    assert text in got[1]


async def test_client_without_credential_is_refused(world: World) -> None:
    async with world.session(certificate=False) as session, session.get("/healthz") as response:
        assert (response.status, await response.text()) == (401, "Unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["content-type"] == "text/plain"


async def test_certificate_of_another_ca_is_refused(world: World, tmp_path: Path) -> None:
    other = pki.Pki(tmp_path / "other", clock=clock.SystemClock())
    other.prepare()
    context = ssl.create_default_context(cafile=str(world.certificates.ca_certificate))
    context.load_cert_chain(other.kubelet_client.certificate, other.kubelet_client.key)
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector) as session:
        with pytest.raises((aiohttp.ClientError, OSError)):
            await session.get(f"https://127.0.0.1:{world.server.port}/healthz")


async def test_log_following_ends_with_the_container(world: World) -> None:
    world.log.write("stdout", b"one\n")
    async with world.session() as session:
        response = await session.get("/containerLogs/ns/p/main?follow=true")
        assert await response.content.readline() == b"one\n"
        world.log.write("stdout", b"two\n")
        assert await response.content.readline() == b"two\n"
        world.log.write("stdout", b"three\n")
        world.runs = False
        assert await response.content.read() == b"three\n"


async def test_disconnected_follower_is_released(world: World) -> None:
    world.log.write("stdout", b"one\n")
    async with world.session() as session:
        response = await session.get("/containerLogs/ns/p/main?follow=true")
        assert await response.content.readline() == b"one\n"
        response.close()
    await asyncio.wait_for(wait_until_idle(), 30)


async def wait_until_idle() -> None:
    """Wait until no request is being served."""
    while any("kubelet log request" in task.get_name() for task in asyncio.all_tasks()):
        await asyncio.sleep(0.02)


async def test_stop_ends_log_followers(world: World) -> None:
    world.log.write("stdout", b"one\n")
    async with world.session() as session:
        response = await session.get("/containerLogs/ns/p/main?follow=true")
        assert await response.content.readline() == b"one\n"
        await asyncio.wait_for(world.server.stop(), 30)


@pytest.mark.parametrize(
    ("text", "true"), [(None, False), ("0", False), ("False", False), ("", True), ("1", True)]
)
def test_boolean_options_are_parsed_as_in_kubernetes(text: str | None, true: bool) -> None:  # noqa: FBT001
    assert kubelet_api.parse_flag(text) is true


def test_since_seconds_counts_from_now() -> None:
    options = kubelet_api.read_options({"sinceSeconds": "10"}, now=1_700_000_000.0)
    assert options.since == "2023-11-14T22:13:10.000000Z"


@pytest.mark.parametrize("seconds", ["99999999999", "9" * 18, "9" * 400])
def test_huge_since_seconds_means_from_the_beginning(seconds: str) -> None:
    options = kubelet_api.read_options({"sinceSeconds": seconds}, now=1_700_000_000.0)
    assert options.since == "1970-01-01T00:00:00.000000Z"
