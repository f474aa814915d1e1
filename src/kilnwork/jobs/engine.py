"""The engine of jobs: `plan` decides, this carries out, nothing is shown before it is on disk.

Used by the service. It is a participant of the dispatcher's commits: for each batch all jobs to
which something has happened are asked for their next steps. What has changed of them is written in
that batch, together with the tasks that the steps submit, hold back or kill. When it is on disk,
work on the store goes to threads, views to whoever waits. What comes back is a fact, and the next
batch. One thread; only the store is waited for elsewhere.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from kilnwork.data.stores import opening, port
from kilnwork.dispatch.hub import subscriptions
from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import (
    beginning,
    effects,
    errors,
    facts,
    model,
    plan,
    records,
    rows,
    steps,
    tables,
    task_hub,
    waiting,
)
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids

log = logging.getLogger(__name__)

MOST_LIVE = 10_000
"""Unfinished jobs in memory; more wait in the journal, in the order in which they came."""

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
    `on_failure` is called when nothing can be decided any more."""

    worker_url: str | None = None
    opened: Callable[[str], port.Store] = opening.open_store
    ttl_s: float | None = 7 * 86_400.0
    retry_s: float = 1.0
    on_failure: Callable[[BaseException], None] = lambda error: None


DEFAULTS = Options()


class _Joined:
    """What follows from what was added to a batch, once that is on disk."""

    def __init__(self) -> None:
        self.effects: list[tuple[records.Job, steps.Step]] = []
        self.shown: list[tuple[records.Job, model.JobView]] = []
        self.waiters: list[asyncio.Future[None]] = []
        self.purged: list[records.Job] = []
        self.there: list[subscriptions.Change] = []
        """Tasks that were there before."""
        self.heard: dict[ids.TaskId, subscriptions.Change] = {}
        """What the batch did to tasks, taken in with it."""


class Engine:
    """Jobs in memory, and the loop that moves them."""

    def __init__(
        self,
        store: port.Store,
        hub: task_hub.TaskHub,
        *,
        clock: clocks.Clock,
        options: Options,
    ) -> None:
        self.tables = tables.Tables(hub.select)
        self.store, self._hub, self._clock = store, hub, clock
        self._options = options
        self._submissions = task_hub.Submissions(options.worker_url or store.url)
        self.live: dict[bytes, records.Job] = {}
        """Jobs that are not over, or that somebody is changing; by UUID."""
        self.texts: dict[str, records.Job] = {}
        """The same by what people see."""
        self.tasks: dict[ids.TaskId, tuple[records.Job, int]] = {}
        self._ready: dict[records.Job, None] = {}
        self._pending = tables.PendingWrites()
        self._gone: list[records.Job] = []
        self._stale: dict[records.Job, None] = {}
        self._stale_timer: asyncio.TimerHandle | None = None
        self._turns, self.waiters = beginning.Turns(), waiting.Waiters()
        self._effects = effects.Effects(
            self, store, hub, opened=options.opened, retry_s=options.retry_s
        )
        self._joined: _Joined | None = None
        self.stopped: errors.JobsStopped | None = None
        self._part: Callable[[], None] = lambda: None
        self._loaded_to = self._parts = 0
        self.backlog = False
        """Unfinished jobs are in the journal that are not in memory."""
        self.forgotten: Callable[[records.Job], None] = lambda job: None
        """Told of jobs that memory lets go of."""

    def start(self) -> None:
        """Take up what is unfinished. The dispatcher runs."""
        self._loop = asyncio.get_running_loop()
        unfollow = self._hub.follow(self.tasks, self._heard)
        leave = self._hub.participate(self)

        def part() -> None:
            unfollow()
            leave()

        self._part = part
        self._take_up()

    async def stop(self) -> None:
        """Begin nothing more; what is being written is written."""
        self._end(errors.JobsStopped())
        self._part()
        if self._stale_timer is not None:
            self._stale_timer.cancel()
        await self._effects.stop()

    @property
    def over(self) -> bool:
        """It takes in nothing any more."""
        return self.stopped is not None

    def purged(self, job: records.Job) -> None:
        """Nothing of it is in the store any more; its rows go with the next round."""
        self._gone.append(job)
        self._hub.wake()

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
            self._hub.wake()

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
        self._pending.add(job, key, inline)
        job.ttl_s = self._options.ttl_s
        self.live[job.id.uuid] = self.texts[job.id.text] = job
        self._parts += job.size
        self.wake(job)

    def load(self, row: rows.JobRow) -> records.Job:
        """A job of the journal, in memory until it is over and nobody changes it."""
        found = self.live.get(row.uuid)
        if found is None:
            manifest = rows.decode_manifest(self.tables.manifest(row.row))
            found = rows.job_of(row, manifest, self.tables.states(row.row))
            found.view = rows.view(found)
            found.ttl_s = self._options.ttl_s
            self.live[row.uuid] = self.texts[row.id] = found
            self._parts += found.size
            if not found.stored:
                self._pending.inlined.add(row.row)
        return found

    def inline(self, job: records.Job) -> bytes | None:
        """Its input, if it may be in the journal alone."""
        return self.tables.inline(job.row) if job.row in self._pending.inlined else None

    def redriven(self, job: records.Job) -> None:
        """Its parts that have not succeeded are open again."""
        self._pending.redriven(job)

    def _take_up(self) -> None:
        """Jobs that are unfinished, as many as there is room for."""
        self.backlog = True
        while self.backlog and (room := self._room_for) > 0:
            found = self.tables.jobs("unfinished_jobs", self._loaded_to, min(ROUND, room))
            self.backlog = bool(found)
            for one in found:
                self._loaded_to = one.row
                self._take(one)

    def _take(self, row: rows.JobRow) -> None:
        try:
            self.wake(self.load(row))
        except msgspec.MsgspecError as error:
            extra = {"job": row.id, "error": str(error)}
            log.warning("a job of the journal cannot be read; it is left as it is", extra=extra)

    @property
    def _room_for(self) -> int:
        """How many more jobs memory may have; below 0: it has too many."""
        if self._parts > MOST_LIVE_PARTS:
            return -1
        return MOST_LIVE - len(self.live)

    def join(self, batch: instructions.Batch) -> None:
        """`commits.Participant`: add what has changed of jobs, and their tasks."""
        if self.stopped is not None:
            return
        heard = subscriptions.of_batch(batch, self.tasks) if self.tasks and batch.dirty else []
        self._heard(heard)
        if not (self._ready or self._gone):
            return
        now = self.now()
        joined = self._joined = _Joined()
        joined.heard = {change.task: change for change in heard}
        writes = tables.Writes()
        slots: dict[tuple[str, str], int] = {}
        for job in list(itertools.islice(self._ready, ROUND)):
            del self._ready[job]
            joined.waiters += self.waiters.taken(job)
            for step in plan.next_steps(job, self._room(job, slots), now):
                self._do(job, step, joined)
            self._pending.gather(writes, job)
            joined.shown.append((job, rows.view(job)))
        joined.purged, self._gone = self._gone, []
        for job in joined.purged:
            writes.delete(job.row)
        batch.writes += writes.statements()

    def committed(self) -> None:
        """`commits.Participant`: what was added last is on disk."""
        joined, self._joined = self._joined, None
        if joined is not None and self.stopped is None:
            self._show(joined)
            self.waiters.settled(joined.waiters)
            if self._ready or self._gone:
                self._hub.wake()

    def aborted(self, error: BaseException) -> None:
        """`commits.Participant`: no batch will be written any more."""
        self._end(errors.JobsStopped(f"the dispatcher failed: {error}"))

    def _room(self, job: records.Job, slots: dict[tuple[str, str], int]) -> plan.Room:
        key = (job.namespace, job.spec.cluster_name)
        if key not in slots:
            cluster = self._hub.cluster(*key)
            slots[key] = 0 if cluster is None else cluster.slots
        job.slots = slots[key]
        window = max(SMALLEST_WINDOW, min(WINDOW, ALL_WINDOWS // max(1, len(self.live))))
        return plan.Room(window, slots[key], begin=self._turns.begins(job))

    def _show(self, joined: "_Joined") -> None:
        """A batch is on disk: begin what follows from it, and let people see it."""
        for job, view in joined.shown:
            job.view = view
            self.waiters.tell(job.id.uuid, over=view.phase.final or view.deleting)
        for job, step in joined.effects:
            self._effects.begin(job, step)
        self._heard(joined.there)
        for job in self._turns.next():
            self.wake(job)
        for job in joined.purged:
            job.view = None
            self._let_go(job)
            self.waiters.tell(job.id.uuid, over=True)
        for job, _ in joined.shown:
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
            self.tasks.pop(task_hub.task_id(job.id.uuid, part), None)

    def _do(self, job: records.Job, step: steps.Step, joined: "_Joined") -> None:
        if isinstance(step, steps.Submit):
            for part in step.parts:
                self.tasks[task_hub.task_id(job.id.uuid, part)] = (job, part)
            wanted = (self._submissions.submission(job, part) for part in step.parts)
            new = job.fresh and job.run == 1
            joined.there += self._hub.submit_now(wanted, new=new)
        elif isinstance(step, steps.Hold):
            named = [task_hub.task_id(job.id.uuid, part) for part in step.parts]
            self._hub.suspend_now(named, suspended=step.held)
        elif isinstance(step, steps.Kill):
            named = [task_hub.task_id(job.id.uuid, part) for part in step.parts]
            self._hub.kill_now(named, reason="Killed", message=step.message)
        else:
            joined.effects.append((job, step))

    def _heard(self, changes: list[subscriptions.Change]) -> None:
        """The dispatcher tells of tasks."""
        if self.stopped is not None:
            return
        now = self.now()
        known = {} if self._joined is None else self._joined.heard
        for change in changes:
            found = self.tasks.get(change.task)
            if found is None or known.get(change.task) == change:
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
