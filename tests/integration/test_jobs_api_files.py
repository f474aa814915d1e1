"""`/files` over real HTTP: resumable uploads, and jobs created from them."""

import asyncio
import gzip
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from kilnwork.data.stores import local
from kilnwork.server.jobs import settings, upload_handlers, upload_quotas, upload_storage
from support import jobs_http, waiting

LINES = b'{"id":"1"}\n{"id":"2"}\n{"id":"3"}\n'
LARGE = b'{"id":"some record that is long enough to fill more than one line"}\n' * 30_000
PARTIAL = "application/partial-upload"
PROBLEMS = "https://iana.org/assignments/http-problem-types#"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[jobs_http.World]:
    async with jobs_http.World(tmp_path, None).running() as running:
        yield running


async def _begun(world: jobs_http.World, data: bytes = b"", length: int | None = None) -> str:
    headers = {"Upload_Complete": "?0"}
    if length is not None:
        headers["Upload_Length"] = str(length)
    begun = await world.ask("POST", "/files", data, token="good", **headers)
    assert begun.status == 201
    return begun.headers["location"]


async def _more(
    world: jobs_http.World, path: str, data: bytes, *, at: int, last: bool = False
) -> jobs_http.Reply:
    return await world.ask(
        "PATCH",
        path,
        data,
        Content_Type=PARTIAL,
        Upload_Offset=str(at),
        Upload_Complete="?1" if last else "?0",
    )


async def test_file_in_three_requests_is_a_job(world: jobs_http.World) -> None:
    path = await _begun(world, LARGE[:1000], len(LARGE))
    assert (await _more(world, path, LARGE[1000:2000], at=1000)).status == 204
    head = await world.ask("HEAD", path)
    assert head.status == 204
    assert head.headers["upload-offset"] == "2000"
    assert head.headers["upload-complete"] == "?0"
    assert head.headers["upload-length"] == str(len(LARGE))
    assert head.headers["upload-limit"] == "max-age=86400"
    early = await world.ask("POST", f"/jobs?file={path.rpartition('/')[2]}")
    assert early.status == 409
    last = await _more(world, path, LARGE[2000:], at=2000, last=True)
    assert (last.status, last.json["complete"], last.json["offset"]) == (200, True, len(LARGE))
    made = await world.ask("POST", f"/jobs?itemsPerPart=10000&file={path.rpartition('/')[2]}")
    assert made.status == 202
    (new,) = world.jobs.created
    kept = world.directory / "files" / "default" / new.id.dashed / "input"
    assert kept.read_bytes() == LARGE
    assert len(new.manifest.parts) == 3


async def test_file_can_be_uploaded_in_one_request(world: jobs_http.World) -> None:
    whole = await world.ask("POST", "/files", LINES)
    assert (whole.json["complete"], whole.json["offset"]) == (True, len(LINES))
    spec = b'{"itemsPerPart":2,"mapper":{"builtin":"identity"}}'
    made = await world.ask("POST", f"/jobs?file={whole.json['id']}", spec)
    assert made.json["parts"] == 2
    assert world.jobs.created[0].inline == LINES
    again = await world.ask("POST", f"/jobs?file={whole.json['id']}")
    assert again.status == 202  # for another job as well


async def _job_of(world: jobs_http.World, file: str, query: str = "") -> Path:
    made = await world.ask("POST", f"/jobs?file={file}{query}")
    assert made.status == 202, made.body
    return world.directory / "files" / "default" / world.jobs.created[-1].id.dashed / "input"


async def test_job_uses_the_upload_without_a_copy(world: jobs_http.World) -> None:
    path = await _begun(world, LARGE[:70_000])
    await _more(world, path, LARGE[70_000:], at=70_000, last=True)
    file = path.rpartition("/")[2]
    one, two = await _job_of(world, file), await _job_of(world, file, "&itemsPerPart=7")
    assert (one.stat().st_nlink, one.stat().st_ino) == (3, two.stat().st_ino)
    sent = await world.ask("POST", "/jobs", LARGE)
    assert sent.status == 202
    assert world.jobs.created[0].manifest == world.jobs.created[2].manifest
    one.unlink()
    assert (await world.ask("DELETE", path)).status == 204
    assert two.read_bytes() == LARGE
    assert two.stat().st_nlink == 1


@pytest.mark.parametrize("change", ["gzip", "mark", "array"])
async def test_job_copies_an_upload_that_it_converts(world: jobs_http.World, change: str) -> None:
    sent, query = {
        "gzip": (gzip.compress(random.Random(1).randbytes(100_000).hex().encode()), ""),
        "mark": (b"\xef\xbb\xbf" + LARGE, ""),
        "array": (b"[" + LARGE.strip().replace(b"\n", b",\n") + b"]", "&format=json"),
    }[change]
    file = (await world.ask("POST", "/files", sent)).json["id"]
    kept = await _job_of(world, file, query)
    assert kept.stat().st_nlink == 1
    if change != "gzip":
        assert kept.read_bytes() == LARGE


async def test_client_that_disconnects_creates_no_job(
    world: jobs_http.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_handlers, "_STEP_BYTES", 1)
    file = (await world.ask("POST", "/files", LARGE)).json["id"]
    before = world.stored()
    _, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(jobs_http.head("POST", f"/jobs?file={file}"))
    await writer.drain()
    writer.transport.abort()
    assert (await world.ask("DELETE", "/jobs/missing")).status == 404  # it is being served
    assert (await world.ask("GET", f"/files/{file}")).status == 200
    assert world.jobs.created == []
    assert world.stored() == before


async def test_upload_deleted_meanwhile_is_an_error(world: jobs_http.World) -> None:
    file = (await world.ask("POST", "/files", LARGE)).json["id"]
    (bytes_,) = world.directory.rglob("data/bytes")
    bytes_.write_bytes(LARGE[:-1])
    short = await world.ask("POST", f"/jobs?file={file}")
    short.assert_problem(409, "lacks some")
    bytes_.unlink()
    gone = await world.ask("POST", f"/jobs?file={file}")
    assert gone.status in (404, 409), gone.body
    assert not [name for name in world.stored() if name.endswith("input")]


async def test_idempotency_key_compares_the_content(world: jobs_http.World) -> None:
    """Uploaded again, or sent in one request: only the content matters."""
    files_ = [(await world.ask("POST", "/files", LARGE)).json["id"] for _ in range(2)]
    first = await world.ask("POST", f"/jobs?file={files_[0]}", Idempotency_Key="k")
    stored = world.stored()
    for path, data in (
        (f"/jobs?file={files_[0]}", b""),
        (f"/jobs?file={files_[1]}", b""),
        ("/jobs", LARGE),
    ):
        again = await world.ask("POST", path, data, Idempotency_Key="k")
        assert again.json["id"] == first.json["id"]
    other = await world.ask("POST", f"/jobs?itemsPerPart=3&file={files_[0]}", Idempotency_Key="k")
    assert other.status == 422
    assert len(world.jobs.created) == 1
    assert world.stored() == stored


async def test_offset_of_an_upload_is_reported(world: jobs_http.World) -> None:
    path = await _begun(world, LINES)
    wrong = await _more(world, path, b"x", at=5)
    assert wrong.status == 409
    assert wrong.json["type"] == PROBLEMS + "mismatching-upload-offset"
    assert (wrong.json["expected-offset"], wrong.json["provided-offset"]) == (len(LINES), 5)
    assert wrong.headers["upload-offset"] == str(len(LINES))
    assert (await _more(world, path, b"", at=len(LINES), last=True)).status == 200
    over = await _more(world, path, b"x", at=len(LINES))
    assert (over.status, over.json["type"]) == (409, PROBLEMS + "completed-upload")


async def test_disagreeing_lengths_are_refused(world: jobs_http.World) -> None:
    path = await _begun(world, LINES, 40)
    short = await _more(world, path, b"x", at=len(LINES), last=True)
    assert (short.status, short.json["type"]) == (400, PROBLEMS + "inconsistent-upload-length")
    other = await world.ask(
        *("PATCH", path, b"x"),
        Content_Type=PARTIAL,
        Upload_Offset=str(len(LINES) + 1),
        Upload_Length="99",
    )
    assert (other.status, other.json["type"]) == (400, PROBLEMS + "inconsistent-upload-length")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Type": "text/plain", "Upload_Offset": "0"}, 415),
        ({"Content_Type": PARTIAL}, 400),
        ({"Content_Type": PARTIAL, "Upload_Offset": "-1"}, 400),
        ({"Content_Type": PARTIAL, "Upload_Offset": "0", "Upload_Complete": "yes"}, 400),
    ],
)
async def test_malformed_upload_requests_are_refused(
    world: jobs_http.World, headers: dict[str, str], status: int
) -> None:
    path = await _begun(world)
    assert (await world.ask("PATCH", path, b"x", token="good", **headers)).status == status


async def test_bytes_before_a_disconnect_are_kept(world: jobs_http.World) -> None:
    path = await _begun(world)
    _, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(
        jobs_http.head(
            "PATCH",
            path,
            length=len(LARGE),
            Content_Type=PARTIAL,
            Upload_Offset="0",
            Upload_Complete="?1",
        )
    )
    writer.write(LARGE[:-7])
    await writer.drain()
    await waiting.wait_until_async(
        lambda: any("data/bytes" in name for name in world.stored()), what="some of it"
    )
    writer.transport.abort()

    async def kept() -> int:
        return int((await world.ask("HEAD", path)).headers["upload-offset"])

    offset = await waiting.wait_until_async(kept, what="what came")
    assert 0 < offset <= len(LARGE) - 7
    last = await _more(world, path, LARGE[offset:], at=offset, last=True)
    assert last.json["offset"] == len(LARGE)
    await world.ask("POST", f"/jobs?file={last.json['id']}")
    assert world.jobs.created[0].manifest.bytes == len(LARGE)


async def test_concurrent_appends_are_refused(world: jobs_http.World) -> None:
    path = await _begun(world)
    both = await asyncio.gather(
        *(_more(world, path, bytes([65 + n]) * 70_000, at=0) for n in range(2))
    )
    assert sorted(one.status for one in both) == [204, 409]
    assert (await world.ask("GET", path)).json["offset"] == 70_000


async def test_uploads_are_listed_and_deleted(world: jobs_http.World) -> None:
    path = await _begun(world, LINES)
    (one,) = (await world.ask("GET", "/files")).json
    assert path == f"/files/{one['id']}"
    assert (await world.ask("GET", "/files?namespace=other")).json == []
    assert (await world.ask("GET", path + "?namespace=other")).status == 404
    assert (await world.ask("DELETE", path, token="reader")).status == 403
    assert (await world.ask("DELETE", path)).status == 204
    assert (await world.ask("GET", path)).status == 404
    assert (await world.ask("POST", f"/jobs?file={one['id']}")).status == 404
    assert world.stored() == []


@pytest.mark.parametrize("ref", ["x", "..%2f..%2fetc", "_uploads", "%00"])
async def test_malformed_upload_ids_are_not_found(world: jobs_http.World, ref: str) -> None:
    assert (await world.ask("GET", f"/files/{ref}")).status == 404
    assert (await world.ask("POST", f"/jobs?file={ref}")).status == 404


async def test_oversized_upload_is_refused(tmp_path: Path) -> None:
    chosen = settings.JobsApiSettings(most_body_bytes=1000)
    async with jobs_http.World(tmp_path, chosen).running() as world:
        begun = await world.ask("POST", "/files", Upload_Complete="?0", Upload_Length="1001")
        assert begun.status == 413
        path = await _begun(world, b"x" * 600)
        assert (await _more(world, path, b"x" * 600, at=600)).status == 413
        assert (await world.ask("HEAD", path)).headers["upload-limit"].startswith("max-size=1000,")


async def test_old_uploads_are_removed(
    world: jobs_http.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _begun(world, LINES)
    assert world.app.delete_stale() == 0
    monkeypatch.setattr(upload_storage, "KEEP_S", -1)
    assert world.app.delete_stale() == 1
    assert world.stored() == []


async def test_upload_in_progress_is_not_removed(world: jobs_http.World, tmp_path: Path) -> None:
    """An upload that takes longer than a day is not lost halfway."""
    path = await _begun(world, LINES)
    uploaded = upload_storage.Uploads(local.LocalStore(tmp_path / "files"))
    (kept,) = uploaded.list("default")
    old = msgspec.structs.replace(
        kept.state, created=kept.state.created - 2 * upload_storage.KEEP_S
    )
    uploaded.save(kept, old)
    assert world.app.delete_stale() == 0
    (data,) = world.directory.rglob("data/kept")
    os.utime(data, (old.created, old.created))
    assert world.app.delete_stale() == 1
    assert (await world.ask("GET", path)).status == 404


async def test_location_names_a_foreign_namespace(world: jobs_http.World) -> None:
    begun = await world.ask("POST", "/files?namespace=team", LINES)
    path = begun.headers["location"]
    assert path.endswith("?namespace=team")
    assert (await world.ask("HEAD", path)).status == 204
    assert (await world.ask("HEAD", path.partition("?")[0])).status == 404


async def test_unfinished_uploads_per_user_are_limited(tmp_path: Path) -> None:
    chosen = settings.JobsApiSettings(files_per_user=2)
    async with jobs_http.World(tmp_path, chosen).running() as world:
        first = await _begun(world, b"one")
        await _begun(world, b"two")
        whole = await world.ask("POST", "/files", LINES, token="other")
        assert whole.status == 201  # another user's, and complete
    later = jobs_http.World(tmp_path, chosen)
    later.jobs = world.jobs  # which numbers on
    async with later.running() as world:  # existing files are counted
        refused = await world.ask("POST", "/files", LINES)
        assert (refused.status, refused.headers["retry-after"]) == (429, "60")
        assert "2 uploads of yours are not complete" in refused.json["detail"]
        assert "--max-files" in refused.json["detail"]
        assert (await world.ask("POST", "/files", LINES, token="other")).status == 201
        assert (await _more(world, first, b" more", at=3, last=True)).status == 200
        again = await _begun(world)
        assert (await world.ask("POST", "/files")).status == 429
        assert (await world.ask("DELETE", again)).status == 204
        assert (await world.ask("POST", "/files", LINES)).status == 201


async def test_upload_limit_holds_during_the_cleanup(tmp_path: Path) -> None:
    """The clean-up runs beside requests, in a thread."""
    async with jobs_http.World(
        tmp_path, settings.JobsApiSettings(files_per_user=1)
    ).running() as world:
        await _begun(world, b"one")
        check_count = upload_quotas.Quotas.check_count

        def beside(self: upload_quotas.Quotas, user: str) -> None:
            assert world.app.delete_stale() == 0
            check_count(self, user)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(upload_quotas.Quotas, "check_count", beside)
            assert (await world.ask("POST", "/files", LINES)).status == 429


async def test_uploaded_bytes_per_user_are_limited(tmp_path: Path) -> None:
    chosen = settings.JobsApiSettings(files_bytes_per_user=1000)
    async with jobs_http.World(tmp_path, chosen).running() as world:
        path = await _begun(world, b"x" * 600)
        for refused in (
            await world.ask("POST", "/files", b"y" * 401),
            await world.ask("POST", "/files", Upload_Complete="?0", Upload_Length="401"),
            await _more(world, path, b"z" * 401, at=600),
        ):
            refused.assert_problem(507, "DELETE /files/ID")
        promised = await _begun(world, length=400)
        assert (await world.ask("POST", "/files", b"y")).status == 507
        assert (await world.ask("POST", "/files", b"y", token="other")).status == 201
        assert (await world.ask("DELETE", promised)).status == 204
        chunked = await world.curl(
            *("-X", "PATCH", "-H", "X-Kiln-Token: good", "-H", f"Content-Type: {PARTIAL}"),
            *("-H", "Upload-Offset: 600", "-H", "Transfer-Encoding: chunked"),
            *("--data-binary", "z" * 401, "URL" + path),
        )
        assert chunked.status == 413
        offset = int((await world.ask("HEAD", path)).headers["upload-offset"])
        assert (
            await _more(world, path, b"z" * (1000 - offset), at=offset, last=True)
        ).status == 200


async def test_overlong_record_is_refused(world: jobs_http.World) -> None:
    """A JSON array or an open quote of CSV is kept in memory up to that limit."""
    good = await world.ask("POST", f"/jobs?maxLineBytes={64 << 20}", LINES)
    assert good.status == 202
    refused = await world.ask("POST", f"/jobs?maxLineBytes={(64 << 20) + 1}", LINES)
    refused.assert_problem(422, "--max-line")
