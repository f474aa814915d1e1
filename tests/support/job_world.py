"""A service of file jobs with a real journal and store, and a dispatcher that the test steps.

Used by tests of `jobs`. The dispatcher's tasks outlive the service, as those of a journal do, and
run the real work synchronously. A fuse ends a life of the service at any of its effects: before it,
or after it and before any caller is notified.
"""

import asyncio
import copy
import random
import threading
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec

from kilnwork.api import attempts, filejobs
from kilnwork.api import task as api_task
from kilnwork.data import part_commits
from kilnwork.data.records import intake
from kilnwork.data.stores import port, store_urls
from kilnwork.dispatch import model as task_model
from kilnwork.dispatch.hub import commits as hub_commits
from kilnwork.dispatch.hub import subscriptions
from kilnwork.dispatch.journal import port as dispatch_port
from kilnwork.dispatch.journal import rows_to_write
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import (
    errors,
    file_item_source,
    file_job_service,
    file_job_types,
    service_assembly,
)
from kilnwork.jobs.work import part, reduce
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids
from kilnwork.sdk import context

_S = api_task.State
NS = "ns"


class CrashedHere(Exception):
    """Raised in place of the kill of the service."""


class Fuse:
    """Fires at the `after`-th effect and at every one after it; None means never."""

    def __init__(self, after: int | None = None) -> None:
        self.left = after
        self.count = 0
        self.blown = ""
        self._lock = threading.Lock()

    def burn(self, what: str) -> None:
        """Count one effect, before it begins or right after it."""
        with self._lock:
            self.count += 1
            if not self.blown and self.left is not None and self.count > self.left:
                self.blown = what
            if self.blown:
                raise CrashedHere(what)


class FusedStore:
    """A store whose writes burn the fuse."""

    def __init__(self, store: port.Store, fuse: Fuse) -> None:
        self._store, self._fuse = store, fuse
        self.url = store.url

    def put(
        self, key: str, data: port.Data, *, create: bool = False, if_match: str | None = None
    ) -> port.ObjectFacts:
        self._fuse.burn(f"before {key}")
        found = self._store.put(key, data, create=create, if_match=if_match)
        self._fuse.burn(f"after {key}")
        return found

    def delete(self, keys: Iterable[str]) -> None:
        self._fuse.burn("before delete")
        self._store.delete(keys)
        self._fuse.burn("after delete")

    def head(self, key: str) -> port.ObjectFacts:
        return self._store.head(key)

    def read(self, key: str, *, start: int = 0, end: int | None = None) -> port.Reading:
        return self._store.read(key, start=start, end=end)

    def writer(self, key: str, *, create: bool = False) -> port.Writer:
        return self._store.writer(key, create=create)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[port.ObjectFacts]:
        return self._store.list(prefix, after=after)

    def directories(self, prefix: str = "") -> Iterator[str]:
        return self._store.directories(prefix)


class Entry:
    """A task of the dispatcher."""

    def __init__(self, submission: task_model.Submission) -> None:
        self.submission = submission
        self.run = submission.spec.run
        self.state = _S.PENDING
        self.reason = self.message = ""
        self.attempt = 0
        self.failures = self.losses = 0
        self.suspended = False
        self.result: attempts.Payload | None = None

    @property
    def work(self) -> filejobs.PartWork | filejobs.ReduceWork:
        call = self.submission.spec.call
        assert call is not None
        raw = msgspec.json.decode(msgspec.json.encode(call.args[0]))
        kind: Any = (
            filejobs.PartWork if call.function == file_item_source.MAP else filejobs.ReduceWork
        )
        found: filejobs.PartWork | filejobs.ReduceWork = msgspec.convert(raw, kind)
        return found

    def change(self) -> subscriptions.Change:
        return subscriptions.Change(
            self.submission.task, self.run, self.state, self.reason, self.message, self.attempt,
            self.failures, self.losses, "w-0", None, self.suspended,
        )  # fmt: skip


class FusedJournal(journal.Journal):
    """A journal whose commits burn the fuse. `committed` is called in the writer's thread."""

    def __init__(self, path: Path, fuse: Fuse, committed: Callable[[], None]) -> None:
        super().__init__(path, retry_s=0.005)
        self._fuse, self._committed = fuse, committed

    def _commit(self, batch: rows_to_write.Rows) -> None:
        self._fuse.burn("before commit")
        super()._commit(batch)
        self._committed()
        self._fuse.burn("after commit")


class Dispatcher:
    """Accepts and stores tasks; runs one when the test steps it. `broken`: parts whose tasks fail.
    `slots`: slots of every cluster.

    Changes that a participant makes to tasks in a batch are undone at the next start if the batch
    was not committed.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / "journal.db"
        self.slots = 2
        self.writing = False
        self.tasks: dict[ids.TaskId, Entry] = {}
        self.fuse = Fuse()
        self.broken: Callable[[filejobs.PartWork | filejobs.ReduceWork], str] = lambda work: ""
        self.ran: list[str] = []
        self._followers: list[tuple[Container[ids.TaskId], subscriptions.OnChanges]] = []
        self._participants: list[hub_commits.Participant] = []
        self._undo: list[tuple[ids.TaskId, Entry | None]] = []
        self._news: list[Entry] = []
        self._batch = instructions.Batch()
        self._waiting: list[asyncio.Future[None]] = []
        self._scheduled = False
        self._journal: journal.Journal | None = None

    def start(self) -> None:
        """Begin a life, in the process that it shares with the service."""
        for task, entry in reversed(self._undo):
            if entry is None:
                self.tasks.pop(task, None)
            else:
                self.tasks[task] = entry
        for parts in (self._undo, self._news, self._followers, self._participants, self._waiting):
            parts.clear()
        self._batch = instructions.Batch()
        self.writing = self._scheduled = False
        self._journal = FusedJournal(self.path, self.fuse, self._undo.clear)
        self._journal.open()
        self._journal.start(asyncio.get_running_loop().call_soon_threadsafe, on_failure=self._fail)

    def stop(self) -> None:
        if self._journal is not None:
            self._journal.close()

    @property
    def kept(self) -> journal.Journal:
        assert self._journal is not None
        return self._journal

    @property
    def epoch(self) -> int:
        return self.kept.epoch

    @property
    def refused(self) -> str | None:
        return self.kept.refused

    def select(self, name: str, *values: instructions.Value) -> list[tuple[Any, ...]]:
        return self.kept.reader.select(name, *values)

    def participate(self, participant: hub_commits.Participant) -> Callable[[], None]:
        self._participants.append(participant)
        return self._participants.clear

    async def write(self, writes: instructions.Writes) -> None:
        self.write_next(writes)
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self.wake()
        await waiter

    def write_next(self, writes: instructions.Writes) -> None:
        self._batch.writes += writes

    def wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._advance)

    @property
    def busy(self) -> bool:
        """Return whether a batch is being made or written."""
        return self.writing or self._scheduled

    def _advance(self) -> None:
        self._scheduled = False
        if self.writing:
            return
        batch, self._batch = self._batch, instructions.Batch()
        for participant in self._participants:
            participant.join(batch)
        waiting = list(self._waiting)

        def committed(_: dispatch_port.Written = ()) -> None:
            self.writing = False
            news, self._news = self._news, []
            self.tell(*news)
            for participant in self._participants:
                participant.committed()
            for waiter in waiting:
                self._waiting.remove(waiter)
                if not waiter.done():
                    waiter.set_result(None)
            if durable:
                self.wake()

        durable = bool(batch.writes or self._undo)
        if durable:
            self.writing = True
            self.kept.write(batch, committed)
        else:
            committed()

    def _fail(self, error: BaseException) -> None:
        for participant in self._participants:
            participant.aborted(error)
        for waiter in self._waiting:
            waiter.set_exception(error)
        self._waiting.clear()

    def follow(
        self, tasks: Container[ids.TaskId], on_changes: subscriptions.OnChanges
    ) -> Callable[[], None]:
        self._followers.append((tasks, on_changes))
        return self._followers.clear

    def tell(self, *entries: Entry) -> None:
        for tasks, tell in tuple(self._followers):
            tell([one.change() for one in entries if one.submission.task in tasks])

    def _touch(self, task: ids.TaskId) -> Entry | None:
        """Return the task, as changed by the uncommitted batch."""
        found = self.tasks.get(task)
        self._undo.append((task, copy.copy(found)))
        return found

    def submit_now(
        self,
        submissions: Iterable[task_model.Submission],
        *,
        new: bool = False,
        shown: bool = False,
    ) -> list[subscriptions.Change]:
        there = []
        for submission in submissions:
            known = self._touch(submission.task)
            assert known is None or not new, "the submitter said that it was new"
            if known is not None and known.run >= submission.spec.run:
                there.append(known.change())
            elif known is not None and not known.state.final:
                self._kill(known)
                there.append(known.change())
            else:
                self.tasks[submission.task] = Entry(submission)
        return there

    def kill_now(self, tasks: Iterable[ids.TaskId], *, reason: str, message: str) -> None:
        for task in tasks:
            found = self._touch(task)
            if found is not None and not found.state.final:
                self._kill(found)

    def _kill(self, entry: Entry) -> None:
        entry.state = _S.KILLED
        self._news.append(entry)

    def suspend_now(self, tasks: Iterable[ids.TaskId], *, suspended: bool) -> None:
        for task in tasks:
            found = self._touch(task)
            assert found is not None
            found.suspended = suspended
            self._news.append(found)

    def forget_now(
        self, runs: Iterable[tuple[ids.TaskId, int]], *, childless: bool = False
    ) -> None:
        for task, run in runs:
            found = self._touch(task)
            if found is not None and found.state.final:
                assert found.run == run
                del self.tasks[task]

    def unfinished(self, tasks: Iterable[ids.TaskId]) -> list[subscriptions.Change]:
        found = (self.tasks.get(task) for task in tasks)
        return [one.change() for one in found if one is not None and not one.state.final]

    def knows(self, task: ids.TaskId) -> bool:
        return task in self.tasks

    def states(self, tasks: Iterable[ids.TaskId]) -> list[subscriptions.Change]:
        return [self.tasks[task].change() for task in tasks]

    def view(self, task: ids.TaskId) -> Any:
        return self.tasks.get(task)

    def result(self, task: ids.TaskId) -> attempts.Payload | None:
        found = self.tasks.get(task)
        return found.result if found is not None and found.state is _S.SUCCESS else None

    def cluster(self, namespace: str, name: str) -> task_model.ClusterView | None:
        worker = task_model.WorkerView(
            name="w-0", pod_uid="u", node="n", slots=self.slots, busy=0, ready=True
        )
        return task_model.ClusterView(
            namespace=namespace, cluster=name, workers=(worker,), queued=0
        )

    @property
    def queued(self) -> list[Entry]:
        """Return the committed tasks that could start now."""
        if self.writing:
            return []
        return [one for one in self.tasks.values() if one.state is _S.PENDING and not one.suspended]

    def begin(self, entry: Entry) -> None:
        entry.state = _S.RUNNING
        entry.attempt += 1
        self.tell(entry)

    def lose(self, entry: Entry) -> None:
        """Lose the worker of a task: it is queued again, unless it is suspended."""
        entry.losses += 1
        entry.state = _S.PENDING
        self.tell(entry)

    def finish(self, entry: Entry) -> None:
        work = entry.work
        why = self.broken(work)
        number = work.part.number if isinstance(work, filejobs.PartWork) else 0
        self.ran.append(f"{work.job}/{number}-{work.run}-{entry.attempt}")
        if why:
            entry.failures += 1
            entry.state, entry.message = _S.FAILED, why
        else:
            entry.result = attempts.Payload(attempts.JSON, msgspec.json.encode(_run(entry, work)))
            entry.state = _S.SUCCESS
        self.tell(entry)

    def step(self) -> bool:
        """Run the next committed task; return False if there is none."""
        if self.writing:
            return False
        running = [one for one in self.tasks.values() if one.state is _S.RUNNING]
        queued = self.queued
        if queued and len(running) < self.slots:
            self.begin(queued[0])
        elif running:
            self.finish(running[0])
        else:
            return False
        return True


def _run(entry: Entry, work: filejobs.PartWork | filejobs.ReduceWork) -> Any:
    here = context.Context(entry.submission.task, run=entry.run, attempt=entry.attempt)
    context.begin(here)
    try:
        time = clocks.SystemClock()
        if isinstance(work, filejobs.PartWork):
            return part.map_part(
                work, attempt=entry.attempt, on_progress=lambda _: None, clock=time
            )
        return reduce.reduce_parts(
            work, attempt=entry.attempt, make_watch=lambda _: lambda _: None, clock=time
        )
    finally:
        context.end()


class World:
    """Consecutive lives of the service in one directory."""

    def __init__(self, directory: Path, *, fuse: Fuse | None = None, **options: Any) -> None:
        self.directory = directory
        self.dispatcher = Dispatcher(directory)
        self.fuse = fuse or Fuse()
        self.dispatcher.fuse = self.fuse
        self.clock = clocks.ManualClock()
        self.options = options
        self.jobs: file_job_service.FileJobs
        self.lives = 0
        self.hasty: random.Random | None = None
        self.said: list[str] = []
        """Messages of the service at its starts."""

    async def start(self) -> "World":
        fuse = self.fuse
        self.dispatcher.start()

        def opened(url: str) -> port.Store:
            return FusedStore(store_urls.open_store(url), fuse)

        options = file_job_service.FileJobOptions(opened=opened, **self.options)
        self.services = service_assembly.JobServices(
            self.directory, self.dispatcher, clock=self.clock, options=options, retry_s=0.005
        )
        self.jobs = self.services.files
        self.lives += 1
        await self.services.start(say=self.said.append)
        return self

    async def stop(self) -> None:
        await self.services.stop()
        self.dispatcher.stop()

    async def restart(self, fuse: Fuse | None = None) -> None:
        """Begin a new life, whatever has happened in the last one."""
        while True:
            await self.stop()
            self.dispatcher.fuse = self.fuse = fuse or Fuse()
            try:
                await self.start()
            except CrashedHere:
                fuse = None
                continue
            return

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def create(
        self, content: bytes, *, key: str | None = None, inline: bool = False, **spec: Any
    ) -> file_job_types.JobView:
        found = msgspec.convert({"mapper": {"builtin": "identity"}, **spec}, filejobs.FileJobSpec)
        taken = intake.Intake(found)
        data = b"".join(taken.feed(content))
        rest, manifest = taken.finish()
        data += rest
        new = self.jobs.new_id()
        if not inline:
            store_urls.open_store(self.jobs.store.url).put(f"{NS}/{new.dashed}/input", data)
        view, _ = await self.jobs.create(
            file_job_types.NewJob(
                id=new,
                namespace=NS,
                spec=found,
                manifest=manifest,
                inline=data if inline else None,
                key=None if key is None else file_job_types.IdempotencyKey("me", key, b"print"),
            )
        )
        return view

    def view(self, job: str) -> file_job_types.JobView:
        """Return the view of a job as shown now; counts are brought up to date on each call."""
        found = self.jobs.job(NS, job)
        assert found is not None, job
        check_counts(found)
        return found

    async def until(
        self, done: Callable[[], object], *, step: bool = True, what: str = "it"
    ) -> None:
        """Step the dispatcher whenever the service is idle (with `hasty`: at random) until `done`
        holds. Raises `CrashedHere`.
        """
        for _ in range(40_000):
            if self.fuse.blown:
                raise CrashedHere(self.fuse.blown)
            if done():
                return
            hasty = self.hasty is not None and self.hasty.random() < 0.2
            if step and (hasty or self._quiet()):
                self.dispatcher.step()
            await asyncio.sleep(0.0002)
        raise AssertionError(f"{what} never came: {self.dispatcher.ran[-5:]}")

    def _quiet(self) -> bool:
        """Return whether the service does nothing until another process acts."""
        inside = self.jobs._engine
        moving = inside._ready or self.dispatcher.busy
        return not moving and not any(job.busy for job in inside.live.values())

    async def finished(self, job: str) -> file_job_types.JobView:
        await self.until(lambda: self.view(job).phase.final, what=f"the end of {job}")
        return self.view(job)

    async def running(self, job: str, number: int) -> None:
        """Wait until so many parts are done."""
        await self.until(lambda: self.view(job).parts.succeeded >= number)

    def directory_of(self, view: file_job_types.JobView) -> port.Store:
        return store_urls.open_store(store_urls.url_inside(self.jobs.store.url, NS, view.dashed))

    def result(self, view: file_job_types.JobView) -> bytes:
        if view.progress.output is None:
            return b""
        return port.read_all(self.directory_of(view), view.progress.output.key)

    def records(self, view: file_job_types.JobView) -> dict[tuple[int, int], filejobs.PartOutcome]:
        directory = self.directory_of(view)
        found = {}
        for number, run in part_commits.list_runs(directory):
            commit = part_commits.find(directory, number, run)
            assert commit is not None
            found[number, run] = commit.outcome
        return found


async def retry_in_new_lives(world: World, *acts: Callable[[], Awaitable[object]]) -> None:
    """Yield the steps one after the other, each repeated in a new life whenever the service is
    killed.
    """
    for act in acts:
        while True:
            try:
                await act()
            except (CrashedHere, errors.JobsStopped):
                await world.restart()
                continue
            if world.fuse.blown:
                await world.restart()
            break


def check_counts(view: file_job_types.JobView) -> None:
    parts, found = view.parts, view.progress.records
    closed = parts.succeeded + parts.failed + parts.cancelled
    assert parts.total == parts.pending + parts.running + closed, parts
    assert min(parts.pending, parts.running, closed) >= 0, parts
    assert found.total == found.succeeded + found.failed + found.skipped, found
    assert found.total <= view.progress.lines
    if view.phase is filejobs.FileJobPhase.SUCCEEDED:
        assert found.total == view.progress.lines
        assert parts.succeeded == parts.total
