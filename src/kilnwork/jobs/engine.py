"""Engine: advances all jobs. `step_planning` decides; the engine executes, and publishes no change
before it is on disk.

Used by the services (`file_job_service`, `index_job_service`, `flows`) and by `service_assembly`.
The engine is a participant of the dispatcher's commits. For each batch it asks `step_planning` for
the next steps of every job that has changed, and writes the changes in that batch, together with
the tasks that the steps submit, suspend or kill. When the batch is on disk, it hands work on the
store to threads and publishes new views. The results of that work change jobs, and so lead to the
next batch. The engine runs in one thread; only waits for the store happen elsewhere.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kilnwork.dispatch.hub import subscriptions
from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import (
    effect_runner,
    errors,
    file_job_types,
    item_source,
    item_states,
    job_start_queue,
    live_job_state,
    plan_steps,
    prepare_queue,
    row_storage,
    rows,
    start_admission,
    step_planning,
    task_hub,
    transitions,
    waiters,
)
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids

log = logging.getLogger(__name__)

_S = item_states.ItemState

MAX_LIVE = 10_000
"""Maximum number of unfinished jobs in memory. Further jobs wait in the journal, in the order in
which they were created."""

MAX_LIVE_ITEMS = 1_000_000
"""Maximum number of items of unfinished jobs in memory: at this number the definitions of parts of
files take some hundred MiB. Above it, new jobs wait in the journal as well."""

ROUND = 1000
"""Number of jobs after which no further round of jobs is added to a batch. They take some ten
milliseconds of the event loop; a batch has at most twice as many."""

ALL_WINDOWS = 65_536
"""Number of tasks that the jobs in memory share: if there are very many jobs, each gets fewer tasks
at once, but at least `MIN_WINDOW`. The `parallelism` of a job takes precedence."""

MIN_WINDOW = 8

KEPT_TASKS = 10_000
"""Number of succeeded and of failed items per job whose tasks are kept as long as any other task,
half a kilobyte each. A file has no more parts than this."""

SHOW_S = 0.05
"""Maximum delay until users see that a task has begun."""


class _BatchEffects:
    """Work to be done once the batch that is being written is on disk."""

    def __init__(self) -> None:
        self.effects: list[tuple[live_job_state.Job, plan_steps.Step]] = []
        self.shown: list[tuple[live_job_state.Job, file_job_types.GenericJobView[Any, Any]]] = []
        self.waiters: list[asyncio.Future[None]] = []
        self.purged: list[live_job_state.Job] = []
        self.existing_tasks: list[subscriptions.Change] = []
        """State of tasks that existed before they were submitted."""
        self.applied_changes: dict[ids.TaskId, subscriptions.Change] = {}
        """Changes of tasks in this batch that have been applied already, by task."""


class JobListener(Protocol):
    """Observer of jobs, implemented by the service of each kind of jobs."""

    def on_job_changed(self, job: live_job_state.Job) -> None:
        """Handle a change of a job that is now on disk. `job.view` is the job's new view, or None
        if the job is deleted."""
        ...

    def on_job_released(self, job: live_job_state.Job) -> None:
        """Handle the release of a job from memory."""
        ...


class JobPlanner(Protocol):
    """Port for code that creates jobs when earlier jobs end, in the same batch. Implemented by
    flows.
    """

    @property
    def has_work(self) -> bool:
        """Whether the planner has changes for the next batch."""
        ...

    def on_job_ended(self, job: live_job_state.Job) -> None:
        """Handle the end of a job in the batch that is being made; may be called twice for the
        same job."""
        ...

    def plan_jobs(self, now: float) -> None:
        """Add new jobs and change existing jobs in the batch that is being made."""
        ...

    def collect_writes(self) -> instructions.Writes:
        """Return the rows that the planner itself writes in this batch."""
        ...

    def on_committed(self) -> None:
        """Handle the commit of the rows returned last, which are now on disk."""
        ...

    def on_stopped(self, why: errors.JobsStopped) -> None:
        """Handle the stop of the engine, which will make no further batch. `why` is the error."""
        ...


class Engine:
    """Executor of the plans of all jobs; keeps unfinished jobs in memory.

    `retry_s` is the delay before a failed step of a source is retried. `on_failure` is called when
    the engine has failed and can make no more decisions. All kinds of sources must be registered
    before `start`.
    """

    def __init__(
        self,
        hub: task_hub.TaskHub,
        *,
        blobs: Path,
        clock: clocks.Clock,
        retry_s: float = 1.0,
        on_failure: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self.tables = row_storage.Tables(hub.select)
        self.sources: dict[str, rows.SourceKind] = {}
        self._listeners: dict[str, JobListener] = {}
        self._planners: dict[str, JobPlanner] = {}
        self._hub, self._clock, self._on_failure = hub, clock, on_failure
        self.admission = start_admission.Admission(self.tables, clock)
        self._admission_timer: asyncio.TimerHandle | None = None
        self._new_rows = itertools.count(1)
        self.kept_tasks = KEPT_TASKS
        self.live: dict[bytes, live_job_state.Job] = {}
        """Jobs that are unfinished or being changed, by UUID."""
        self.by_text: dict[str, live_job_state.Job] = {}
        """The same jobs by the id that users see."""
        self.tasks: dict[ids.TaskId, tuple[live_job_state.Job, int]] = {}
        self._ready: dict[live_job_state.Job, None] = {}
        self._pending = row_storage.PendingWrites()
        self._purged: list[live_job_state.Job] = []
        self._stale: dict[live_job_state.Job, None] = {}
        self._stale_timer: asyncio.TimerHandle | None = None
        self._queue, self.waiters = prepare_queue.PrepareQueue(), waiters.Waiters()
        self._effects = effect_runner.Effects(self, hub, blobs=blobs, retry_s=retry_s)
        self._joined: _BatchEffects | None = None
        self.stopped: errors.JobsStopped | None = None
        self._leave_hub: Callable[[], None] = lambda: None
        self._loaded_to = self._items = 0
        self.backlog = False
        """Whether the journal has unfinished jobs that are not in memory, not counting jobs that
        wait for their turn."""

    def register(
        self,
        kind: str,
        source: rows.SourceKind,
        listener: JobListener,
        *,
        planner: JobPlanner | None = None,
    ) -> None:
        """Register a kind of source, and the listener for changes of its jobs. `planner` creates
        further jobs when a job of this kind ends."""
        self.sources[kind], self._listeners[kind] = source, listener
        if planner is not None:
            self._planners[kind] = planner

    def start(self) -> None:
        """Load the unfinished jobs and join the dispatcher's commits. The dispatcher must be
        running."""
        self._loop = asyncio.get_running_loop()
        self._new_rows = itertools.count(self.tables.next_row())
        self.admission.load()
        unfollow = self._hub.follow(self.tasks, self._apply_changes)
        leave = self._hub.participate(self)

        def leave_hub() -> None:
            unfollow()
            leave()

        self._leave_hub = leave_hub
        self._load_unfinished()
        self._set_admission_timer()

    async def stop(self) -> None:
        """Begin no more work, end all waiting calls with `JobsStopped`, and wait for the work on
        the store that is in progress."""
        self._shut_down(errors.JobsStopped())
        self._leave_hub()
        for timer in (self._stale_timer, self._admission_timer):
            if timer is not None:
                timer.cancel()
        await self._effects.stop()

    @property
    def is_stopped(self) -> bool:
        """Whether the engine has stopped and accepts no more changes."""
        return self.stopped is not None

    def mark_purged(self, job: live_job_state.Job) -> None:
        """Record that the store has no more data of a deleted job, so that the next batch deletes
        its rows.
        """
        self._purged.append(job)
        self._hub.wake()

    def new_row(self) -> int:
        """Return the row number for a new job."""
        return next(self._new_rows)

    def now(self) -> float:
        """Return the wall clock time in seconds."""
        return self._clock.wall()

    def check_running(self) -> None:
        """Raise `JobsStopped` if the engine has stopped."""
        if self.stopped is not None:
            raise self.stopped

    def wake(self, job: live_job_state.Job) -> None:
        """Advance a job in the next batch. Does nothing for a job that was dropped from memory."""
        if self.live.get(job.id.uuid) is job:
            self._ready[job] = None
            self._hub.wake()

    async def wait_stored(self, job: live_job_state.Job) -> file_job_types.GenericJobView[Any, Any]:
        """Wait until all changes that were made to a job so far are on disk, and return its
        view. Raises `JobsStopped`.
        """
        self.check_running()
        if self.live.get(job.id.uuid) is not job:
            return job.view or rows.view(job)
        waiter = self.waiters.add_waiter(job)
        self.wake(job)
        await waiter
        return job.view or rows.view(job)

    def add(
        self,
        job: live_job_state.Job,
        key: file_job_types.IdempotencyKey | None,
        inline: bytes | None,
    ) -> None:
        """Add a new job, which is not in the journal yet."""
        self._pending.add(job, key, inline)
        job.ttl_s = self.sources[job.source.kind].ttl_s
        self.live[job.id.uuid] = self.by_text[job.id.text] = job
        self._items += job.size
        self.wake(job)

    def redefine(self, job: live_job_state.Job, source: item_source.ItemSource) -> None:
        """Replace the source of a job that has not started, now that its items are known."""
        self._items += source.size - job.size
        transitions.set_items(job, source, now=self.now())
        self._pending.redefined.add(job)
        self.wake(job)

    def load(self, row: rows.JobRow) -> live_job_state.Job:
        """Return the job in a row, from memory or the journal. It stays in memory while it is
        unfinished or being changed.
        """
        found = self.live.get(row.uuid)
        if found is None:
            kind, definition = self.sources[row.source], self.tables.load_definition(row.row)
            found = rows.to_job(row, kind, definition)
            self.tables.load_items(row.row, found.items)
            found.view = rows.view(found)
            found.ttl_s = kind.ttl_s
            self.live[row.uuid] = self.by_text[row.id] = found
            self._items += found.size
            if not found.prepared:
                self._pending.inlined.add(row.row)
        return found

    def find(self, uuid: bytes) -> live_job_state.Job | None:
        """Return the job with a UUID, from memory or the journal, or None if there is no such
        job.
        """
        found = self.live.get(uuid)
        if found is None and (row := self.tables.find_job("uuid", uuid)) is not None:
            found = self.load(row)
        return found

    def find_inline_input(self, job: live_job_state.Job) -> bytes | None:
        """Return the job's input if it may not be in the store yet, but only in the journal, else
        None.
        """
        return self.tables.find_inline_input(job.row) if job.row in self._pending.inlined else None

    def _load_unfinished(self) -> None:
        """Load unfinished jobs into memory, as many as there is room for."""
        self.backlog = True
        while self.backlog and (room := self._free_room) > 0:
            found = self.tables.list_jobs("unfinished_jobs", self._loaded_to, min(ROUND, room))
            self.backlog = bool(found)
            for one in found:
                self._loaded_to = one.row
                self._load_row(one)

    def _load_row(self, row: rows.JobRow) -> None:
        try:
            self.wake(self.load(row))
        except msgspec.MsgspecError as error:
            extra = {"job": row.id, "error": str(error)}
            log.warning("a job of the journal cannot be read; it is left as it is", extra=extra)

    @property
    def _free_room(self) -> int:
        """Number of further jobs that may be in memory; negative if there are too many."""
        if self._items > MAX_LIVE_ITEMS:
            return -1
        return MAX_LIVE - len(self.live)

    def join(self, batch: instructions.Batch) -> bool:
        """Add changed jobs, and their tasks, to a batch (`commits.Participant`)."""
        if self.stopped is not None:
            return False
        changes = subscriptions.of_batch(batch, self.tasks) if self.tasks and batch.dirty else []
        if changes:
            self._apply_changes(changes)
        self._check_deadlines()
        turns_changed = self.admission.turns.changed
        planned = any(one.has_work for one in self._planners.values())
        if not (self._ready or self._purged or turns_changed or planned):
            return False
        now = self.now()
        joined = self._joined = _BatchEffects()
        joined.applied_changes = {change.task: change for change in changes}
        writes = row_storage.JobWrites()
        slots: dict[tuple[str, str], int] = {}
        touched: dict[live_job_state.Job, None] = {}
        self._admit(now)
        self._plan(now)
        while len(touched) < ROUND and self._ready:
            for job in list(itertools.islice(self._ready, ROUND)):
                del self._ready[job]
                touched[job] = None
                self._advance(job, joined, slots, now=now)
            self._admit(now)
            self._plan(now)
        for job in touched:
            self._pending.gather(writes, job)
            joined.shown.append((job, rows.view(job)))
        self.admission.collect_writes(writes)
        joined.purged, self._purged = self._purged, []
        for job in joined.purged:
            self.admission.discard(job.row)
            writes.delete(job.row)
        batch.writes += writes.statements()
        for one in self._planners.values():
            batch.writes += one.collect_writes()
        return True

    def _plan(self, now: float) -> None:
        for one in self._planners.values():
            one.plan_jobs(now)

    def _advance(
        self,
        job: live_job_state.Job,
        joined: "_BatchEffects",
        slots: dict[tuple[str, str], int],
        *,
        now: float,
    ) -> None:
        """Ask `step_planning` for the next steps of a job, and execute the steps in this batch."""
        joined.waiters += self.waiters.take_waiters(job)
        found = step_planning.next_steps(job, self._task_room(job, slots), now)
        self._forget_tasks(job)
        self._unfollow(job)
        for step in found:
            self._carry_out(job, step, joined)
        if job.stage is live_job_state.FINISHED:
            self.admission.remove(job.row)
            planner = self._planners.get(job.source.kind)
            if planner is not None:
                planner.on_job_ended(job)
        elif job.stage is live_job_state.STOPPING:
            self.admission.turns.mark_stopping(job.row)

    def _admit(self, now: float) -> None:
        """Start the jobs that the start queue admits, and end the jobs that it refuses or
        replaces.
        """
        if not self.admission.turns.changed:
            return
        for decision in self.admission.turns.decide():
            job = self._find_by_row(decision.row)
            if job is None:
                continue
            if isinstance(decision, job_start_queue.Replace):
                transitions.kill(job, "Replaced", decision.message, now=now)
            elif job.stage is not live_job_state.RUNNING:
                pass  # the job was killed meanwhile
            elif isinstance(decision, job_start_queue.Start):
                transitions.admit(job, now=now)
                self.admission.start_time_limit(job)
            elif isinstance(decision, job_start_queue.Wait):
                transitions.requeue(job, now=now)
            else:
                transitions.refuse(job, decision.reason, decision.message, now=now)
            self._ready[job] = None
        self._set_admission_timer()

    def _find_by_row(self, row: int) -> live_job_state.Job | None:
        uuid = self.admission.uuid_of(row)
        try:
            return None if uuid is None else self.find(uuid)
        except msgspec.MsgspecError as error:
            extra = {"row": row, "error": str(error)}
            log.warning("a job of the journal cannot be read; it is left as it is", extra=extra)
            self.admission.remove(row)
            return None

    def _check_deadlines(self) -> None:
        """Fail jobs that have exceeded their time limit, and mark waiting jobs as due."""
        for row in self.admission.check_deadlines():
            job, claim = self._find_by_row(row), self.admission.find_claim(row)
            if job is not None and claim is not None:
                message = f"it has run for {claim.job_seconds:g} s, timeouts.jobSeconds"
                transitions.fail(job, "JobTimedOut", message, now=self.now())
                self._ready[job] = None

    def _set_admission_timer(self) -> None:
        if self._admission_timer is not None:
            self._admission_timer.cancel()
            self._admission_timer = None
        delay_s = self.admission.next_deadline_s
        if delay_s is not None and self.stopped is None:
            self._admission_timer = self._loop.call_later(delay_s, self._on_admission_timer)

    def _on_admission_timer(self) -> None:
        self._hub.wake()
        self._set_admission_timer()

    def committed(self) -> None:
        """Publish the changes of the last batch, which is on disk (`commits.Participant`)."""
        joined, self._joined = self._joined, None
        if joined is not None and self.stopped is None:
            self._publish(joined)
            for one in self._planners.values():
                one.on_committed()
            self.waiters.wake_stored(joined.waiters)
            if self._ready or self._purged:
                self._hub.wake()

    def aborted(self, error: BaseException) -> None:
        """Raise an error in all waiting calls, because the dispatcher will write no further batch
        (`commits.Participant`).
        """
        self._shut_down(errors.JobsStopped(f"the dispatcher failed: {error}"))

    def _task_room(
        self, job: live_job_state.Job, slots: dict[tuple[str, str], int]
    ) -> step_planning.TaskRoom:
        if job.spec.suspend:
            return step_planning.TaskRoom(0, 0, prepare=self._queue.admits(job))
        key = (job.namespace, job.spec.cluster_name)
        if key not in slots:
            cluster = self._hub.cluster(*key)
            slots[key] = 0 if cluster is None else cluster.slots
        job.slots = slots[key]
        window = max(MIN_WINDOW, min(job.source.window, ALL_WINDOWS // max(1, len(self.live))))
        return step_planning.TaskRoom(window, slots[key], prepare=self._queue.admits(job))

    def _publish(self, joined: "_BatchEffects") -> None:
        """Publish the views of a batch that is on disk, and begin the effects that follow from
        it."""
        for job, view in joined.shown:
            job.view = view
            self._listeners[job.source.kind].on_job_changed(job)
            self.waiters.notify(job.id.uuid, over=view.phase.final or view.deleting)
        for job, step in joined.effects:
            self._effects.begin(job, step)
        if joined.existing_tasks:
            self._apply_changes(joined.existing_tasks)
        for job in self._queue.list_admissible():
            self.wake(job)
        for job in joined.purged:
            job.view = None
            self._listeners[job.source.kind].on_job_changed(job)
            self._release(job)
            self.waiters.notify(job.id.uuid, over=True)
        for job, _ in joined.shown:
            if not job.busy and job not in self._ready and self._is_idle(job):
                self._release(job)
        if self.backlog and self._free_room > MAX_LIVE // 2:
            self._load_unfinished()

    def _is_idle(self, job: live_job_state.Job) -> bool:
        """Return whether a job can be dropped from memory.

        A job can be dropped if it waits for its turn, is paused or has finished, or if it is new
        and memory is full.
        """
        if job.deleting or job.tasks:
            return False
        if job.waits and job.stage is live_job_state.RUNNING:
            return True
        if job.stage is live_job_state.RUNNING:
            full = self._queue.is_waiting(job) and self._free_room < 0
            self.backlog = self.backlog or full
            return full or (job.spec.suspend and (job.recovered or job.fresh))
        return job.stage is live_job_state.FINISHED

    def _release(self, job: live_job_state.Job) -> None:
        """Drop a job from memory."""
        if self.live.pop(job.id.uuid, None) is not None:
            self._items -= job.size
        self._queue.remove(job)
        self.by_text.pop(job.id.text, None)
        self._listeners[job.source.kind].on_job_released(job)
        job.dropped.update(job.tasks)
        job.tasks.clear()
        self._unfollow(job)

    def _forget_tasks(self, job: live_job_state.Job) -> None:
        """Delete the tasks of items that have ended in this batch, if the journal already keeps
        enough tasks of the job.

        From then on the job's page of item states is the only record of these items.
        """
        if job.source.keeps_tasks:
            return
        for state, count in ((_S.SUCCEEDED, job.counts.succeeded), (_S.FAILED, job.counts.failed)):
            surplus = count - self.kept_tasks
            if surplus <= 0:
                continue
            over = [
                (_task_id_of(job, item, task), job.run_of(item))
                for item, task in job.dropped.items()
                if item and job.items.states[item] == state and not task.parent
            ][-surplus:]
            self._hub.forget_now(over, childless=job.source.ends_with_task)

    def _unfollow(self, job: live_job_state.Job) -> None:
        """Stop following the tasks whose end the job has processed."""
        for item, task in job.dropped.items():
            if item not in job.tasks:
                self.tasks.pop(_task_id_of(job, item, task), None)
        job.dropped.clear()

    def _carry_out(
        self, job: live_job_state.Job, step: plan_steps.Step, joined: "_BatchEffects"
    ) -> None:
        if isinstance(step, plan_steps.Submit):
            wanted = []
            for item in step.items:
                task = task_hub.task_id(job.id.uuid, item)
                self.tasks[task] = (job, item)
                try:
                    wanted.append(task_hub.submission(job, item, task))
                except errors.ItemUnusable as error:
                    joined.existing_tasks.append(task_hub.refused(job, item, str(error)))
            new = job.fresh and job.run == 1
            shown = job.size <= job.source.shown_tasks
            joined.existing_tasks += self._hub.submit_now(wanted, new=new, shown=shown)
        elif isinstance(step, plan_steps.Suspend):
            named = [task_hub.task_id(job.id.uuid, item) for item in step.items]
            self._hub.suspend_now(named, suspended=step.suspended)
        elif isinstance(step, plan_steps.Kill):
            named = [task_hub.task_id(job.id.uuid, item) for item in step.items]
            self._hub.kill_now(named, reason="Killed", message=step.message)
        elif isinstance(step, plan_steps.Follow):
            found = job.source.hook_tasks(job, step.event)
            self._hub.submit_now(task_hub.extra_submission(job, one) for one in found)
        else:
            joined.effects.append((job, step))

    def _apply_changes(self, changes: list[subscriptions.Change]) -> None:
        """Apply changes of tasks to their jobs."""
        if self.stopped is not None:
            return
        now = self.now()
        known = {} if self._joined is None else self._joined.applied_changes
        moved: dict[live_job_state.Job, bool] = {}
        for change in changes:
            found = self.tasks.get(change.task)
            if found is None or known.get(change.task) == change:
                continue
            job, item = found
            transitions.apply_task_change(job, item, change, now=now)
            moved[job] = change.over or moved.get(job, False)
        for job, over in moved.items():
            job.changed(now)
            if over or job.dirty:
                self.wake(job)
            else:
                self._publish_later(job)

    def _publish_later(self, job: live_job_state.Job) -> None:
        """Publish a change that needs no further step, within `SHOW_S`."""
        if not self._stale:
            self._stale_timer = self._loop.call_later(SHOW_S, self._publish_stale)
        self._stale[job] = None

    def _publish_stale(self) -> None:
        stale, self._stale = self._stale, {}
        for job in stale:
            self.wake(job)

    def _shut_down(self, why: errors.JobsStopped) -> None:
        if self.stopped is not None:
            return
        self.stopped = why
        self.waiters.stop(why)
        for one in self._planners.values():
            one.on_stopped(why)

    def fail(self, error: BaseException) -> None:
        """Stop the engine after an error that left it in an unknown state. Only a restart of the
        process helps.
        """
        log.error("jobs failed", exc_info=error)
        self._shut_down(errors.JobsStopped(f"jobs failed: {error}"))
        self._on_failure(error)


def _task_id_of(job: live_job_state.Job, item: int, task: live_job_state.ItemTask) -> ids.TaskId:
    return task.id or task_hub.task_id(job.id.uuid, item)
