"""The engine of file jobs: `plan` decides, this carries out, nothing is told before it is kept.

Used by the service. It works in rounds: all jobs to which something has happened are asked for
their next steps, what has changed of them is written as one batch, and when that is on disk the
steps are carried out: tasks go to the dispatcher, work on the store to threads, views to whoever
waits. What comes back is a fact, and the next round. One thread; only the store is waited for
elsewhere.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec

from kilnwork.data.stores import opening, port
from kilnwork.dispatch.hub import subscriptions
from kilnwork.jobs import (
    beginning,
    catalog,
    effects,
    errors,
    facts,
    model,
    muscle,
    orders,
    plan,
    records,
    rows,
    steps,
    unkept,
    waiting,
)
from kilnwork.kit import clock as clocks
from kilnwork.kit import coroutines, ids

log = logging.getLogger(__name__)

MOST_LIVE = 10_000
"""Unfinished jobs in memory; more wait in the catalog, in the order in which they came."""

MOST_LIVE_PARTS = 1_000_000
"""Parts of unfinished jobs in memory: some hundred MiB. With more, new jobs wait likewise."""

ROUND = 1000
"""Jobs looked at in one round: some ten milliseconds of the loop."""

WINDOW = 256
"""Parts of a job that have a task at once, unless its `parallelism` says otherwise: as many as keep
any cluster busy, and few enough that pausing and cancelling are quick."""

ALL_WINDOWS = 65_536
"""Tasks of all jobs together: with very many jobs each gets fewer."""

SMALLEST_WINDOW = 8

SHOW_S = 0.05
"""Until people see that a task has begun, at the latest."""


@dataclass(frozen=True, slots=True)
class Options:
    """What an engine may be told. `worker_url`: of the store as workers open it, None: the store's
    own; `opened`: how we open it. `ttl_s`: how long jobs that name no time to live are kept after
    their end, with their data (None: for ever). `retry_s`: between tries of what the store refused.
    `on_failure` is called when the catalog cannot go on."""

    worker_url: str | None = None
    opened: Callable[[str], port.Store] = opening.open_store
    ttl_s: float | None = 7 * 86_400.0
    retry_s: float = 1.0
    on_failure: Callable[[BaseException], None] = lambda error: None


DEFAULTS = Options()


class Engine:
    """Jobs in memory, and the loop that moves them."""

    def __init__(
        self,
        kept: catalog.Catalog,
        store: port.Store,
        hub: muscle.Muscle,
        *,
        clock: clocks.Clock,
        options: Options,
    ) -> None:
        self.catalog, self.store, self._hub, self._clock = kept, store, hub, clock
        self._options = options
        self._submissions = muscle.Submissions(options.worker_url or store.url)
        self.live: dict[bytes, records.Job] = {}
        """Jobs that are not over, or that somebody is changing; by UUID."""
        self.texts: dict[str, records.Job] = {}
        """The same by what people see."""
        self.tasks: dict[ids.TaskId, tuple[records.Job, int]] = {}
        self._ready: dict[records.Job, None] = {}
        self._unkept = unkept.Unkept()
        self._gone: list[records.Job] = []
        self._stale: dict[records.Job, None] = {}
        self._stale_timer: asyncio.TimerHandle | None = None
        self._turns, self.waiters = beginning.Turns(), waiting.Waiters()
        self._crew = coroutines.Crew("jobs", on_failure=lambda _, error: self.failed(error))
        self._giver = orders.Giver(hub, self._heard)
        self._effects = effects.Effects(
            self, store, hub, opened=options.opened, retry_s=options.retry_s
        )
        self._writing = self._scheduled = False
        self.stopped: errors.JobsStopped | None = None
        self._unfollow: Callable[[], None] = lambda: None
        self._loaded_to = self._parts = 0
        self.backlog = False
        """Unfinished jobs are in the catalog that are not in memory."""
        self.forgotten: Callable[[records.Job], None] = lambda job: None
        """Told of jobs that memory lets go of."""

    def start(self) -> None:
        """The catalog is open: take up what is unfinished."""
        self._loop = asyncio.get_running_loop()
        self._adopt_journal()
        self.catalog.start(self._loop.call_soon_threadsafe, on_failure=self.failed)
        self._unfollow = self._hub.follow(self.tasks, self._heard)
        self.next_row = self.catalog.next_row()
        self._take_up()

    async def stop(self) -> None:
        """Begin nothing more; what is being written is written."""
        self._end(errors.JobsStopped())
        self._unfollow()
        if self._stale_timer is not None:
            self._stale_timer.cancel()
        await self._crew.stop()
        await self._effects.stop()
        self.catalog.close()

    @property
    def over(self) -> bool:
        """It takes in nothing any more."""
        return self.stopped is not None

    def purged(self, job: records.Job) -> None:
        """Nothing of it is in the store any more; its rows go with the next round."""
        self._gone.append(job)

    def now(self) -> float:
        """Wall clock, seconds."""
        return self._clock.wall()

    def check(self) -> None:
        """Raises `JobsStopped`."""
        if self.stopped is not None:
            raise self.stopped

    def wake(self, job: records.Job) -> None:
        """Something has happened to it; one that memory has let go of is another by now."""
        if self.live.get(job.id.uuid) is job:
            self._ready[job] = None
            self._schedule()

    async def settled(self, job: records.Job) -> model.JobView:
        """Its view, when all that is known of it now is on disk."""
        self.check()
        if self.live.get(job.id.uuid) is not job:
            return job.view or rows.view(job)
        waiter = self.waiters.settling(job)
        self.wake(job)
        await waiter
        return job.view or rows.view(job)

    def add(self, job: records.Job, key: model.Key | None, inline: bytes | None) -> None:
        """A job that is to be written for the first time."""
        self._unkept.add(job, key, inline)
        job.ttl_s = self._options.ttl_s
        self.live[job.id.uuid] = self.texts[job.id.text] = job
        self._parts += job.size
        self.wake(job)

    def load(self, row: rows.JobRow) -> records.Job:
        """A job of the catalog, in memory until it is over and nobody changes it."""
        found = self.live.get(row.uuid)
        if found is None:
            manifest = rows.decode_manifest(self.catalog.manifest(row.row))
            found = rows.job_of(row, manifest, self.catalog.states(row.row))
            found.view = rows.view(found)
            found.ttl_s = self._options.ttl_s
            self.live[row.uuid] = self.texts[row.id] = found
            self._parts += found.size
            if not found.stored:
                self._unkept.inlined.add(row.row)
        return found

    def inline(self, job: records.Job) -> bytes | None:
        """Its input, if it may be in the catalog alone."""
        return self.catalog.inline(job.row) if job.row in self._unkept.inlined else None

    def redriven(self, job: records.Job) -> None:
        """Its parts that have not succeeded are open again."""
        self._unkept.redriven(job)

    def _adopt_journal(self) -> None:
        """A journal that is not a later one than the last has been replaced."""
        epoch, last, row = self._hub.epoch, self.catalog.companion(), 0
        batch = catalog.Batch()
        while last and epoch <= last and (found := self.catalog.jobs("unfinished", row, ROUND)):
            for one in found:
                row = one.row
                job = self.load(one)
                if job.stage is not records.Stage.OVER:
                    facts.journal_lost(job, now=self.now())
                self._unkept.gather(batch, job)
                self._let_go(job)
        self.catalog.write_now(batch, journal=epoch)

    def _take_up(self) -> None:
        """Jobs that are unfinished, as many as there is room for."""
        self.backlog = True
        while self.backlog and (room := self._room_for) > 0:
            found = self.catalog.jobs("unfinished", self._loaded_to, min(ROUND, room))
            self.backlog = bool(found)
            for one in found:
                self._loaded_to = one.row
                self._take(one)

    def _take(self, row: rows.JobRow) -> None:
        try:
            self.wake(self.load(row))
        except msgspec.MsgspecError as error:
            extra = {"job": row.id, "error": str(error)}
            log.warning("a job of the catalog cannot be read; it is left as it is", extra=extra)

    @property
    def _room_for(self) -> int:
        """How many more jobs memory may have; below 0: it has too many."""
        if self._parts > MOST_LIVE_PARTS:
            return -1
        return MOST_LIVE - len(self.live)

    def _round(self) -> None:
        self._scheduled = False
        if self._writing or self.stopped is not None:
            return
        try:
            self._one_round()
        except Exception as error:  # noqa: BLE001 - half a round is done: only a restart mends that
            self.failed(error)

    def _one_round(self) -> None:
        now = self.now()
        batch = catalog.Batch()
        todo: list[tuple[records.Job, list[steps.Step]]] = []
        shown: list[tuple[records.Job, model.JobView]] = []
        waiters: list[asyncio.Future[None]] = []
        slots: dict[tuple[str, str], int] = {}
        for job in list(itertools.islice(self._ready, ROUND)):
            del self._ready[job]
            waiters += self.waiters.taken(job)
            todo.append((job, plan.next_steps(job, self._room(job, slots), now)))
            self._unkept.gather(batch, job)
            shown.append((job, rows.view(job)))
        purged, self._gone = self._gone, []
        batch.deleted += [(job.row,) for job in purged]

        def kept() -> None:
            self._writing = False
            if self.stopped is not None:
                return
            try:
                self._carry_out(todo, shown, purged)
            except Exception as error:  # noqa: BLE001 - as above
                self.failed(error)
            self.waiters.settled(waiters)
            self._schedule()

        if batch:
            self._writing = True
            self.catalog.write(batch, kept)
        else:
            kept()

    def _schedule(self) -> None:
        busy = self._scheduled or self._writing or self.stopped is not None
        if not busy and (self._ready or self._gone):
            self._scheduled = True
            self._loop.call_soon(self._round)

    def _room(self, job: records.Job, slots: dict[tuple[str, str], int]) -> plan.Room:
        key = (job.namespace, job.spec.cluster_name)
        if key not in slots:
            cluster = self._hub.cluster(*key)
            slots[key] = 0 if cluster is None else cluster.slots
        job.slots = slots[key]
        window = max(SMALLEST_WINDOW, min(WINDOW, ALL_WINDOWS // max(1, len(self.live))))
        return plan.Room(window, slots[key], begin=self._turns.begins(job))

    def _carry_out(
        self,
        todo: Iterable[tuple[records.Job, list[steps.Step]]],
        shown: Iterable[tuple[records.Job, model.JobView]],
        purged: Iterable[records.Job],
    ) -> None:
        """A round is on disk."""
        for job, view in shown:
            job.view = view
            self.waiters.tell(job.id.uuid, over=view.phase.final or view.deleting)
        gathered = orders.Orders()
        for job, found in todo:
            for step in found:
                self._do(job, step, gathered)
        if gathered:
            self._crew.start("orders", self._giver.give(gathered))
        for job in self._turns.next():
            self.wake(job)
        for job in purged:
            job.view = None
            self._let_go(job)
            self.waiters.tell(job.id.uuid, over=True)
        for job, _ in shown:
            if not job.busy and job not in self._ready and self._is_idle(job):
                self._let_go(job)
        if self.backlog and self._room_for > MOST_LIVE // 2:
            self._take_up()

    def _is_idle(self, job: records.Job) -> bool:
        """Nothing moves it but a person, or it is new and there is no room for it."""
        if job.deleting or job.seats:
            return False
        if job.stage is records.Stage.MAPPING:
            full = self._turns.waits(job) and self._room_for < 0
            self.backlog = self.backlog or full
            return full or (job.spec.suspend and (job.recovered or job.fresh))
        return job.stage is records.Stage.OVER

    def _let_go(self, job: records.Job) -> None:
        """Memory need not have it any more."""
        if self.live.pop(job.id.uuid, None) is not None:
            self._parts -= job.size
        self._turns.forget(job)
        self.texts.pop(job.id.text, None)
        self.forgotten(job)
        for part in range(job.size + 1) if job.recovered else ():
            self.tasks.pop(muscle.task_id(job.id.uuid, part), None)

    def _do(self, job: records.Job, step: steps.Step, gathered: orders.Orders) -> None:
        if isinstance(step, steps.Submit):
            new = job.fresh and job.run == 1
            into = gathered.new if new else gathered.again
            for part in step.parts:
                self.tasks[muscle.task_id(job.id.uuid, part)] = (job, part)
                into.append(self._submissions.submission(job, part))
        elif isinstance(step, steps.Hold):
            into_held = gathered.held if step.held else gathered.let_go
            into_held += [muscle.task_id(job.id.uuid, part) for part in step.parts]
        elif isinstance(step, steps.Kill):
            named = [muscle.task_id(job.id.uuid, part) for part in step.parts]
            gathered.killed.append((named, step.message))
        else:
            self._effects.begin(job, step)

    def _heard(self, changes: list[subscriptions.Change]) -> None:
        """The dispatcher tells of tasks."""
        if self.stopped is not None:
            return
        now = self.now()
        for change in changes:
            found = self.tasks.get(change.task)
            if found is None:
                continue
            job = found[0]
            facts.moved(*found, change, now=now)
            if change.over or job.dirty:
                self.wake(job)
            else:
                self._look_later(job)

    def _look_later(self, job: records.Job) -> None:
        """Nothing follows but that people see it."""
        if not self._stale:
            self._stale_timer = self._loop.call_later(SHOW_S, self._refresh)
        self._stale[job] = None

    def _refresh(self) -> None:
        stale, self._stale = self._stale, {}
        for job in stale:
            self.wake(job)

    def _end(self, why: errors.JobsStopped) -> None:
        if self.stopped is not None:
            return
        self.stopped = why
        self.waiters.stop(why)

    def failed(self, error: BaseException) -> None:
        """Nothing can be decided any more: only a restart mends that."""
        log.error("file jobs failed", exc_info=error)
        self._end(errors.JobsStopped(f"file jobs failed: {error}"))
        self._options.on_failure(error)
