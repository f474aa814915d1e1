"""The steps of jobs that are work on the store: done in threads, and what came of them taken in.

Used by the engine, whose loop it shares. What the store refuses is tried again, and the job says so
meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent import futures
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from kilnwork.api import filejobs
from kilnwork.data import errors as data_errors
from kilnwork.data.stores import opening, port
from kilnwork.jobs import facts, model, records, steps, storing, tables, task_hub
from kilnwork.kit import ids

log = logging.getLogger(__name__)

THREADS = 8


class Owner(Protocol):
    """The engine. `tasks`: whose task is on which seat."""

    tables: tables.Tables
    tasks: dict[ids.TaskId, tuple[records.Job, int]]

    @property
    def over(self) -> bool:
        """It takes in nothing any more."""
        ...

    def now(self) -> float: ...

    def inline(self, job: records.Job) -> bytes | None:
        """Its input, if it may be in the tables alone."""
        ...

    def wake(self, job: records.Job) -> None: ...

    def purged(self, job: records.Job) -> None: ...

    def failed(self, error: BaseException) -> None: ...


class Effects:
    """Carries out steps. `retry_s`: between tries of what the store refused."""

    def __init__(
        self,
        owner: Owner,
        store: port.Store,
        hub: task_hub.TaskHub,
        *,
        opened: Callable[[str], port.Store],
        retry_s: float,
    ) -> None:
        self._owner, self._whole, self._hub = owner, store, hub
        self._opened, self._retry_s = opened, retry_s
        self._open = lru_cache(maxsize=256)(self._open_folder)
        self._pool = futures.ThreadPoolExecutor(THREADS, thread_name_prefix="jobs-store")

    async def stop(self) -> None:
        """Begin nothing more; what a thread has begun it ends."""
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)

    def begin(self, job: records.Job, step: steps.Step) -> None:
        """Carry out a step; the owner is woken when it is done."""
        _TO_DO[type(step)](self, job, step)

    def _folder(self, job: records.Job) -> port.Store:
        """Its folder, as a store of its own."""
        return self._open(job.namespace, job.id)

    def _open_folder(self, namespace: str, job: model.JobId) -> port.Store:
        return self._opened(opening.inside(self._whole.url, namespace, job.dashed))

    def _in_thread(
        self,
        job: records.Job,
        key: tuple[str, int],
        work: Callable[[], Any],
        then: Callable[[Any], None],
    ) -> None:
        """Do some work on the store; `then` takes in what came of it."""

        def ended(future: "asyncio.Future[Any]") -> None:
            if self._owner.over or future.cancelled():
                return
            try:
                self._take_in(job, key, future, then)
            except Exception as error:  # noqa: BLE001 - half of it is in: only a restart mends that
                self._owner.failed(error)

        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._pool, work).add_done_callback(ended)

    def _take_in(
        self,
        job: records.Job,
        key: tuple[str, int],
        future: "asyncio.Future[Any]",
        then: Callable[[Any], None],
    ) -> None:
        error = future.exception()
        if error is None:
            job.trouble = ""
            then(future.result())
        else:
            if not isinstance(error, data_errors.DataError):
                log.error("work on the store of a job failed", exc_info=error)
            job.trouble = str(error)
            job.changed(self._owner.now())
            future.get_loop().call_later(self._retry_s, self._again, job, key)
        self._owner.wake(job)

    def _again(self, job: records.Job, key: tuple[str, int]) -> None:
        facts.done(job, *key)
        self._owner.wake(job)

    def _store(self, job: records.Job, _: steps.Store) -> None:
        file, folder = storing.job_file(job), self._folder(job)
        inline, run = self._owner.inline(job), job.run

        def then(_: None) -> None:
            facts.stored(job, now=self._owner.now())
            if job.run != run:
                job.stored = False  # it is of an older run already

        self._in_thread(job, ("Store", 0), lambda: storing.store(folder, file, inline), then)

    def _recover(self, job: records.Job, _: steps.Recover) -> None:
        runs = {n: job.run_of(n) for n in range(1, job.size + 1) if job.states[n] < 2}
        runs[0] = job.run
        folder = self._folder(job)
        # Tasks first, then records: what is over by now has left its record to be found.
        named = {task_hub.task_id(job.id.uuid, part): part for part in range(job.size + 1)}
        if job.stage is records.Stage.STOPPING:
            left = [task for task in named if self._hub.knows(task)]
        else:
            left = [one.task for one in self._hub.unfinished(named)]

        def then(found: list[filejobs.Commit]) -> None:
            changes = [(named[one.task], one) for one in self._hub.states(left)]
            facts.recovered(job, found, changes, now=self._owner.now())
            for part in job.seats:
                self._owner.tasks[task_hub.task_id(job.id.uuid, part)] = (job, part)

        self._in_thread(job, ("Recover", 0), lambda: storing.recover(folder, runs), then)

    def _settle(self, job: records.Job, step: steps.Settle) -> None:
        folder, now = self._folder(job), self._owner.now()
        key = ("Settle", step.part)
        if step.part == 0:
            self._settle_reducer(job, step)
            return

        def then(commit: filejobs.Commit | None) -> None:
            facts.settled(job, step.part, step.run, commit, now=self._owner.now())

        self._in_thread(job, key, lambda: storing.settle(folder, step, now), then)

    def _settle_reducer(self, job: records.Job, step: steps.Settle) -> None:
        folder, now, outcome = self._folder(job), self._owner.now(), step.outcome
        reduced = None if outcome else self._reduced(task_hub.task_id(job.id.uuid, 0))

        def work() -> filejobs.Commit | storing.Damage | None:
            if outcome is None:
                return storing.settle_reducer(folder, step.run, reduced, now)
            return storing.settle(folder, step, now)

        self._in_thread(job, ("Settle", 0), work, lambda found: self._concluded(job, found))

    def _reduced(self, task: ids.TaskId) -> filejobs.Reduced | None:
        """What the call that reduces has returned."""
        view = self._hub.view(task)
        if view is None or view.result is None or view.result.data is None:
            return None
        try:
            return msgspec.json.decode(view.result.data, type=filejobs.Reduced)
        except msgspec.MsgspecError:
            return None

    def _concluded(self, job: records.Job, found: filejobs.Commit | storing.Damage) -> None:
        if isinstance(found, storing.Damage):
            hurt = [self._commit_of(job, part) for part in found.parts if 0 < part <= job.size]
            known = [commit for commit in hurt if commit is not None]
            facts.damaged(job, known, why=found.message, now=self._owner.now())
        else:
            facts.concluded(job, found, now=self._owner.now())

    def _commit_of(self, job: records.Job, part: int) -> filejobs.Commit | None:
        pending = job.dirty_parts.get(part)
        if pending is not None:
            return pending
        for row in self._owner.tables.parts(job.row, part, part):
            return row.commit
        return None

    def _publish(self, job: records.Job, _: steps.Publish) -> None:
        part = self._commit_of(job, 1) if job.size else None
        folder, now, run = self._folder(job), self._owner.now(), job.run
        self._in_thread(
            job,
            ("Publish", 0),
            lambda: storing.publish(folder, run, part, now),
            lambda found: self._concluded(job, found),
        )

    def _conclude(self, job: records.Job, step: steps.Conclude) -> None:
        folder, now = self._folder(job), self._owner.now()
        settle = steps.Settle(0, job.run, step.outcome, step.message)
        self._in_thread(
            job,
            ("Conclude", 0),
            lambda: storing.settle(folder, settle, now),
            lambda found: self._concluded(job, found),
        )

    def _purge(self, job: records.Job, _: steps.Purge) -> None:
        prefix = f"{job.folder}/"

        def then(_: None) -> None:
            self._owner.purged(job)

        self._in_thread(job, ("Purge", 0), lambda: storing.purge(self._whole, prefix), then)


_TO_DO: dict[type, Callable[[Effects, records.Job, Any], None]] = {
    steps.Store: Effects._store,
    steps.Recover: Effects._recover,
    steps.Settle: Effects._settle,
    steps.Publish: Effects._publish,
    steps.Conclude: Effects._conclude,
    steps.Purge: Effects._purge,
}
