"""File jobs on a real dispatcher with real workers: restarts, kills, cancelling, 10,000 parts."""

import hashlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kilnwork.api import filejobs
from kilnwork.data.records import intake
from kilnwork.data.stores import port, store_urls
from kilnwork.dispatch.hub import hub
from kilnwork.jobs import file_job_service, file_job_types, service_assembly
from kilnwork.kit import clock, processes
from support import hubs, short_paths, waiting, worker_process

NS = "default"
_P = filejobs.FileJobPhase


class World:
    """A data directory with dispatcher and jobs that may be restarted, and a worker."""

    def __init__(self, directory: Path, run: Path) -> None:
        self.directory = directory
        self.socket = run / "channel.sock"
        self.worker = worker_process.WorkerProcess(
            directory, channel=self.socket, PYTHONPATH=os.pathsep.join(_PATHS)
        )
        self.hub: hub.Hub
        self.jobs: file_job_service.FileJobs

    async def start(self) -> None:
        self.hub = hubs.make(self.directory, secret="opensesame")
        await self.hub.start(self.socket)
        self.services = service_assembly.JobServices(
            self.directory, self.hub.participation, clock=clock.SystemClock()
        )
        self.jobs = self.services.files
        await self.services.start()

    async def stop(self) -> None:
        await self.services.stop()
        await self.hub.stop()

    async def create(self, content: bytes, **spec: Any) -> file_job_types.JobView:
        found = msgspec.convert({"clusterName": "counter", **spec}, filejobs.FileJobSpec)
        taken = intake.Intake(found)
        data = b"".join(taken.feed(content))
        rest, manifest = taken.finish()
        data += rest
        new = self.jobs.new_id()
        self.jobs.store.put(f"{NS}/{new.dashed}/input", data)
        view, _ = await self.jobs.create(
            file_job_types.NewJob(id=new, namespace=NS, spec=found, manifest=manifest)
        )
        return view

    async def until(
        self, job: str, what: Callable[[file_job_types.JobView], object], *, timeout_s: float = 40.0
    ) -> file_job_types.JobView:
        def look() -> file_job_types.JobView | None:
            view = self.jobs.job(NS, job)
            return view if view is not None and what(view) else None

        try:
            found = await waiting.wait_until_async(look, what="the job", timeout_s=timeout_s)
        except AssertionError:
            text = self.worker.log.read_text()[-3000:]
            raise AssertionError(f"{self.jobs.job(NS, job)}\n{text}") from None
        assert found is not None
        return found

    async def finished(self, job: str, *, timeout_s: float = 40.0) -> file_job_types.JobView:
        return await self.until(job, lambda view: view.phase.final, timeout_s=timeout_s)

    async def result(self, view: file_job_types.JobView) -> bytes:
        assert view.progress.output is not None, view.message
        directory = self.directory_of(view)
        files = [view.progress.output]
        if view.progress.output.key == filejobs.OUTPUTS:
            commits = await self.jobs.commits(NS, view.id)
            files = [one.output for one in commits if one.output is not None]
        content = b"".join(port.read_all(directory, one.key, most=1 << 30) for one in files)
        assert hashlib.sha256(content).hexdigest() == view.progress.output.sha256
        return content

    def directory_of(self, view: file_job_types.JobView) -> port.Store:
        return store_urls.open_store(
            store_urls.url_inside(self.jobs.store.url, *view.directory.split("/"))
        )


_PATHS = [str(Path(__file__).parents[1])]


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[World]:
    run = short_paths.directory()
    made = World(directory, run)
    await made.start()
    made.worker.start()
    try:
        yield made
    finally:
        made.worker.destroy()
        await made.stop()


def lines(number: int) -> bytes:
    return b"".join(b'{"n":%d}\n' % n for n in range(1, number + 1))


IDENTITY = {"builtin": "identity"}


async def test_file_is_mapped_in_slots_and_merged_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        view = await world.create(lines(1000), itemsPerPart=30, mapper=IDENTITY)
        done = await world.finished(view.id)
        assert await world.result(done) == lines(1000)
        assert (done.parts.succeeded, done.progress.records.succeeded) == (34, 1000)
        parts = await world.jobs.parts(NS, view.id, limit=100)
        assert [one.state for one in parts] == [file_job_types.PartState.SUCCEEDED] * 34
        assert min(one.attempt for one in parts) == 1


async def test_large_outputs_are_not_copied_and_yet_verified(tmp_path: Path) -> None:
    """One output is altered while other parts are mapped, and the worker is killed when all
    exist.
    """
    content = b"".join(b'{"n":%d,"of":"%s"}\n' % (n, b"x" * (600 << 10)) for n in range(8))
    async with running(tmp_path) as world:
        view = await world.create(
            content, itemsPerPart=2, mapper={"command": ["sh", "-c", "sleep 0.3; cat"]}
        )
        await world.until(view.id, lambda one: one.parts.succeeded)
        hurt = (await world.jobs.commits(NS, view.id))[0].output
        assert hurt is not None
        directory = world.directory_of(view)
        directory.put(hurt.key, port.read_all(directory, hurt.key)[:-3] + b"!}\n")
        await world.until(view.id, lambda one: one.parts.succeeded == 4)
        processes.signal_all(world.worker.descendants(), signal.SIGKILL)
        done = await world.finished(view.id)
        assert (done.phase, done.run) == (_P.SUCCEEDED, 2)
        assert await world.result(done) == content
        assert done.progress.output is not None
        assert done.progress.output.key == filejobs.OUTPUTS
        assert not list(directory.list("result/"))


async def test_dispatcher_and_jobs_restart_while_parts_run(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        view = await world.create(
            lines(60), itemsPerPart=2, mapper={"command": ["sh", "-c", "sleep 0.1; cat"]}
        )
        for number in (3, 9, 15):
            await world.until(view.id, lambda one, n=number: one.parts.succeeded >= n)  # type: ignore[misc]
            await world.stop()
            await world.start()
        done = await world.finished(view.id)
        assert await world.result(done) == lines(60)
        assert done.run == 1


async def test_worker_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        view = await world.create(
            lines(40), itemsPerPart=2, mapper={"command": ["sh", "-c", "sleep 0.1; cat"]}
        )
        await world.until(view.id, lambda one: one.parts.succeeded >= 3)
        processes.signal_all(world.worker.descendants(), signal.SIGKILL)
        done = await world.finished(view.id)
        assert await world.result(done) == lines(40)
        assert done.progress.records.total == 40


async def test_cancel_stops_running_parts_and_keeps_finished_ones(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        # Not so short that others are sent ahead to the slots of those that end.
        first = 'read line; echo "$line"; case $line in *:1}|*:2}) sleep 0.1;; *) sleep 1000;; esac'
        view = await world.create(
            lines(20), itemsPerPart=1, mapper={"command": ["sh", "-c", first]}
        )
        await world.until(view.id, lambda one: one.parts.succeeded == 2 and one.parts.running == 2)
        await world.jobs.cancel(NS, view.id)
        done = await world.finished(view.id)
        assert done.phase is _P.CANCELLED
        assert (done.parts.succeeded, done.parts.cancelled) == (2, 18)
        assert not [one for one in world.worker.descendants() if _sleeps(one)]


def _sleeps(pid: int) -> bool:
    try:
        return b"1000" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


async def test_crashing_mapper_fails_its_job_soon(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        view = await world.create(
            lines(300),
            itemsPerPart=1,
            mapper={"command": ["sh", "-c", "exit 3"]},
            retry={"maxAttempts": 2, "delaySeconds": 0},
        )
        done = await world.finished(view.id)
        assert (done.phase, done.reason) == (_P.FAILED, "MapperCrashes")
        assert done.failures <= 2 * 7
        assert done.parts.failed + done.parts.cancelled == 300


@pytest.mark.timeout(180)
async def test_ten_thousand_parts_are_mapped(memory_path: Path) -> None:
    async with running(memory_path) as world:
        view = await world.create(lines(10_000), itemsPerPart=1, mapper=IDENTITY)
        assert view.parts.total == 10_000
        done = await world.finished(view.id, timeout_s=170)
        assert await world.result(done) == lines(10_000)
        assert len(msgspec.json.encode(done)) < 4096
        pages, after = [], 0
        while page := await world.jobs.parts(NS, view.id, after=after, limit=500):
            pages.append(len(msgspec.json.encode(page)))
            after = page[-1].part.number
        assert after == 10_000
        assert max(pages) <= 512 * 1024
