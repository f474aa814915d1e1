"""POST /jobs over real HTTP: accepted and refused uploads, and what they leave in the store."""

import asyncio
import gzip
import resource
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib import parse

import pytest

from kilnwork.api import filejobs
from kilnwork.jobs import errors as jobs_errors
from kilnwork.kit import asgi
from kilnwork.server.jobs import settings
from support import jobs_http, waiting

LINES = b'{"id":"1"}\n{"id":"2"}\n{"id":"3"}\n'
LARGE = b'{"id":"some record that is long enough to fill more than one line"}\n' * 30_000


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[jobs_http.World]:
    async with jobs_http.World(tmp_path, None).running() as running:
        yield running


def _inline(world: jobs_http.World) -> bytes:
    (new,) = world.jobs.created
    assert new.inline is not None
    return new.inline


def _kept(world: jobs_http.World) -> bytes:
    (new,) = world.jobs.created
    place = world.directory / "files" / new.namespace / new.id.dashed / "input"
    return place.read_bytes()


async def test_raw_body_is_the_file(world: jobs_http.World) -> None:
    made = await world.ask("POST", "/jobs", LINES)
    assert made.status == 202
    assert made.headers["location"] == f"/jobs/{made.json['id']}"
    assert made.json["phase"] == "Pending"
    assert made.json["input"]["lines"] == 3
    assert _inline(world) == LINES
    assert world.stored() == []  # a small one is kept with its row


async def test_form_has_the_file_in_a_field(world: jobs_http.World) -> None:
    data = jobs_http.form(LINES, itemsPerPart="2", name="file")
    made = await world.ask("POST", "/jobs", data, Content_Type="multipart/form-data; boundary=xyz")
    assert made.status == 202
    assert made.json["parts"] == 2
    assert made.json["spec"] == {"itemsPerPart": 2}
    assert _inline(world) == LINES


@pytest.mark.parametrize("way", ["raw", "form"])
async def test_large_file_goes_to_the_store(world: jobs_http.World, way: str) -> None:
    data, headers = LARGE, {}
    if way == "form":
        data, headers = jobs_http.form(LARGE), {"Content_Type": "multipart/form-data; boundary=xyz"}
    made = await world.ask("POST", "/jobs?itemsPerPart=10000", data, **headers)
    assert made.status == 202
    assert made.json["parts"] == 3
    assert _kept(world) == LARGE
    assert len(world.stored()) == 1


@pytest.mark.curl
async def test_request_with_two_boundaries_is_accepted(
    world: jobs_http.World, tmp_path: Path
) -> None:
    file = tmp_path / "work.jsonl"
    file.write_bytes(LINES)
    made = await world.curl(
        *("-X", "POST", "URL/jobs", "-H", "X-Kiln-Token: good", "-H", "Accept: text/plain"),
        *("-H", "Content-Type: multipart/form-data"),
        *("-H", "content-type: multipart/form-data; boundary=----WebKitFormBoundary7MA4YWxkTrZu0g"),
        *("-F", f"file=@{file}"),
    )
    assert made.status == 202
    assert made.body.decode() == world.jobs.created[0].id.text  # the id alone, without a newline
    made = await world.curl(
        *("URL/jobs", "-H", "X-Kiln-Token: good", "-F", f"file=@{file}"),
        *("-H", "Content-Type: multipart/form-data; boundary=mine"),
    )
    assert made.status == 202


async def test_boundary_of_the_body_is_used(world: jobs_http.World) -> None:
    data = jobs_http.form(LINES, boundary="second")
    kind = 'multipart/form-data; boundary=first; boundary="second"'
    assert (await world.ask("POST", "/jobs", data, Content_Type=kind)).status == 202
    kind = "multipart/form-data"
    assert (await world.ask("POST", "/jobs", data, Content_Type=kind)).status == 202


async def test_gzip_is_kept_unpacked(world: jobs_http.World) -> None:
    packed = gzip.compress(LARGE)
    made = await world.ask("POST", "/jobs", packed, Content_Encoding="gzip")
    assert made.status == 202
    assert _kept(world) == LARGE


async def test_accept_text_returns_only_the_id(world: jobs_http.World) -> None:
    made = await world.ask("POST", "/jobs", LINES, Accept="text/plain")
    assert made.headers["content-type"].startswith("text/plain")
    assert made.body.decode() == world.jobs.created[0].id.text


async def test_spec_is_accepted_whole_and_as_fields(world: jobs_http.World) -> None:
    whole = '{"itemsPerPart":7,"parallelism":3,"mapper":{"builtin":"identity"}}'
    spec = parse.quote(whole)
    made = await world.ask("POST", f"/jobs?spec={spec}&parallelism=2", LINES)
    assert made.status == 202
    assert world.jobs.created[0].spec == filejobs.FileJobSpec(
        items_per_part=7, parallelism=2, mapper=filejobs.Mapper(builtin="identity")
    )


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("itemPerPart=3", "itemPerPart"),
        ("itemsPerPart=0", "itemsPerPart=0"),
        ("itemsPerPart=many", "itemsPerPart=many"),
        ("ttlSecondsAfterFinished=null", "ttlSecondsAfterFinished=null: give a value"),
        ("gzip=Null", "gzip=Null: give a value"),
        ("mapper=nothing", "mapper=nothing"),
        ("mapper=score.py:score", "workers have no such file"),
        ("mapper=identity&command=cat", "give one of them"),
        ("command=[1]", "command"),
        ("spec=[]", "spec"),
        ("spec=%7B%22mapper%22:%7B%7D%7D", "spec.mapper"),
        ("spec=%7B%22x%22:1%7D", "unknown field `x`"),
        (
            'spec={"mapper":{"function":"a:b","environment":""}}',
            "mapper.environment: '' is no digest",
        ),
        ('spec={"mapper":{"command":["a"],"environment":"x"}}', "environment: 'x' is no digest"),
        ('spec={"reducer":{"function":"a:b","code":"sha256:0"}}', "spec.reducer.code: 'sha256:0'"),
        ('spec={"mapper":{"function":"score"}}', "function: 'score' is no function: write it as"),
        ('spec={"mapper":{"function":"a:b%20c"}}', "spec.mapper.function: 'a:b c' is no function"),
        ('spec={"mapper":{"command":["a","b\\u0000"]}}', "spec.mapper.command: no word may have"),
        ('spec={"reducer":{"builtin":"sum"}}&reducer=identity', "spec.reducer.builtin: 'sum'"),
        ('spec={"mapper":{"batchRecords":2}}&mapper=a:b', "spec.mapper: give one of builtin"),
        ("spec=%7B%22maxParts%22:%22x%22%7D&maxParts=3", "maxParts"),
        ("format=xml", "format=xml"),
        ("reducer=calculator", "reduces none"),
        ("batchRecords=3", "batchRecords"),
        ("mapper=identity&batchRecords=3", "batchRecords"),
        ("namespace=A_b", "namespace"),
        ("namespace=", "namespace"),
    ],
)
async def test_invalid_field_is_named(world: jobs_http.World, query: str, said: str) -> None:
    refused = await world.ask("POST", f"/jobs?{query}", LINES)
    assert refused.status == 400
    assert refused.headers["content-type"] == "application/problem+json"
    assert said in refused.json["detail"]
    assert refused.json["message"] == refused.json["detail"]
    assert world.jobs.created == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (jobs_http.form(LINES)[:-10], "breaks off"),
        (jobs_http.form(LINES, name="other"), "no field named 'file'"),
        (b"--xyz--\r\n", "no field named 'file'"),
        (b"--xyz\r\n\r\nx\r\n--xyz--\r\n", "no name"),
        (
            b"nothing of the kind, but longer than any boundary could ever be, or so one thinks",
            "form",
        ),
        (jobs_http.form(LINES)[:-9] + jobs_http.form(LINES), "two files"),
        (jobs_http.form(LINES, wrong="1"), "unknown field 'wrong'"),
        (jobs_http.form(LINES, spec="{"), "spec"),
    ],
)
async def test_malformed_forms_are_refused(world: jobs_http.World, data: bytes, said: str) -> None:
    kind = "multipart/form-data; boundary=xyz"
    refused = await world.ask("POST", "/jobs", data, Content_Type=kind)
    assert refused.status == 400
    if data:
        assert said in refused.json["detail"]
    assert world.jobs.created == []


def _late(data: bytes, name: str, value: str) -> bytes:
    """Return a form whose file comes before a field."""
    head = f'--xyz\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n--xyz--\r\n'
    return jobs_http.form(data)[: -len("--xyz--\r\n")] + head.encode()


async def test_fields_after_a_small_file_count(world: jobs_http.World) -> None:
    kind = "multipart/form-data; boundary=xyz"
    made = await world.ask("POST", "/jobs", _late(LINES, "itemsPerPart", "2"), Content_Type=kind)
    assert made.json["parts"] == 2


async def test_reading_options_must_precede_a_large_file(world: jobs_http.World) -> None:
    kind = "multipart/form-data; boundary=xyz"
    late = _late(LARGE, "itemsPerPart", "5")
    refused = await world.ask("POST", "/jobs", late, Content_Type=kind)
    refused.assert_problem(400, "'itemsPerPart' comes after the file")
    assert world.stored() == []
    made = await world.ask("POST", "/jobs", _late(LARGE, "mapper", "identity"), Content_Type=kind)
    assert made.json["spec"]["mapper"] == {"builtin": "identity"}


async def test_upload_without_workers_is_refused(world: jobs_http.World) -> None:
    refused = await world.ask("POST", "/jobs?namespace=nowhere", LINES)
    assert (refused.status, refused.json["detail"]) == (404, 'namespace "nowhere" does not exist')
    refused = await world.ask("POST", "/jobs?cluster=other", LINES)
    refused.assert_problem(422, "those that exist: default")
    assert (await world.ask("PUT", "/jobs", LINES)).json["detail"].endswith("add -X POST")


async def test_empty_file_is_refused(world: jobs_http.World) -> None:
    assert "empty" in (await world.ask("POST", "/jobs")).json["message"]
    kind = "multipart/form-data; boundary=xyz"
    refused = await world.ask("POST", "/jobs", jobs_http.form(b""), Content_Type=kind)
    assert refused.status == 400
    assert "empty" in refused.json["message"]


async def test_overlong_line_is_named(world: jobs_http.World) -> None:
    data = LARGE + b"x" * 5000 + b"\n"
    refused = await world.ask("POST", "/jobs?maxLineBytes=4096&format=text", data)
    assert refused.status == 422
    assert refused.json["line"] == 30_001
    assert world.stored() == []


async def test_another_coding_is_refused(world: jobs_http.World) -> None:
    refused = await world.ask("POST", "/jobs", LINES, Content_Encoding="br")
    assert refused.status == 415
    assert refused.headers["accept-encoding"] == "gzip, identity"


async def test_refusal_comes_before_100_continue(tmp_path: Path) -> None:
    """With `Expect: 100-continue` a refused client does not get the 100."""
    chosen = settings.JobsApiSettings(most_body_bytes=1000)
    async with jobs_http.World(tmp_path, chosen).running() as world:
        for path, length, status in (("/jobs", 2000, 413), ("/jobs?x=1", 10, 400)):
            reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
            writer.write(jobs_http.head("POST", path, length=length, Expect="100-continue"))
            assert (await jobs_http.reply_head(reader))[0] == status
            writer.close()


async def test_expect_100_continue_gets_a_100(world: jobs_http.World) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(jobs_http.head("POST", "/jobs", length=len(LINES), Expect="100-continue"))
    assert (await jobs_http.reply_head(reader))[0] == 100
    writer.write(LINES)
    assert (await jobs_http.reply_head(reader))[0] == 202
    writer.close()


async def test_chunked_body_has_the_same_limit(tmp_path: Path) -> None:
    chosen = settings.JobsApiSettings(most_body_bytes=100_000)
    async with jobs_http.World(tmp_path, chosen).running() as world:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(jobs_http.head("POST", "/jobs", length=None, Transfer_Encoding="chunked"))
        for _ in range(3):
            writer.write(b"c350\r\n" + b"x" * 50_000 + b"\r\n")
        assert (await jobs_http.reply_head(reader))[0] == 413
        writer.close()
        assert world.stored() == []


@pytest.mark.parametrize("way", ["raw", "form"])
async def test_disconnected_client_leaves_no_file(world: jobs_http.World, way: str) -> None:
    data, headers = LARGE, {}
    if way == "form":
        data, headers = jobs_http.form(LARGE), {"Content_Type": "multipart/form-data; boundary=xyz"}
    _, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(jobs_http.head("POST", "/jobs", length=len(data), **headers))
    writer.write(data[:-100])
    await waiting.wait_until_async(world.stored, what="something of it")
    writer.transport.abort()
    await waiting.wait_until_async(lambda: not world.stored(), what="nothing left")
    assert world.jobs.created == []


async def test_invalid_job_leaves_no_file(world: jobs_http.World) -> None:
    world.jobs.fail = jobs_errors.InvalidJob("spec.clusterName: there is none")
    refused = await world.ask("POST", "/jobs", LARGE)
    assert (refused.status, refused.json["detail"]) == (422, "spec.clusterName: there is none")
    assert world.stored() == []


async def test_forbidden_upload_is_refused_before_the_body(world: jobs_http.World) -> None:
    assert (await world.ask("POST", "/jobs", LINES, token="")).status == 401
    refused = await world.ask("POST", "/jobs", LINES, token="reader")
    refused.assert_problem(403, "cannot create")


async def test_idempotency_key_creates_one_job(world: jobs_http.World) -> None:
    first = await world.ask("POST", "/jobs", LINES, Idempotency_Key='"k-1"')
    again = await world.ask("POST", "/jobs", LINES, Idempotency_Key="k-1")
    assert (first.status, again.status) == (202, 202)
    assert first.json["id"] == again.json["id"]
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert len(world.jobs.created) == 1


@pytest.mark.parametrize("change", ["body", "spec"])
async def test_idempotency_key_with_another_request_is_refused(
    world: jobs_http.World, change: str
) -> None:
    await world.ask("POST", "/jobs", LARGE, Idempotency_Key="k")
    stored = world.stored()
    data = LARGE + LINES if change == "body" else LARGE
    path = "/jobs?itemsPerPart=4" if change == "spec" else "/jobs"
    refused = await world.ask("POST", path, data, Idempotency_Key="k")
    refused.assert_problem(422, "key")
    assert world.stored() == stored


async def test_idempotency_key_in_use_is_a_conflict(world: jobs_http.World) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(jobs_http.head("POST", "/jobs", length=100, Idempotency_Key="k") + LINES)
    async with asyncio.timeout(30):
        while (busy := await world.ask("POST", "/jobs", LINES, Idempotency_Key="k")).status == 202:
            world.jobs.created.clear()
    assert busy.status == 409
    assert busy.headers["retry-after"] == "1"
    writer.close()


async def test_malformed_idempotency_keys_are_refused(world: jobs_http.World) -> None:
    for key in ('""', "x" * 300, ""):
        assert (await world.ask("POST", "/jobs", LINES, Idempotency_Key=key)).status == 400


async def test_rate_limit_sends_retry_after(tmp_path: Path) -> None:
    chosen = settings.JobsApiSettings(posts_per_second=0.5, burst=2)
    async with jobs_http.World(tmp_path, chosen).running() as world:
        seen = [await world.ask("POST", "/jobs", LINES) for _ in range(3)]
        assert [one.status for one in seen] == [202, 202, 429]
        assert seen[2].headers["retry-after"] == "2"
        assert (await world.ask("POST", "/jobs", LINES, token="other")).status == 202


async def test_concurrent_uploads_are_limited(tmp_path: Path) -> None:
    async with jobs_http.World(tmp_path, settings.JobsApiSettings(uploads=1)).running() as world:
        _, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(jobs_http.head("POST", "/jobs", length=len(LARGE)) + LARGE[:-1])
        await waiting.wait_until_async(world.stored, what="something of it")
        refused = await world.ask("POST", "/jobs", LINES)
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        writer.transport.abort()

        async def taken() -> bool:
            return (await world.ask("POST", "/jobs", LINES)).status == 202

        await waiting.wait_until_async(taken, what="room for another")


async def test_slow_uploads_of_one_user_leave_room_for_others(tmp_path: Path) -> None:
    async with jobs_http.World(tmp_path, settings.JobsApiSettings(uploads=4)).running() as world:
        head = jobs_http.head("POST", "/jobs", length=len(LARGE)) + LARGE[:-1]
        slow = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(3)]
        for _, writer in slow:
            writer.write(head)

        async def refused() -> bool:
            return (await world.ask("POST", "/jobs", LINES)).status == 429

        await waiting.wait_until_async(refused, what="three uploads under way")
        assert (await world.ask("POST", "/jobs", LINES, token="other")).status == 202
        for _, writer in slow:
            writer.transport.abort()


@pytest.fixture
def small_files() -> Iterator[None]:
    """Limit files to 1 MiB: to a writer that is a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
async def test_full_disk_leaves_no_file(world: jobs_http.World) -> None:
    refused = await world.ask("POST", "/jobs", LARGE)
    assert refused.status == 507
    assert refused.json["reason"] == "InsufficientStorage"
    assert world.stored() == []
    assert (await world.ask("POST", "/jobs", LINES)).status == 202


async def test_stalled_client_gets_a_timeout(
    world: jobs_http.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "STALL_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(jobs_http.head("POST", "/jobs", length=100) + LINES)
    assert (await jobs_http.reply_head(reader))[0] == 408
    writer.close()


async def test_memory_does_not_grow_with_the_file(world: jobs_http.World) -> None:
    """64 MiB through a form use less than 32 MiB more than before."""
    block = LARGE[: 1 << 20]
    start, end = jobs_http.form(b"").split(b"\r\n\r\n", 1)
    length = len(start) + 4 + 64 * len(block) + len(end)
    kind = "multipart/form-data; boundary=xyz"
    await world.ask("POST", "/jobs", LARGE)
    before = _resident()
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    most = before
    writer.write(jobs_http.head("POST", "/jobs", length=length, Content_Type=kind) + start)
    writer.write(b"\r\n\r\n")
    for _ in range(64):
        writer.write(block)
        await writer.drain()
        most = max(most, _resident())
    writer.write(end)
    assert (await jobs_http.reply_head(reader))[0] == 202
    writer.close()
    assert most - before < 32 << 20


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def test_form_is_parsed_however_it_is_split(world: jobs_http.World) -> None:
    """Wherever the network splits a form, the file is the same."""
    tricky = b"a\r\n--xy\r\n--xyz\n\r\n\r\n--xyzz \r\n-\r\nb\r" * 3 + b"\r\n"
    data = jobs_http.form(tricky, spec='{"input":{"format":"text"}}')
    kind = "multipart/form-data; boundary=xyz-"
    data = data.replace(b"--xyz\r\nContent", b"--xyz-\r\nContent").replace(b"--xyz--", b"--xyz---")
    for step in (1, 2, 3, 7, 50):
        world.jobs.created.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.write(jobs_http.head("POST", "/jobs", length=len(data), Content_Type=kind))
        for piece in _cut(data, step):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        made = await jobs_http.reply(reader)
        assert made.status == 202, made.body
        assert _inline(world) == tricky
        writer.close()


def _cut(data: bytes, step: int) -> Iterator[bytes]:
    return (data[at : at + step] for at in range(0, len(data), step))


async def test_many_concurrent_uploads_succeed(world: jobs_http.World) -> None:
    made = await asyncio.gather(*(world.ask("POST", "/jobs", LARGE) for _ in range(12)))
    assert {one.status for one in made} == {202}
    assert len({one.json["id"] for one in made}) == 12
    assert len(world.stored()) == 12
