"""Executor http against nginx, and against servers that close one direction of a connection."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from support import certificates, http_executors, http_test_server, nginx, short_paths, waiting

SERVER = """
  location / { return 200 '{"by": "nginx"}'; }
  location /there { return 307 /; }
  location /behind { proxy_pass http://127.0.0.1:%d; proxy_read_timeout 1s; }
  location /upload { client_max_body_size 1k; proxy_pass http://127.0.0.1:%d; }
"""


@pytest.fixture
async def site() -> AsyncIterator[http_test_server.HttpServer]:
    async with http_test_server.running() as made:
        yield made


@pytest.fixture
async def world() -> AsyncIterator[http_executors.World]:
    async with http_executors.running(short_paths.directory(), lease_s=20.0, renew_s=1.0) as made:
        yield made


@pytest.mark.skipif(
    nginx.PROGRAM is None, reason="nginx is missing: make kube, or apt install nginx"
)
async def test_requests_go_through_nginx(
    world: http_executors.World, site: http_test_server.HttpServer
) -> None:
    authority, directory = certificates.Authority(), short_paths.directory()
    certificate = authority.issue_file("nginx", directory)
    site.routes["/behind"] = http_test_server.gated
    tls = {"tls": {"caBundle": authority.pem}}
    async with nginx.running(directory, certificate, SERVER % (site.port, site.port)) as base:
        await world.executor(slots=4)

        # nginx closes each connection after three requests: a stale one is no failure
        tasks = [await world.submit(base, **tls) for _ in range(20)]
        views = [await world.ends(task) for task in tasks]
        assert {view.state for view in views} == {"Success"}, views
        assert world.result(views[0]) == {"by": "nginx"}

        view = await world.runs(f"{base}/there", redirects={"follow": 1}, **tls)
        assert (view.state, world.result(view)) == ("Success", {"by": "nginx"})

        view = await world.runs(f"{base}/behind", **tls)
        assert (view.state, view.reason) == ("Failed", "ResponseRejected")
        assert view.message.startswith("status 504")

        large = {"method": "POST", "postData": {"text": "x" * 100_000, "mimeType": "text/plain"}}
        view = await world.runs(f"{base}/upload", request=large, **tls)
        assert view.message.startswith("status 413"), view.message
        assert site.got("/upload") == []

        task = await world.submit(f"{base}/behind", **tls)
        await waiting.wait_until_async(lambda: len(site.got("/behind")) == 2, what="it is sent")
        await world.kill(task)
        view = await world.ends(task)
        assert (view.state, view.stopped) == ("Killed", True)
        closed = site.got("/behind")[1].closed
        await waiting.wait_until_async(closed.is_set, what="nginx has passed it on")


@pytest.mark.parametrize(
    ("raw", "state", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{", "Failed", "RequestFailed"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}", "Success", "Succeeded"),
        (b"HTTP/1.1 200 OK\r\nContent-", "Failed", "RequestFailed"),
        (b"", "Failed", "RequestFailed"),
    ],
)
async def test_half_closed_connection_ends_the_response(
    world: http_executors.World,
    site: http_test_server.HttpServer,
    raw: bytes,
    state: str,
    reason: str,
) -> None:
    async def close_half(
        site: http_test_server.HttpServer,
        request: http_test_server.Request,
        writer: asyncio.StreamWriter,
    ) -> None:
        writer.write(raw)
        writer.write_eof()  # and go on to read, until the client has closed too
        await request.closed.wait()

    site.routes["/half"] = close_half
    await world.executor()
    view = await world.runs(f"{site.base}/half", request={"method": "POST"})
    assert (view.state, view.reason) == (state, reason), view.message
    await waiting.wait_until_async(lambda: site.open == 0, what="the connection is gone")
    assert len(site.got("/half")) == 1
