"""Files of file jobs, listed and read by the agents of ponds."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from kilnwork.api import filejobs, pond_messages
from kilnwork.kit import asgi, serving
from kilnwork.server import errors, pond_job_files, problems
from support import jobs_http

LINES = b'{"id":"1"}\n{"id":"2"}\n{"id":"3"}\n'


class World:
    """Jobs over HTTP, and their files on a port of their own."""

    def __init__(self, jobs: jobs_http.World) -> None:
        self.jobs = jobs.jobs
        self.http = jobs
        self.files = pond_job_files.PondFiles(jobs.jobs)
        self._reader = jobs_http.World(jobs.directory, None)

    async def job(self) -> str:
        made = await self.http.ask("POST", "/jobs?itemsPerPart=1", LINES)
        return str(made.json["id"])

    async def listed(
        self, job: str, directory: str, *, namespace: str = "default"
    ) -> dict[str, int]:
        encoded = await self.files.listing(namespace, job, directory)
        found = msgspec.json.decode(encoded, type=pond_messages.FileList)
        return {one.path: one.size for one in found.files}

    async def read(self, job: str, path: str, **headers: str) -> jobs_http.Reply:
        self._reader.port = self.port
        return await self._reader.ask("GET", f"/{job}/{path}", b"", **headers)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        listening = serving.bind("127.0.0.1", 0)
        self.port = int(listening.getsockname()[1])
        listener = serving.Listener(self._serve, listening)
        await listener.start()
        try:
            yield self
        finally:
            await listener.stop(timeout_s=1)

    async def _serve(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        request, response = asgi.Request(scope, receive), problems.response(send)
        job, directory, path = request.segments
        work = self.files.send(request, ("default", job, directory, path), response)
        await problems.respond(work, request, response)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with jobs_http.World(tmp_path, None).running() as jobs, World(jobs).running() as made:
        yield made


async def test_job_directories_are_listed(world: World) -> None:
    job = await world.job()
    world.jobs.commit_part(job, 1, b"first\n")
    world.jobs.commit_part(job, 3, b"third\n", b'{"line":3}\n')
    world.jobs.publish(job, b"all\n")

    assert await world.listed(job, "results") == {"results.ndjson": 4}
    assert await world.listed(job, "parts") == {"00001.ndjson": 6, "00003.ndjson": 6}
    assert await world.listed(job, "errors") == {"00003.ndjson": 11}
    assert await world.listed(job, "input") == {"input.jsonl": len(LINES)}
    assert (await world.read(job, "results/results.ndjson")).body == b"all\n"
    assert (await world.read(job, "parts/00003.ndjson")).body == b"third\n"
    assert (await world.read(job, "errors/00003.ndjson")).body == b'{"line":3}\n'
    assert (await world.read(job, "input/input.jsonl")).body == LINES


async def test_file_transfer_resumes_where_it_broke_off(world: World) -> None:
    job = await world.job()
    world.jobs.publish(job, b"0123456789")
    whole = await world.read(job, "results/results.ndjson")
    etag = whole.headers["etag"]

    rest = await world.read(job, "results/results.ndjson", Range="bytes=4-", If_Range=etag)

    assert (rest.status, rest.body) == (206, b"456789")
    encoded = await world.files.listing("default", job, "results")
    [listed] = msgspec.json.decode(encoded, type=pond_messages.FileList).files
    assert etag == f'"{listed.digest}"'


async def test_running_job_has_only_its_input(world: World) -> None:
    job = await world.job()
    world.jobs.commit_part(job, 1, b"first\n")

    for directory in ("results", "parts", "errors"):
        with pytest.raises(errors.Conflict, match="0 of 3 parts are done"):
            await world.listed(job, directory)
    assert await world.listed(job, "input") == {"input.jsonl": len(LINES)}
    assert (await world.read(job, "parts/00001.ndjson")).status == 409


async def test_failed_job_has_no_results(world: World) -> None:
    job = await world.job()
    world.jobs.commit_part(job, 1, b"first\n", b'{"line":1}\n')
    world.jobs.move(job, phase=filejobs.FileJobPhase.FAILED, message="part 2 crashed")

    with pytest.raises(errors.Gone, match="part 2 crashed; `kiln redrive"):
        await world.listed(job, "results")
    assert await world.listed(job, "errors") == {"00001.ndjson": 11}


@pytest.mark.parametrize(
    "path",
    ["results/x", "parts/1", "parts/00009.ndjson", "parts/%C2%B2", "parts/00002.ndjson", "x/y"],
)
async def test_missing_files_are_not_found(world: World, path: str) -> None:
    job = await world.job()
    world.jobs.commit_part(job, 1, b"first\n")
    world.jobs.publish(job, b"all\n")

    assert (await world.read(job, path)).status == 404


async def test_jobs_of_other_namespaces_are_not_found(world: World) -> None:
    job = await world.job()

    with pytest.raises(errors.NotFound, match="in namespace team"):
        await world.listed(job, "input", namespace="team")
