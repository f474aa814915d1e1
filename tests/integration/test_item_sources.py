"""The engine of jobs with another source than files, on a real dispatcher with a real worker."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw

from kilnwork.api import filejobs
from kilnwork.api import task as api_task
from kilnwork.dispatch.hub import hub
from kilnwork.jobs import engine, facts, items, model, records, rows, task_hub
from kilnwork.kit import clock, ids
from support import hubs, index_items, short, waiting, worker_process

NS = "default"
_P, _T = filejobs.Phase, api_task.State
_TESTS = str(Path(__file__).parents[1])


class House:
    """A data directory with dispatcher and engine that may be restarted, and a worker."""

    def __init__(self, folder: Path, run: Path, *, kept_tasks: int) -> None:
        self.folder, self.socket, self.kept_tasks = folder, run / "channel.sock", kept_tasks
        self.worker = worker_process.WorkerProcess(folder, channel=self.socket, PYTHONPATH=_TESTS)
        self.time = clock.SystemClock()
        self.row = 0
        self.hub: hub.Hub
        self.engine: engine.Engine

    async def start(self) -> None:
        self.hub = hubs.make(self.folder, clock=self.time, secret="opensesame")
        await self.hub.start(self.socket)
        sources = {"index": index_items.IndexKind()}
        self.engine = engine.Engine(
            self.hub.participation, sources=sources, clock=self.time, ttl_s=None
        )
        self.engine.kept_tasks = self.kept_tasks
        self.engine.start()

    async def stop(self) -> None:
        await self.engine.stop()
        await self.hub.stop()

    async def create(self, count: int, **spec: Any) -> bytes:
        """Return the UUID of a new job."""
        self.row += 1
        uuid = bytes(ids.new_task_id())
        job = records.Job(
            model.JobId(uuid, f"job-{self.row}"),
            row=self.row,
            namespace=NS,
            spec=index_items.IndexSpec(str(self.folder), **spec),
            source=index_items.IndexItems(index_items.IndexSet(count), index_items.IndexProgress()),
            created=self.time.wall(),
        )
        job.fresh = True
        self.engine.add(job, None, None)
        await self.engine.settled(job)
        return uuid

    def job(self, uuid: bytes) -> records.Job:
        """Return the job, loaded if memory had let go of it."""
        row = self.engine.tables.job("uuid", uuid)
        assert row is not None
        return self.engine.load(row)

    def view(self, uuid: bytes) -> model.View[Any, Any]:
        row = self.engine.tables.job("uuid", uuid)
        assert row is not None
        return rows.view_of(row, index_items.IndexKind())

    async def until(
        self, uuid: bytes, what: Callable[[model.View[Any, Any]], object]
    ) -> model.View[Any, Any]:
        def look() -> model.View[Any, Any] | None:
            view = self.view(uuid)
            return view if what(view) else None

        found = await waiting.wait_until_async(look, what="the job", timeout_s=60.0)
        assert found is not None
        return found

    async def finished(self, uuid: bytes) -> model.View[Any, Any]:
        return await self.until(uuid, lambda view: view.phase.final)

    def tasks(self, job: bytes, count: int) -> dict[int, api_task.State]:
        """Return the states of those tasks of a job's items that the dispatcher has."""
        views = ((n, self.hub.view(task_hub.task_id(job, n))) for n in range(1, count + 1))
        return {number: view.state for number, view in views if view is not None}

    @property
    def size(self) -> int:
        """Bytes of the journal, when its log is copied into it."""
        with contextlib.closing(apsw.Connection(str(self.folder / "journal.db"))) as found:
            return int(found.pragma("page_count")) * int(found.pragma("page_size"))

    @property
    def calls(self) -> list[int]:
        path = self.folder / "calls"
        return [int(line) for line in path.read_text().split()] if path.exists() else []


@contextlib.asynccontextmanager
async def house_in(folder: Path, *, kept_tasks: int = engine.KEPT_TASKS) -> AsyncIterator[House]:
    made = House(folder, short.folder(), kept_tasks=kept_tasks)
    await made.start()
    made.worker.start()
    try:
        yield made
    finally:
        made.worker.destroy()
        await made.stop()


async def test_all_items_are_done_and_none_is_remembered_by_itself(tmp_path: Path) -> None:
    async with house_in(tmp_path) as house:
        job = await house.create(300)
        done = await house.finished(job)
        assert (done.phase, done.parts.succeeded) == (_P.SUCCEEDED, 300)
        assert done.progress.sum == sum(n * n for n in range(1, 301))
        assert sorted(house.calls) == list(range(1, 301))
        assert house.engine.tasks == {}
        assert house.engine.live == {}
        pages = house.hub.participation.select("job_pages", 1, 0)
        assert len(pages) == 300 // items.PAGE_ITEMS + 1


async def test_only_some_items_that_succeed_leave_a_task(tmp_path: Path) -> None:
    """And the journal grows by what an item takes, not by what a task takes."""
    for failing in (7, 301, 302):
        (tmp_path / f"fail-{failing}").touch()
    async with house_in(tmp_path, kept_tasks=20) as house:
        await house.finished(await house.create(600))
        before = house.size
        job = await house.create(2000)
        done = await house.finished(job)
        assert (done.parts.succeeded, done.parts.failed) == (1997, 3)
        kept = house.tasks(job, 2000)
        states = list(kept.values())
        assert states.count(_T.FAILED) == 3
        assert states.count(_T.SUCCESS) == 20
        assert house.size - before < 2000 * 100
        assert house.tasks(job, 2000) == kept


async def test_items_that_fail_leave_as_many_tasks(tmp_path: Path) -> None:
    for failing in range(1, 61):
        (tmp_path / f"fail-{failing}").touch()
    async with house_in(tmp_path, kept_tasks=20) as house:
        job = await house.create(61, max_attempts=2)
        await house.finished(job)
        assert list(house.tasks(job, 61).values()).count(_T.FAILED) == 20
        found = house.job(job)
        facts.redrive(found, now=house.time.wall())
        for failing in range(1, 61):
            (tmp_path / f"fail-{failing}").unlink()
        await house.engine.settled(found)
        done = await house.finished(job)
        assert (done.phase, done.parts.succeeded) == (_P.SUCCEEDED, 61)


async def test_a_task_with_output_or_children_stays(tmp_path: Path) -> None:
    (tmp_path / "print-3").touch()
    (tmp_path / "child-4").touch()
    async with house_in(tmp_path, kept_tasks=0) as house:
        job = await house.create(6)
        done = await house.finished(job)
        assert done.parts.succeeded == 6
        assert list(house.tasks(job, 6)) == [3, 4]


async def test_what_fails_is_tried_again_and_redriven_alone(tmp_path: Path) -> None:
    (tmp_path / "once-3").touch()
    (tmp_path / "fail-5").touch()
    async with house_in(tmp_path) as house:
        job = await house.create(8, max_attempts=2)
        done = await house.finished(job)
        assert (done.phase, done.parts.succeeded, done.parts.failed) == (_P.FAILED, 7, 1)
        assert done.message.startswith("1 of 8 items failed: item 5: ")
        assert done.failures == 3
        (tmp_path / "fail-5").unlink()
        (tmp_path / "calls").unlink()
        found = house.job(job)
        facts.redrive(found, now=house.time.wall())
        await house.engine.settled(found)
        done = await house.finished(job)
        assert (done.phase, done.run, done.parts.succeeded) == (_P.SUCCEEDED, 2, 8)
        assert house.calls == [5]
        assert done.progress.sum == sum(n * n for n in range(1, 9))


async def test_the_circuit_breaker_stops_what_never_works(tmp_path: Path) -> None:
    for item in range(1, 101):
        (tmp_path / f"fail-{item}").touch()
    async with house_in(tmp_path) as house:
        job = await house.create(100, max_crashes=3)
        done = await house.finished(job)
        assert (done.phase, done.reason) == (_P.FAILED, "MapperCrashes")
        assert len(set(house.calls)) < 20
        assert done.parts.failed + done.parts.cancelled == 100


async def test_cancelling_ends_what_runs_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with house_in(tmp_path) as house:
        job = await house.create(50, parallelism=2)
        await waiting.wait_until_async(
            lambda: len(house.calls) == 2, what="two calls", timeout_s=60.0
        )
        assert len(house.job(job).tasks) == 2
        found = house.job(job)
        facts.cancel(found, "", now=house.time.wall())
        await house.engine.settled(found)
        done = await house.finished(job)
        assert (done.phase, done.parts.cancelled) == (_P.CANCELLED, 50)
        assert len(house.calls) == 2


async def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    """Also with a job that is suspended, then resumed."""
    async with house_in(tmp_path) as house:
        job = await house.create(40, parallelism=4)
        await house.until(job, lambda view: view.parts.succeeded >= 5)
        found = house.job(job)
        facts.adjust(found, model.Adjustment(suspend=True), now=house.time.wall())
        await house.engine.settled(found)
        await house.stop()
        await house.start()
        assert house.view(job).phase is _P.PAUSED
        found = house.job(job)
        facts.adjust(found, model.Adjustment(suspend=False), now=house.time.wall())
        await house.engine.settled(found)
        done = await house.finished(job)
        assert (done.phase, done.parts.succeeded) == (_P.SUCCEEDED, 40)
        assert done.progress.sum == sum(n * n for n in range(1, 41))
        assert sorted(house.calls) == list(range(1, 41))
