"""The Jobs API against malicious and careless clients: no 5xx, and a loop that is never blocked."""

import asyncio
import gc
import gzip
import os
import time
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.data.records import gzip_unpacker
from kilnwork.server.jobs import settings
from support import jobs_http, waiting

LINES = b'{"id":"1"}\n{"id":"2"}\n{"id":"3"}\n'
DIGITS = "9" * 5000
"""More than Python's `int` reads."""

FORM = "multipart/form-data; boundary=xyz"
MAX_TURN_S = 0.25
"""Limit for one turn of the event loop in CPU time of its thread; the attacks took seconds."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[jobs_http.World]:
    async with jobs_http.World(tmp_path, None).running() as running:
        yield running


async def _longest_turn_s(world: jobs_http.World, path: str, body: bytes, **headers: str) -> float:
    """Return how long one turn of the server's loop (which is ours too) took while it read a
    request.
    """
    longest, last = 0.0, time.thread_time()
    asked = asyncio.create_task(world.ask("POST", path, body, **headers))
    while not asked.done():
        await asyncio.sleep(0)
        longest, last = max(longest, time.thread_time() - last), time.thread_time()
    assert (await asked).status in (202, 400, 413)
    return longest


@pytest.mark.parametrize(
    "path",
    [
        f"/jobs?limit={DIGITS}",
        f"/jobs/JOB?wait={DIGITS}",
        f"/jobs/JOB/results?part={DIGITS}",
        f"/jobs/JOB/parts?after={DIGITS}",
    ],
)
async def test_numbers_of_thousands_of_digits_are_refused(
    world: jobs_http.World, path: str
) -> None:
    job = (await world.ask("POST", "/jobs", LINES)).json["id"]
    assert (await world.ask("GET", path.replace("JOB", job))).status == 400


@pytest.mark.parametrize(
    "query", ["name=a&name=b", "mapper=identity&x=1&mapper=a:b", "&name=&name"]
)
async def test_repeated_parameter_is_refused(world: jobs_http.World, query: str) -> None:
    """A proxy in front of us might use the other value."""
    refused = await world.ask("POST", f"/jobs?{query}", LINES)
    refused.assert_problem(400, "more than once")
    field = b'--xyz\r\nContent-Disposition: form-data; name="priority"\r\n\r\n1\r\n'
    twice = field + jobs_http.form(LINES, priority="2")
    refused = await world.ask("POST", "/jobs", twice, Content_Type=FORM)
    refused.assert_problem(400, "more than once")


@pytest.mark.parametrize("number", [DIGITS, "٣", "0", "-1"])
async def test_batch_size_zero_is_refused(world: jobs_http.World, number: str) -> None:
    data = jobs_http.form(LINES, mapper="a:b", batchRecords=number)
    assert (await world.ask("POST", "/jobs", data, Content_Type=FORM)).status == 400


async def test_unknown_last_event_id_restarts_the_watch(world: jobs_http.World) -> None:
    job = (await world.ask("POST", "/jobs", LINES)).json["id"]
    world.jobs.publish(job, b"{}\n")
    watched = await world.ask("GET", f"/jobs/{job}/watch", Last_Event_ID=DIGITS)
    assert watched.status == 200
    assert watched.body.startswith(b"event: job\n")


async def test_small_archive_is_not_unpacked_on_the_loop(world: jobs_http.World) -> None:
    archive = gzip.compress(b"\n" * 15_000_000)
    assert len(archive) < 64 << 10
    assert await _longest_turn_s(world, "/jobs", archive) < MAX_TURN_S


async def test_csv_header_of_many_columns_is_refused(world: jobs_http.World) -> None:
    columns = b",".join(b"%x" % number for number in range(11_000)) + b"\n1\n"
    assert len(columns) < 64 << 10
    assert await _longest_turn_s(world, "/jobs?format=csv", columns) < MAX_TURN_S


async def test_oversized_command_is_refused(world: jobs_http.World) -> None:
    data = jobs_http.form(LINES, command="a" * 500_000)
    assert await _longest_turn_s(world, "/jobs", data, Content_Type=FORM) < MAX_TURN_S
    data = jobs_http.form(LINES, command="a" * 20_000)
    refused = await world.ask("POST", "/jobs", data, Content_Type=FORM)
    refused.assert_problem(400, "JSON array")


async def test_oversized_spec_is_refused(world: jobs_http.World) -> None:
    data = jobs_http.form(LINES, command='["' + "a" * 100_000 + '"]')
    refused = await world.ask("POST", "/jobs", data, Content_Type=FORM)
    refused.assert_problem(400, "65,536 bytes")


async def test_refused_uploads_do_not_stay_in_memory(world: jobs_http.World) -> None:
    """They are few objects with many bytes, so no garbage collection is due that would free
    them.
    """
    endless = b'["' + b"a" * (20 << 20)
    assert (await world.ask("POST", "/jobs?format=json", endless)).status == 422
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(6):
            assert (await world.ask("POST", "/jobs?format=json", endless)).status == 422
        await waiting.wait_until_async(  # the last response is sent before its request ends
            lambda: tracemalloc.get_traced_memory()[0] < 10 << 20, what="memory is free"
        )
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize("name", ["n" * 254, "%1b]0;owned%07", "a%0ab", "%c2%9b31m"])
async def test_names_with_control_characters_are_refused(world: jobs_http.World, name: str) -> None:
    assert (await world.ask("POST", f"/jobs?name={name}", LINES)).status == 400


async def test_form_of_very_many_fields_is_refused(world: jobs_http.World) -> None:
    fields = b"".join(
        b'--xyz\r\nContent-Disposition: form-data; name="x%d"\r\n\r\n\r\n' % number
        for number in range(1000)
    )
    refused = await world.ask("POST", "/jobs", fields + jobs_http.form(LINES), Content_Type=FORM)
    refused.assert_problem(400, "100 fields")


async def test_overlong_boundary_is_refused(world: jobs_http.World) -> None:
    kind = "multipart/form-data; boundary=" + "x" * 300
    data = jobs_http.form(LINES, boundary="x" * 300)
    assert (await world.ask("POST", "/jobs", data, Content_Type=kind)).status == 400


@pytest.mark.parametrize("left", [None, 20])
async def test_truncated_upload_is_not_used_as_input(
    world: jobs_http.World, left: int | None
) -> None:
    """A file deleted during the copy or in the store must not become a job of the rest."""
    begun = await world.ask("POST", "/files", LINES[:11], Upload_Complete="?0")
    path = begun.headers["location"]
    more = {"Upload_Offset": "11", "Upload_Complete": "?1"}
    done = await world.ask(
        "PATCH", path, LINES[11:], Content_Type="application/partial-upload", **more
    )
    assert done.json["complete"]
    (name,) = [name for name in world.stored() if name.endswith("/bytes")]
    path_in_store = world.directory / "files" / name
    if left is None:
        path_in_store.unlink()
    else:
        os.truncate(path_in_store, left)
    refused = await world.ask("POST", f"/jobs?file={path.rpartition('/')[2]}")
    assert refused.status == 409
    assert world.jobs.created == []


async def test_deleted_upload_stays_deleted(world: jobs_http.World) -> None:
    begun = await world.ask("POST", "/files", Upload_Complete="?0")
    path = begun.headers["location"]
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    kind, more = "application/partial-upload", {"Upload_Offset": "0", "Upload_Complete": "?1"}
    writer.write(jobs_http.head("PATCH", path, length=len(LINES), Content_Type=kind, **more))
    writer.write(LINES[:5])
    await writer.drain()
    await asyncio.sleep(0.05)
    assert (await world.ask("DELETE", path)).status == 204
    writer.write(LINES[5:])
    assert (await jobs_http.reply(reader, method="PATCH")).status in (404, 409)
    writer.close()
    assert (await world.ask("GET", path)).status == 404
    assert world.stored() == []


async def test_upload_cannot_exceed_its_declared_length(world: jobs_http.World) -> None:
    begun = await world.ask("POST", "/files", Upload_Complete="?0", Upload_Length="10")
    path, kind = begun.headers["location"], "application/partial-upload"
    refused = await world.ask(
        "PATCH", path, b"x" * 11, Content_Type=kind, Upload_Offset="0", Upload_Complete="?0"
    )
    assert refused.status == 413
    assert (await world.ask("HEAD", path)).headers["upload-offset"] == "0"
    assert (await world.ask("POST", "/files", b"x" * 11, Upload_Length="10")).status == 413


async def test_store_error_is_logged_and_not_sent(
    world: jobs_http.World, caplog: pytest.LogCaptureFixture
) -> None:
    """The response refers to the log; it does not show our directories to clients."""
    directory = world.directory / "files"
    directory.write_bytes(b"in the way")
    refused = await world.ask("POST", "/jobs", LINES * 5000)
    assert refused.status == 500
    assert str(directory) not in refused.body.decode()
    (reported,) = [record for record in caplog.records if record.message == "request failed"]
    assert reported.exc_info is not None
    assert str(directory) in str(reported.exc_info[1])


async def test_temporarily_refused_upload_leaves_no_file(tmp_path: Path) -> None:
    async with jobs_http.World(tmp_path, settings.JobsApiSettings(uploads=0)).running() as world:
        assert (await world.ask("POST", "/files", LINES)).status == 429
        assert world.stored() == []


def _archive(piece: bytes, count: int, *, before: bytes = b"", after: bytes = b"") -> bytes:
    """Return gzip of `piece` repeated, which is never in memory as a whole."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    packed = [packer.compress(before), *(packer.compress(piece) for _ in range(count))]
    return b"".join([*packed, packer.compress(after), packer.flush()])


LINE_ENDS = _archive(b"\n" * (1 << 20), 96)
"""96 MiB of them in 98 KiB."""


@pytest.mark.parametrize("way", ["body", "coding", "form", "file"])
async def test_decompression_bomb_is_refused(world: jobs_http.World, way: str) -> None:
    match way:
        case "coding":
            refused = await world.ask("POST", "/jobs", LINE_ENDS, Content_Encoding="gzip")
        case "form":
            data = jobs_http.form(LINE_ENDS)
            refused = await world.ask("POST", "/jobs", data, Content_Type=FORM)
        case "file":
            begun = await world.ask("POST", "/files", LINE_ENDS)
            refused = await world.ask("POST", f"/jobs?file={begun.json['id']}")
            await world.ask("DELETE", f"/files/{begun.json['id']}")
        case _:
            refused = await world.ask("POST", "/jobs", LINE_ENDS)
    assert refused.status == 413
    assert refused.headers["content-type"] == "application/problem+json"
    reported = refused.json
    assert (reported["field"], reported["limit"]) == ("file", 100)
    assert reported["seen"] > 900
    assert "--max-unpack-ratio" in reported["remedy"]
    assert "more than 100 times its size" in reported["detail"]
    assert world.stored() == []
    assert (await world.ask("GET", "/jobs")).json == []


async def test_decompression_limit_is_configurable(tmp_path: Path) -> None:
    chosen = settings.JobsApiSettings(unpack_ratio=None, unpacked_bytes=1 << 20)
    async with jobs_http.World(tmp_path, chosen).running() as world:
        refused = await world.ask("POST", "/jobs", _archive(b"{}\n" * 1000, 400))
        assert refused.status == 413
        reported = refused.json
        assert (reported["limit"], reported["unit"]) == (1 << 20, "bytes unpacked")
        assert 1 << 20 < reported["seen"] <= 2 << 20
        assert "--max-unpacked" in reported["remedy"]
        assert world.stored() == []
        made = await world.ask("POST", "/jobs?itemsPerPart=1000", _archive(b"{}\n" * 1000, 300))
        assert made.status == 202


async def test_unpacking_does_not_block_other_requests(tmp_path: Path) -> None:
    """Delays are those of a few thread switches, not of a whole file."""
    packed = _archive(b"1," * (1 << 19), 4, before=b"[", after=b"1]")
    async with jobs_http.World(tmp_path, None).running() as world:
        uploads = [
            asyncio.create_task(world.ask("POST", "/jobs?format=json&blank=record", packed))
            for _ in range(6)
        ]
        late: list[float] = []
        while not all(one.done() for one in uploads):
            before = time.monotonic()
            assert (await world.ask("GET", "/jobs?limit=1")).status == 200
            late.append(time.monotonic() - before)
            await asyncio.sleep(0.005)
        assert {(await one).status for one in uploads} == {202}
    most = sorted(late)[len(late) * 9 // 10]
    assert most < MAX_TURN_S, f"{most:.3f} s, of {len(late)}"


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [
        ("POST", "/files", "application/octet-stream"),
        ("POST", "/jobs", FORM),
        ("PATCH", "/jobs/JOB", "application/merge-patch+json"),
        ("POST", "/jobs/JOB/cancel", "application/json"),
        ("POST", "/jobs?file=FILE", "application/json"),
    ],
)
async def test_unsupported_content_encoding_is_refused(
    world: jobs_http.World, method: str, path: str, kind: str
) -> None:
    job = (await world.ask("POST", "/jobs", LINES)).json["id"]
    file = (await world.ask("POST", "/files", LINES)).json["id"]
    where = path.replace("JOB", job).replace("FILE", file)
    packed = gzip.compress(jobs_http.form(LINES) if kind == FORM else b"{}")
    refused = await world.ask(method, where, packed, Content_Type=kind, Content_Encoding="gzip")
    assert refused.status == 415, refused.body
    assert "Content-Encoding: gzip" in refused.json["detail"]


async def test_array_nested_too_deep_is_refused(world: jobs_http.World) -> None:
    packed = _archive(b"[" * (1 << 20), 15, before=b"[1,")
    refused = await world.ask("POST", "/jobs?format=json", packed)
    refused.assert_problem(422, "element 2 of the JSON array is nested more than 1,000 deep")
    fine = b"[" + b"[" * 999 + b"]" * 999 + b"]"
    assert (await world.ask("POST", "/jobs?format=json", fine)).status == 202


async def test_oversized_csv_header_is_refused(world: jobs_http.World) -> None:
    columns = b",".join(b"%x" % number for number in range(60_000)) + b"\n1\n"
    refused = await world.ask("POST", "/jobs?format=csv", columns)
    refused.assert_problem(422, "262,144")


async def test_too_many_parts_are_refused(world: jobs_http.World) -> None:
    refused = await world.ask("POST", "/jobs?itemsPerPart=1&maxParts=10001", LINES)
    refused.assert_problem(400, "maxParts=10001")
    made = await world.ask("POST", "/jobs?itemsPerPart=1&maxParts=2", LINES)
    assert (made.status, made.json["parts"]) == (202, 2)


async def test_form_part_with_endless_headers_is_refused(world: jobs_http.World) -> None:
    head = b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="' + b"a" * 40_000
    refused = await world.ask(
        "POST", "/jobs", head + b'"\r\n\r\n{}\r\n--xyz--\r\n', Content_Type=FORM
    )
    refused.assert_problem(400, "form")


async def test_action_with_a_body_is_refused(world: jobs_http.World) -> None:
    job = (await world.ask("POST", "/jobs", LINES)).json["id"]
    refused = await world.ask("POST", f"/jobs/{job}/pause", b'{"reason": "lunch"}')
    assert refused.status == 400
    assert (await world.ask("POST", f"/jobs/{job}/pause", b"{}")).status == 202


async def test_gzip_of_very_many_members_is_accepted(world: jobs_http.World) -> None:
    """gzip(1) reads the members as one file; no work is done per member."""
    packed = gzip.compress(b"\n") * 50_000
    assert len(list(gzip_unpacker.Unpacker().feed(packed))) == 1
    made = await world.ask("POST", "/jobs", packed)
    assert (made.status, made.json["input"]["lines"]) == (202, 50_000)
    assert (await world.ask("POST", "/jobs", gzip.compress(b"") * 50_000)).status == 400


async def test_other_multipart_types_are_refused(world: jobs_http.World) -> None:
    mixed = "multipart/mixed; boundary=xyz"
    refused = await world.ask("POST", "/jobs", jobs_http.form(LINES), Content_Type=mixed)
    refused.assert_problem(415, "multipart/form-data")


async def test_unsupported_transfer_encoding_is_refused(world: jobs_http.World) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(jobs_http.head("POST", "/jobs", length=None, Transfer_Encoding="gzip, chunked"))
    writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(LINES), LINES))
    refused = await jobs_http.reply(reader)
    writer.close()
    refused.assert_problem(501, "gzip, chunked")
