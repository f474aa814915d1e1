"""The Jobs API against clients that mean harm or know no better: no 5xx, and a loop that turns."""

import asyncio
import gc
import gzip
import os
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.server.jobs import settings
from support import jobs_http, waiting

LINES = b'{"id":"1"}\n{"id":"2"}\n{"id":"3"}\n'
DIGITS = "9" * 5000
"""More than Python's `int` reads."""

FORM = "multipart/form-data; boundary=xyz"
LONGEST_TURN_S = 0.25
"""Of the event loop, as work of its thread; what is guarded against took seconds."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[jobs_http.World]:
    async with jobs_http.World(tmp_path, None).running() as running:
        yield running


async def _longest_turn_s(world: jobs_http.World, path: str, body: bytes, **headers: str) -> float:
    """How long the server's loop, which is ours too, worked at once to take a request in."""
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
async def test_numbers_of_thousands_of_digits(world: jobs_http.World, path: str) -> None:
    job = (await world.ask("POST", "/jobs", LINES)).json["id"]
    assert (await world.ask("GET", path.replace("JOB", job))).status == 400


@pytest.mark.parametrize(
    "query", ["name=a&name=b", "mapper=identity&x=1&mapper=a:b", "&name=&name"]
)
async def test_what_is_said_twice_is_refused(world: jobs_http.World, query: str) -> None:
    """Whoever looks at requests before us, a proxy say, may go by the other one."""
    refused = await world.ask("POST", f"/jobs?{query}", LINES)
    assert refused.status == 400
    assert "more than once" in refused.json["detail"]
    field = b'--xyz\r\nContent-Disposition: form-data; name="priority"\r\n\r\n1\r\n'
    twice = field + jobs_http.form(LINES, priority="2")
    refused = await world.ask("POST", "/jobs", twice, Content_Type=FORM)
    assert refused.status == 400
    assert "more than once" in refused.json["detail"]


@pytest.mark.parametrize("number", [DIGITS, "٣", "0", "-1"])
async def test_batches_of_no_size(world: jobs_http.World, number: str) -> None:
    data = jobs_http.form(LINES, mapper="a:b", batchRecords=number)
    assert (await world.ask("POST", "/jobs", data, Content_Type=FORM)).status == 400


async def test_an_event_that_never_was(world: jobs_http.World) -> None:
    job = (await world.ask("POST", "/jobs", LINES)).json["id"]
    world.jobs.publish(job, b"{}\n")
    watched = await world.ask("GET", f"/jobs/{job}/watch", Last_Event_ID=DIGITS)
    assert watched.status == 200
    assert watched.body.startswith(b"event: job\n")


async def test_a_small_archive_is_not_unpacked_on_the_loop(world: jobs_http.World) -> None:
    archive = gzip.compress(b"\n" * 15_000_000)
    assert len(archive) < 64 << 10
    assert await _longest_turn_s(world, "/jobs", archive) < LONGEST_TURN_S


async def test_a_header_of_many_columns(world: jobs_http.World) -> None:
    columns = b",".join(b"%x" % number for number in range(11_000)) + b"\n1\n"
    assert len(columns) < 64 << 10
    assert await _longest_turn_s(world, "/jobs?format=csv", columns) < LONGEST_TURN_S


async def test_a_command_of_half_a_mebibyte(world: jobs_http.World) -> None:
    data = jobs_http.form(LINES, command="a" * 500_000)
    assert await _longest_turn_s(world, "/jobs", data, Content_Type=FORM) < LONGEST_TURN_S
    data = jobs_http.form(LINES, command="a" * 20_000)
    refused = await world.ask("POST", "/jobs", data, Content_Type=FORM)
    assert refused.status == 400
    assert "JSON array" in refused.json["detail"]


async def test_a_spec_is_short(world: jobs_http.World) -> None:
    """It is part of each document of its job."""
    data = jobs_http.form(LINES, command='["' + "a" * 100_000 + '"]')
    refused = await world.ask("POST", "/jobs", data, Content_Type=FORM)
    assert refused.status == 400
    assert "65,536 bytes" in refused.json["detail"]


async def test_what_was_refused_is_not_kept_in_memory(world: jobs_http.World) -> None:
    """Not until the next collection either: few objects, many bytes, so that none is due."""
    endless = b'["' + b"a" * (20 << 20)
    assert (await world.ask("POST", "/jobs?format=json", endless)).status == 422
    gc.disable()
    tracemalloc.start()
    try:
        for _ in range(6):
            assert (await world.ask("POST", "/jobs?format=json", endless)).status == 422
        await waiting.wait_until_async(  # the last answer goes out before its request is over
            lambda: tracemalloc.get_traced_memory()[0] < 10 << 20, what="memory is free"
        )
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize("name", ["n" * 254, "%1b]0;owned%07", "a%0ab", "%c2%9b31m"])
async def test_names_that_no_terminal_should_show(world: jobs_http.World, name: str) -> None:
    assert (await world.ask("POST", f"/jobs?name={name}", LINES)).status == 400


async def test_a_form_of_very_many_fields(world: jobs_http.World) -> None:
    fields = b"".join(
        b'--xyz\r\nContent-Disposition: form-data; name="x%d"\r\n\r\n\r\n' % number
        for number in range(1000)
    )
    refused = await world.ask("POST", "/jobs", fields + jobs_http.form(LINES), Content_Type=FORM)
    assert refused.status == 400
    assert "100 fields" in refused.json["detail"]


async def test_a_boundary_longer_than_any(world: jobs_http.World) -> None:
    kind = "multipart/form-data; boundary=" + "x" * 300
    data = jobs_http.form(LINES, boundary="x" * 300)
    assert (await world.ask("POST", "/jobs", data, Content_Type=kind)).status == 400


@pytest.mark.parametrize("left", [None, 20])
async def test_a_file_that_lost_a_piece_is_no_input(
    world: jobs_http.World, left: int | None
) -> None:
    """Somebody deletes it while it is copied, or in the store: never a job of what is left."""
    begun = await world.ask("POST", "/files", LINES[:11], Upload_Complete="?0")
    path = begun.headers["location"]
    more = {"Upload_Offset": "11", "Upload_Complete": "?1"}
    done = await world.ask(
        "PATCH", path, LINES[11:], Content_Type="application/partial-upload", **more
    )
    assert done.json["complete"]
    (name,) = [name for name in world.stored() if name.endswith("/bytes")]
    path_in_store = world.folder / "files" / name
    if left is None:
        path_in_store.unlink()
    else:
        os.truncate(path_in_store, left)
    refused = await world.ask("POST", f"/jobs?file={path.rpartition('/')[2]}")
    assert refused.status == 409
    assert world.jobs.created == []


async def test_a_file_that_is_deleted_stays_so(world: jobs_http.World) -> None:
    """Also when more of it is on the way."""
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


async def test_a_file_gets_no_longer_than_was_said(world: jobs_http.World) -> None:
    begun = await world.ask("POST", "/files", Upload_Complete="?0", Upload_Length="10")
    path, kind = begun.headers["location"], "application/partial-upload"
    refused = await world.ask(
        "PATCH", path, b"x" * 11, Content_Type=kind, Upload_Offset="0", Upload_Complete="?0"
    )
    assert refused.status == 413
    assert (await world.ask("HEAD", path)).headers["upload-offset"] == "0"
    assert (await world.ask("POST", "/files", b"x" * 11, Upload_Length="10")).status == 413


async def test_what_the_store_refuses_is_in_the_log(
    world: jobs_http.World, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer sends people there; it does not tell clients of our folders."""
    folder = world.folder / "files"
    folder.write_bytes(b"in the way")
    refused = await world.ask("POST", "/jobs", LINES * 5000)
    assert refused.status == 500
    assert str(folder) not in refused.body.decode()
    (told,) = [record for record in caplog.records if record.message == "request failed"]
    assert told.exc_info is not None
    assert str(folder) in str(told.exc_info[1])


async def test_what_is_refused_for_now_leaves_no_file(tmp_path: Path) -> None:
    async with jobs_http.World(tmp_path, settings.Settings(uploads=0)).running() as world:
        assert (await world.ask("POST", "/files", LINES)).status == 429
        assert world.stored() == []
