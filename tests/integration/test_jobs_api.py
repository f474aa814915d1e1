"""The Jobs API over real HTTP, except uploads: documents, pages, downloads, actions, watches."""

import asyncio
import hashlib
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import filejobs
from kilnwork.server.jobs import aksjobscheduler_settings, settings, watch
from support import jobs_http

LINES = b'{"id":"1"}\n{"id":"2"}\n{"id":"3"}\n'


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[jobs_http.World]:
    async with jobs_http.World(tmp_path, None).running() as running:
        yield running


async def _job(world: jobs_http.World, query: str = "itemsPerPart=1") -> str:
    made = await world.ask("POST", f"/jobs?{query}", LINES)
    return str(made.json["id"])


async def test_get_returns_the_job_document(world: jobs_http.World) -> None:
    job = await _job(world, "itemsPerPart=1&parallelism=2&name=mine")
    shown = (await world.ask("GET", f"/jobs/{job}")).json
    assert shown["status"] == "Not Started"
    assert (shown["parts"], shown["completions"], shown["parallelism"]) == (3, 4, 2)
    assert shown["records"] == {"total": 0, "succeeded": 0, "failed": 0, "skipped": 0}
    assert shown["storageBlobPrefix"] == f"default/{world.jobs.created[0].id.dashed}"
    assert shown["executionLocation"] == "cluster"
    assert shown["name"] == "mine"
    assert "succeeded" not in shown  # the original API left out zeros
    assert "runningOnAci" not in shown


async def test_finished_job_shows_full_progress(world: jobs_http.World) -> None:
    job = await _job(world)
    world.jobs.move(job, succeeded=2, failed=1, done_bytes=len(LINES))
    world.jobs.publish(job, b"{}\n")
    shown = (await world.ask("GET", f"/jobs/{job}")).json
    assert shown["status"] == "Complete"
    assert shown["completions"] == shown["succeeded"] == 4
    assert (shown["startTime"], shown["completionTime"])[0].endswith("Z")
    assert shown["progress"]["fraction"] == 1.0
    assert shown["progress"]["recordsPerSecond"] == 1.5


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"phase": filejobs.FileJobPhase.CANCELLED}, "Failed"),
        ({"phase": filejobs.FileJobPhase.FAILED}, "Failed"),
        ({"phase": filejobs.FileJobPhase.RUNNING}, "Not Started"),
    ],
)
async def test_status_uses_the_words_of_the_original_api(
    world: jobs_http.World, fields: dict[str, Any], status: str
) -> None:
    job = await _job(world)
    world.jobs.move(job, **fields)
    assert (await world.ask("GET", f"/jobs/{job}")).json["status"] == status


async def test_job_document_has_an_etag(world: jobs_http.World) -> None:
    job = await _job(world)
    first = await world.ask("GET", f"/jobs/{job}")
    same = await world.ask("GET", f"/jobs/{job}", If_None_Match=f'"x", {first.headers["etag"]}')
    assert (same.status, same.body) == (304, b"")
    world.jobs.move(job, message="on its way")
    later = await world.ask("GET", f"/jobs/{job}", If_None_Match=first.headers["etag"])
    assert later.status == 200
    assert later.headers["etag"] != first.headers["etag"]


async def test_wait_returns_at_the_end(world: jobs_http.World) -> None:
    job = await _job(world)
    asked = asyncio.create_task(world.ask("GET", f"/jobs/{job}?wait=50"))
    await asyncio.sleep(0)
    world.jobs.move(job, message="one part is done")
    world.jobs.publish(job, b"{}\n")
    assert (await asked).json["phase"] == "Succeeded"


async def test_job_list_is_paged(world: jobs_http.World) -> None:
    jobs = [await _job(world, f"name=n{number % 2}") for number in range(5)]
    seen: list[str] = []
    path = "/jobs?limit=2"
    while path:
        page = await world.ask("GET", path)
        seen += [one["id"] for one in page.json]
        link = page.headers.get("link", "")
        assert not link or link.endswith('>; rel="next"')
        path = link[1:].partition(">")[0]
    assert seen == jobs[::-1]
    assert len((await world.ask("GET", "/jobs?name=n1")).json) == 2
    assert (await world.ask("GET", "/jobs?phase=Running")).json == []
    assert (await world.ask("GET", "/jobs?namespace=other")).json == []


async def test_jobs_of_all_namespaces_need_the_right_to_list_them(
    world: jobs_http.World,
) -> None:
    jobs = [await _job(world), await _job(world, "namespace=team&name=theirs")]
    every = "/jobs?allNamespaces=true"
    found = (await world.ask("GET", every)).json
    assert [one["id"] for one in found] == jobs[::-1]
    assert [one["namespace"] for one in found] == ["team", "default"]
    first = await world.ask("GET", f"{every}&limit=1")
    following = first.headers["link"][1:].partition(">")[0]
    assert [one["id"] for one in (await world.ask("GET", following)).json] == jobs[:1]
    assert len((await world.ask("GET", f"{every}&name=theirs")).json) == 1
    assert (await world.ask("GET", "/jobs?allNamespaces=false")).json[0]["id"] == jobs[0]
    assert len((await world.ask("GET", f"{every}&namespace=team")).json) == 2
    assert (await world.ask("GET", f"{every}&namespace=No_name")).status == 400
    assert (await world.ask("GET", every, token="reader")).status == 403


async def test_part_list_is_paged(world: jobs_http.World) -> None:
    job = await _job(world)
    world.jobs.commit_part(job, 2, b"{}\n")
    first = await world.ask("GET", f"/jobs/{job}/parts?limit=2")
    assert [(one["part"], one["state"]) for one in first.json] == [(1, "Waiting"), (2, "Succeeded")]
    assert (first.json[1]["start"], first.json[1]["end"]) == (11, 22)
    path = first.headers["link"][1:].partition(">")[0]
    last = await world.ask("GET", path)
    assert [one["part"] for one in last.json] == [3]
    assert "link" not in last.headers
    done = await world.ask("GET", f"/jobs/{job}/parts?state=Succeeded")
    assert [one["part"] for one in done.json] == [2]


async def test_manifest_lists_the_files(world: jobs_http.World) -> None:
    job = await _job(world)
    shown = (await world.ask("GET", f"/jobs/{job}/manifest")).json
    assert (shown["bytes"], shown["lines"], len(shown["parts"])) == (33, 3, 3)
    crc32 = f"{zlib.crc32(LINES[11:22]):08x}"
    second = {"part": 2, "start": 11, "end": 22, "firstLine": 2, "lines": 1, "crc32": crc32}
    assert shown["parts"][1] == second
    world.jobs.commit_part(job, 2, b"{}\n")
    done = (await world.ask("GET", f"/jobs/{job}/manifest")).json["parts"][1]
    assert done["outcome"] == "Succeeded"
    assert (done["result"]["key"], done["result"]["bytes"]) == ("out/2-1-1.ndjson", 3)


async def test_result_before_the_end_is_refused(world: jobs_http.World) -> None:
    job = await _job(world)
    world.jobs.commit_part(job, 3, b"third\n")
    early = await world.ask("GET", f"/jobs/{job}/results")
    assert early.status == 409
    assert early.json["progress"]["parts"]["total"] == 3
    assert early.json["message"] == f"job {job} is Pending: 0 of 3 parts are done"
    assert (await world.ask("GET", f"/jobs/{job}/results?part=3")).body == b"third\n"
    assert (await world.ask("GET", f"/jobs/{job}/results?part=2")).status == 409
    assert (await world.ask("GET", f"/jobs/{job}/results?part=4")).status == 404
    assert (await world.ask("GET", f"/jobs/{job}/results?part=0")).status == 400
    assert (await world.ask("GET", "/jobs/none/results")).status == 404


async def test_failed_job_returns_its_partial_results(world: jobs_http.World) -> None:
    job = await _job(world)
    world.jobs.commit_part(job, 3, b"third\n", b'{"line":3}\n')
    world.jobs.commit_part(job, 1, b"first\n", b'{"line":1}\n')
    world.jobs.move(job, phase=filejobs.FileJobPhase.FAILED, message="part 2 crashed")
    refused = await world.ask("GET", f"/jobs/{job}/results")
    refused.assert_problem(409, "part 2 crashed")
    partial = await world.ask("GET", f"/jobs/{job}/results?partial=true")
    assert partial.body == b"first\nthird\n"
    assert (await world.ask("GET", f"/jobs/{job}/errors")).body == b'{"line":1}\n{"line":3}\n'


async def test_errors_before_the_end_are_partial(world: jobs_http.World) -> None:
    job = await _job(world)
    world.jobs.commit_part(job, 1, b"", b'{"line":1}\n')
    assert (await world.ask("GET", f"/jobs/{job}/errors")).status == 409
    assert (await world.ask("GET", f"/jobs/{job}/errors?partial=true")).body == b'{"line":1}\n'
    empty = await world.ask("GET", f"/jobs/{job}/errors?partial=")
    assert empty.status == 400
    assert b"partial=: give a value, or leave it out" in empty.body


async def test_results_support_ranges(world: jobs_http.World) -> None:
    job = await _job(world)
    result = bytes(range(256)) * 20_000  # five pieces
    world.jobs.publish(job, result)
    path = f"/jobs/{job}/results"
    whole = await world.ask("GET", path)
    assert whole.body == result
    assert whole.headers["accept-ranges"] == "bytes"
    assert whole.headers["content-type"] == "application/x-ndjson"
    etag = whole.headers["etag"]
    for span, found in (
        ("bytes=0-0", (0, 0)),
        ("bytes=1000000-3000000", (1_000_000, 3_000_000)),
        ("bytes=5119999-", (5_119_999, 5_119_999)),
        ("bytes=-10", (5_119_990, 5_119_999)),
        ("bytes=10-99999999", (10, 5_119_999)),
    ):
        part = await world.ask("GET", path, Range=span, If_Range=etag)
        first, last = found
        assert part.status == 206
        assert part.headers["content-range"] == f"bytes {first}-{last}/{len(result)}"
        assert part.body == result[first : last + 1]
    beyond = await world.ask("GET", path, Range="bytes=5120000-")
    assert (beyond.status, beyond.headers["content-range"]) == (416, "bytes */5120000")
    assert (await world.ask("GET", path, Range="bytes=0-1,5-6")).status == 200
    assert (await world.ask("GET", path, Range="bytes=0-9", If_Range='"other"')).status == 200
    assert (await world.ask("GET", path, If_None_Match=etag)).status == 304
    assert (await world.ask("GET", path, If_Match='"other"')).status == 412
    head = await world.ask("HEAD", path)
    assert (head.status, head.headers["content-length"]) == (200, "5120000")


async def test_input_is_returned(world: jobs_http.World) -> None:
    """A small input is returned although it is not in the store."""
    job = await _job(world)
    assert (await world.ask("GET", f"/jobs/{job}/input")).body == LINES
    part = await world.ask("GET", f"/jobs/{job}/input", Range="bytes=11-21")
    assert (part.status, part.body) == (206, LINES[11:22])


async def test_ranges_over_several_parts(world: jobs_http.World) -> None:
    job = await _job(world)
    for number, data in ((1, b"0123"), (2, b""), (3, b"456789")):
        world.jobs.commit_part(job, number, data)
    path = f"/jobs/{job}/results?partial=true"
    for first in range(10):
        for last in range(first, 10):
            part = await world.ask("GET", path, Range=f"bytes={first}-{last}")
            assert part.body == b"0123456789"[first : last + 1]


async def test_unmerged_result_joins_the_outputs_of_parts(world: jobs_http.World) -> None:
    job = await _job(world)
    outputs = (b"0123", b"", b"456789\n")
    for number, data in enumerate(outputs, 1):
        world.jobs.commit_part(job, number, data)
    path, whole = f"/jobs/{job}/results", b"".join(outputs)
    view = world.jobs.publish(job, whole, apart=True)
    shown = await world.ask("GET", path)
    assert (shown.status, shown.body) == (200, whole)
    assert shown.headers["etag"] == f'"{hashlib.sha256(whole).hexdigest()}"'
    assert (await world.ask("GET", path, Range="bytes=2-5")).body == whole[2:6]
    world.jobs.store.delete([f"{view.directory}/out/3-1-1.ndjson"])
    assert (await world.ask("GET", path)).status == 410


@pytest.mark.parametrize("parts", [32, 100])
async def test_download_of_many_files_is_complete_or_cut_off(
    world: jobs_http.World, parts: int
) -> None:
    """Open files may be deleted; a response that lacks other files is cut off, not complete."""
    made = await world.ask("POST", "/jobs?itemsPerPart=1", LINES[:11] * parts)
    job = str(made.json["id"])
    output = b"x" * (1 << 20)
    for number in range(1, parts + 1):
        world.jobs.commit_part(job, number, output)
    view = world.jobs.publish(job, output * parts, apart=True)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1 << 16)
    writer.write(jobs_http.head("GET", f"/jobs/{job}/results"))
    _, headers = await jobs_http.reply_head(reader)
    await world.jobs.delete("default", job)
    world.jobs.store.delete([f"{view.directory}/out/{n}-1-1.ndjson" for n in range(1, parts + 1)])
    length = int(headers["content-length"])
    assert length == len(output) * parts
    if parts == 32:
        assert await reader.readexactly(length) == output * parts
    else:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await reader.readexactly(length)
    writer.close()


async def test_empty_result_is_returned(world: jobs_http.World) -> None:
    job = await _job(world)
    world.jobs.publish(job, b"")
    shown = await world.ask("GET", f"/jobs/{job}/results")
    assert (shown.status, shown.body, shown.headers["content-length"]) == (200, b"", "0")


async def test_altered_result_is_not_sent(world: jobs_http.World) -> None:
    job = await _job(world)
    view = world.jobs.publish(job, b"0123456789\n")
    world.jobs.store.put(f"{view.directory}/result/1-1", b"01234\n")
    refused = await world.ask("GET", f"/jobs/{job}/results")
    refused.assert_problem(500, "has 6 bytes, not the 11")
    world.jobs.store.delete([f"{view.directory}/result/1-1"])
    assert (await world.ask("GET", f"/jobs/{job}/results")).status == 410


async def test_download_goes_on_after_the_job_is_deleted(world: jobs_http.World) -> None:
    job = await _job(world)
    result = b"x" * (32 << 20)
    view = world.jobs.publish(job, result)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1 << 16)
    writer.write(jobs_http.head("GET", f"/jobs/{job}/results"))
    _, headers = await jobs_http.reply_head(reader)
    await world.jobs.delete("default", job)
    world.jobs.store.delete([f"{view.directory}/result/1-1"])
    body = await reader.readexactly(int(headers["content-length"]))
    assert body == result
    writer.close()


@pytest.mark.parametrize("act", ["cancel", "pause", "resume", "redrive"])
async def test_job_actions_are_passed_on(world: jobs_http.World, act: str) -> None:
    job = await _job(world)
    done = await world.ask("POST", f"/jobs/{job}/{act}")
    assert done.status == 202
    assert done.json["id"] == job
    assert world.jobs.acts == [(act, job)]
    assert (await world.ask("POST", f"/jobs/none/{act}")).status == 404
    assert (await world.ask("POST", f"/jobs/{job}/{act}", token="reader")).status == 403
    assert (await world.ask("GET", f"/jobs/{job}/{act}")).headers["allow"] == "OPTIONS, POST"


async def test_action_on_a_finished_job_is_a_conflict(world: jobs_http.World) -> None:
    job = await _job(world)
    world.jobs.publish(job, b"")
    refused = await world.ask("POST", f"/jobs/{job}/pause")
    assert (refused.status, refused.json["reason"]) == (409, "Conflict")
    assert "is over" in refused.json["detail"]


async def test_patch_changes_the_spec(world: jobs_http.World) -> None:
    job = await _job(world)
    kind = "application/merge-patch+json"
    path = f"/jobs/{job}"
    patch = b'{"parallelism":2,"maxFailedPercent":1.5}'
    changed = await world.ask("PATCH", path, patch, Content_Type=kind)
    assert changed.json["spec"]["parallelism"] == 2
    assert changed.json["spec"]["maxFailedPercent"] == 1.5
    patch = b'{"spec":{"parallelism":null}}'
    changed = await world.ask("PATCH", path, patch, Content_Type=kind)
    assert "parallelism" not in changed.json["spec"]
    stale = await world.ask("PATCH", path, b"{}", Content_Type=kind, If_Match='"x"')
    assert stale.status == 412
    for wrong in (
        b'{"parallelism":0}',
        b'{"mapper":{}}',
        b"[]",
        b"{",
        b'{"spec":{"x":1}}',
        b"\xff",
    ):
        refused = await world.ask("PATCH", path, wrong, Content_Type=kind)
        assert refused.status == 400, wrong
        assert "parallelism" in refused.json["detail"]
    refused = await world.ask("PATCH", path, b"{}", Content_Type="text/plain")
    assert (refused.status, refused.headers["accept-patch"]) == (415, kind)


async def test_delete_removes_the_job(world: jobs_http.World) -> None:
    job = await _job(world)
    assert (await world.ask("DELETE", f"/jobs/{job}", token="reader")).status == 403
    gone = await world.ask("DELETE", f"/jobs/{job}")
    assert (gone.status, gone.body) == (202, b"")
    assert (await world.ask("DELETE", f"/jobs/{job}")).status == 404
    assert (await world.ask("GET", f"/jobs/{job}")).status == 404


async def test_wrong_methods_are_refused_with_allow(world: jobs_http.World) -> None:
    job = await _job(world)
    options = await world.ask("OPTIONS", f"/jobs/{job}")
    assert (options.status, options.headers["allow"]) == (204, "DELETE, GET, HEAD, OPTIONS, PATCH")
    refused = await world.ask("PUT", "/jobs")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
    head = await world.ask("HEAD", f"/jobs/{job}")
    whole = await world.ask("GET", f"/jobs/{job}")
    assert head.headers["content-length"] == str(len(whole.body))
    nothing = await world.ask("GET", "/jobs/a/b/c")
    assert (nothing.status, nothing.json["title"]) == (404, "NotFound")


async def test_documentation_lists_all_routes(world: jobs_http.World) -> None:
    page = (await world.ask("GET", "/jobs/openapi.json")).json
    for path, item in page["paths"].items():
        listed = {name.upper() for name in item if name != "parameters"} | {"OPTIONS"}
        listed |= {"HEAD"} if "GET" in listed else set()
        real = path.replace("{job}", "x").replace("{file}", "x")
        allowed = (await world.ask("OPTIONS", real)).headers["allow"]
        assert set(allowed.split(", ")) == listed, path


async def test_request_without_a_token_is_refused(world: jobs_http.World) -> None:
    refused = await world.ask("GET", "/jobs", token="")
    assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert "kiln token" in refused.json["detail"]


async def test_unknown_parameters_are_named(world: jobs_http.World) -> None:
    refused = await world.ask("GET", "/jobs?limt=3")
    refused.assert_problem(400, "limt")
    assert "limit" in refused.json["detail"]


class Stream:
    """A watch, read event by event."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._chunks = jobs_http.chunks(reader)
        self.writer = writer

    async def event(self) -> dict[str, str]:
        async for chunk in self._chunks:
            lines = chunk.decode().strip().split("\n")
            if not lines[0].startswith(":"):
                return dict(line.split(": ", 1) for line in lines)
        return {}

    async def comment(self) -> str:
        async for chunk in self._chunks:
            return chunk.decode()
        return "the end"


async def _watch(world: jobs_http.World, job: str, last: str | None = None) -> Stream:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(jobs_http.head("GET", f"/jobs/{job}/watch", Last_Event_ID=last or "none"))
    status, found = await jobs_http.reply_head(reader)
    assert (status, found["content-type"]) == (200, "text/event-stream; charset=utf-8")
    return Stream(reader, writer)


async def test_watch_streams_until_the_end(world: jobs_http.World) -> None:
    job = await _job(world)
    stream = await _watch(world, job)
    first = await stream.event()
    assert (first["event"], first["id"]) == ("job", "1")
    world.jobs.move(job, message="one")
    world.jobs.move(job, message="two")
    assert (await stream.event())["id"] == "3"
    world.jobs.publish(job, b"")
    last = await stream.event()
    assert '"status":"Complete"' in last["data"]
    assert await stream.event() == {}
    stream.writer.close()
    ended = await world.ask("GET", f"/jobs/{job}/watch", Last_Event_ID=last["id"])
    assert ended.status == 204  # an EventSource stops


async def test_watch_reports_the_end_at_once(
    world: jobs_http.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "PAUSE_S", 3600.0)
    job = await _job(world)
    stream = await _watch(world, job)
    await stream.event()
    world.jobs.move(job, message="one")
    world.jobs.publish(job, b"")
    assert '"status":"Complete"' in (await stream.event())["data"]
    stream.writer.close()


async def test_watch_resumes_at_the_last_event(world: jobs_http.World) -> None:
    job = await _job(world)
    stream = await _watch(world, job, "1")
    assert (await stream.comment()).startswith(": nothing new")
    world.jobs.move(job, message="one")
    assert (await stream.event())["id"] == "2"
    stream.writer.close()
    stream = await _watch(world, job, "1")
    assert (await stream.event())["id"] == "2"
    await world.jobs.delete("default", job)
    assert (await stream.event())["event"] == "deleted"
    stream.writer.close()


async def test_quiet_watch_is_kept_open(
    world: jobs_http.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "HEARTBEAT_S", 0.02)
    job = await _job(world)
    stream = await _watch(world, job)
    await stream.event()
    assert await stream.comment() == ":\n\n"
    assert await stream.comment() == ":\n\n"
    stream.writer.close()


@pytest.fixture
async def compat(tmp_path: Path) -> AsyncIterator[jobs_http.World]:
    chosen = settings.JobsApiSettings(
        source=aksjobscheduler_settings.read({"ITEMSPERJOB": "2", "CONTAINERNAME": "mine"})
    )
    async with jobs_http.World(tmp_path, chosen).running() as running:
        yield running


async def test_compatible_mode_responds_as_the_original_api(compat: jobs_http.World) -> None:
    """Without tokens: the id as text, then the document as the README of that API shows it."""
    kind = "multipart/form-data; boundary=xyz"
    made = await compat.ask(
        "POST", "/jobs?gpu=K80&x=1", jobs_http.form(LINES), token="", Content_Type=kind
    )
    assert made.headers["content-type"] == "text/plain; charset=utf-8"
    job = made.body.decode()
    compat.jobs.publish(job, b"{}\n")
    shown = await compat.ask("GET", f"/jobs/{job}", token="")
    assert [*shown.json][:11] == [
        *("id", "status", "startTime", "completionTime", "succeeded", "parallelism", "parts"),
        *("completions", "storageContainer", "storageBlobPrefix", "executionLocation"),
    ]
    assert shown.json["storageContainer"] == "mine"
    assert shown.json["runningOnAci"] is False
    assert (shown.json["parts"], shown.json["parallelism"]) == (2, 2)
    assert (await compat.ask("GET", f"/jobs/{job}/results", token="")).body == b"{}\n"
    assert len((await compat.ask("GET", "/jobs", token="")).json) == 1
    assert (await compat.ask("DELETE", f"/jobs/{job}", token="")).status == 202


async def test_request_without_a_token_is_limited_to_the_original_api(
    compat: jobs_http.World,
) -> None:
    for query in ("command=cat", "itemsPerPart=1", "spec=%7B%7D", "mapper=identity"):
        refused = await compat.ask("POST", f"/jobs?{query}", LINES, token="")
        refused.assert_problem(401, f"{query.partition('=')[0]} needs a token")
    kind = "multipart/form-data; boundary=xyz"
    form = jobs_http.form(LINES, mapper="identity")
    assert (await compat.ask("POST", "/jobs", form, token="", Content_Type=kind)).status == 401
    made = await compat.ask("POST", "/jobs?other=1", LINES, token="")
    assert made.status == 202
    assert compat.jobs.created[0].spec == filejobs.FileJobSpec(items_per_part=2, parallelism=2)
    job = made.body.decode()
    for method, path in (
        ("POST", f"/jobs/{job}/cancel"),
        ("PATCH", f"/jobs/{job}"),
        ("GET", f"/jobs/{job}/parts"),
        ("GET", f"/jobs/{job}/watch"),
        ("GET", f"/jobs/{job}/errors"),
        ("GET", f"/jobs/{job}/input"),
        ("GET", "/files"),
        ("POST", "/files"),
        ("GET", "/jobs?namespace=other"),
        ("GET", "/jobs?allNamespaces=true"),
    ):
        assert (await compat.ask(method, path, token="")).status == 401, path


async def test_requests_of_browser_pages_are_refused(compat: jobs_http.World) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
        assert (await compat.ask("POST", "/jobs", LINES, token="", **headers)).status == 401
    reader, writer = await asyncio.open_connection("127.0.0.1", compat.port)
    writer.write(b"GET /jobs HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    assert (await jobs_http.reply_head(reader))[0] == 401
    writer.close()


async def test_token_allows_all_parameters_in_compatible_mode(compat: jobs_http.World) -> None:
    made = await compat.ask("POST", "/jobs?itemsPerPart=1&mapper=identity", LINES)
    assert made.headers["content-type"].startswith("text/plain")
    made = await compat.ask("POST", "/jobs?itemsPerPart=1", LINES, Accept="application/json")
    assert made.json["parts"] == 3
