"""Downloads and uploads of the command line over breaking connections, with a scripted server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kilnwork.api import manager_access
from kilnwork.cli import downloads, errors, options, session, uploads, wait_notice
from kilnwork.kube import config
from kilnwork.kube import errors as kube_errors

CONTENT = bytes(range(256)) * 4096
JOB = "2026-11-1"


class Flaky:
    """Server of one result and one upload; `cuts`: bytes after which a connection breaks."""

    def __init__(self) -> None:
        self.cuts: list[int] = []
        self.refusals: list[int] = []
        self.etag = '"one"'
        self.ranges: list[str | None] = []
        self.kept = bytearray()
        self.complete = False

    async def endpoints(self, _: web.Request) -> web.Response:
        return web.json_response({"channel": {"unix": None}})

    async def results(self, request: web.Request) -> web.StreamResponse:
        asked = request.headers.get("Range")
        self.ranges.append(asked)
        start = 0
        if asked is not None and request.headers.get("If-Range") == self.etag:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        response = web.StreamResponse(status=206 if start else 200)
        response.headers["ETag"] = self.etag
        response.content_length = len(CONTENT) - start
        await response.prepare(request)
        await self._send(request, response, CONTENT[start:])
        return response

    async def _send(self, request: web.Request, response: web.StreamResponse, data: bytes) -> None:
        count = self.cuts.pop(0) if self.cuts else len(data)
        await response.write(data[:count])
        if count < len(data):
            await asyncio.sleep(0.05)
            assert request.transport is not None
            request.transport.abort()

    async def made(self, _: web.Request) -> web.Response:
        return web.Response(status=201, headers={"Location": "/files/up-1?namespace=default"})

    async def looked(self, _: web.Request) -> web.Response:
        headers = {
            "Upload-Offset": str(len(self.kept)),
            "Upload-Complete": f"?{int(self.complete)}",
        }
        return web.Response(headers=headers)

    async def appended(self, request: web.Request) -> web.Response:
        if self.refusals:
            await request.read()
            status = self.refusals.pop(0)
            return web.json_response({"status": status, "message": "no room"}, status=status)
        if int(request.headers["Upload-Offset"]) != len(self.kept):
            return web.Response(status=409, headers={"Upload-Offset": str(len(self.kept))})
        count = self.cuts.pop(0) if self.cuts else None
        body = await request.read()
        self.kept += body if count is None else body[:count]
        if count is not None:
            assert request.transport is not None
            request.transport.abort()
        self.complete = count is None and request.headers["Upload-Complete"] == "?1"
        return web.Response(status=204)


@pytest.fixture
async def flaky() -> AsyncIterator[tuple[Flaky, session.Session]]:
    served = Flaky()
    app = web.Application(client_max_size=1 << 30)
    app.router.add_get(manager_access.ENDPOINTS_PATH, served.endpoints)
    app.router.add_get(f"/jobs/{JOB}/results", served.results)
    app.router.add_post("/files", served.made)
    app.router.add_route("HEAD", "/files/up-1", served.looked)
    app.router.add_patch("/files/up-1", served.appended)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    _, port = runner.addresses[0]
    settings = config.Config(server=f"http://127.0.0.1:{port}", token="t")
    async with session.connect(settings, options.ServerTarget(namespace="default")) as opened:
        yield served, opened
    await runner.cleanup()


async def test_download_resumes_where_it_broke_off(
    flaky: tuple[Flaky, session.Session], tmp_path: Path
) -> None:
    served, opened = flaky
    served.cuts = [100_000, 0, 300_000]
    target = tmp_path / "out"
    assert await downloads.fetch(opened, JOB, str(target)) == len(CONTENT)
    assert target.read_bytes() == CONTENT
    assert served.ranges[0] is None
    assert [each is not None for each in served.ranges[1:]] == [True, True, True]
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


async def test_result_that_changed_meanwhile_is_not_resumed(
    flaky: tuple[Flaky, session.Session], tmp_path: Path
) -> None:
    served, opened = flaky
    served.cuts = [100_000]
    changed = asyncio.Event()

    async def change() -> None:
        while not served.ranges:
            await asyncio.sleep(0.001)
        served.etag = '"two"'
        changed.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(change())
        with pytest.raises(errors.CommandError, match="has changed while it was read"):
            await downloads.fetch(opened, JOB, str(tmp_path / "out"))
    assert changed.is_set()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cuts", [[], [0], [7], [uploads.PIECE_BYTES], [1, 2, 3]])
async def test_upload_resumes_at_the_offset_of_the_server(
    flaky: tuple[Flaky, session.Session], tmp_path: Path, cuts: list[int]
) -> None:
    served, opened = flaky
    served.cuts = list(cuts)
    file = tmp_path / "in"
    data = CONTENT * 20  # two pieces
    file.write_bytes(data)
    with contextlib.closing(uploads.UploadSource(str(file))) as source:
        upload = uploads.Upload(opened, source)
        assert await upload.run() == "up-1"
    assert bytes(served.kept) == data
    assert served.complete


async def test_full_disk_fails_at_once(
    flaky: tuple[Flaky, session.Session], tmp_path: Path
) -> None:
    served, opened = flaky
    served.refusals = [507]
    (tmp_path / "in").write_bytes(CONTENT)
    with (
        contextlib.closing(uploads.UploadSource(str(tmp_path / "in"))) as source,
        pytest.raises(kube_errors.Unavailable) as caught,
    ):
        await uploads.Upload(opened, source).run()
    assert caught.value.status == 507


async def test_unreachable_server_is_reported_while_waiting(
    flaky: tuple[Flaky, session.Session], tmp_path: Path, monkeypatch: Any
) -> None:
    served, opened = flaky
    headers: list[str] = []
    monkeypatch.setattr(wait_notice.WaitNotice, "say", lambda _, text: headers.append(text))
    served.refusals = [503]
    (tmp_path / "in").write_bytes(CONTENT)
    with contextlib.closing(uploads.UploadSource(str(tmp_path / "in"))) as source:
        await uploads.Upload(opened, source).run()
    assert bytes(served.kept) == CONTENT
    assert headers[0] == "uploading: trying for 120 s: no room"
    assert headers[-1].startswith("uploading  [##########] 100%")


async def test_file_that_changes_during_upload_is_an_error(
    flaky: tuple[Flaky, session.Session], tmp_path: Path, monkeypatch: Any
) -> None:
    _, opened = flaky
    monkeypatch.setattr(uploads, "PIECE_BYTES", 1024)
    file = tmp_path / "in"
    file.write_bytes(b"x" * 10_000)
    with contextlib.closing(uploads.UploadSource(str(file))) as source:
        assert source.read(10) == b"x" * 10
        with file.open("ab") as more:
            more.write(b"y")
        with pytest.raises(errors.CommandError, match="has changed while it was uploaded"):
            await uploads.Upload(opened, source).run()


async def test_complete_upload_sends_nothing(
    flaky: tuple[Flaky, session.Session], tmp_path: Path
) -> None:
    served, opened = flaky
    served.kept, served.complete = bytearray(b"abc"), True
    file = tmp_path / "in"
    file.write_bytes(b"abc")
    with contextlib.closing(uploads.UploadSource(str(file))) as source:
        assert await uploads.Upload(opened, source, known="up-1").run() == "up-1"
    assert bytes(served.kept) == b"abc"
