"""Service of flows for the SyncSet controller: starts, pauses, ends, shows and deletes runs of
flows.

There is one service per dispatcher, on the dispatcher's event loop, beside the engine: each step
that runs tasks is a job of the engine (`step_item_source`). The service is a planner of the
engine's batches: when the job of a step ends, it runs `run_planning` in the same batch, and adds
the jobs of the next steps to that batch. A coroutine method returns when its effect is on disk. All
methods may be repeated.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import flow_program, flow_validation
from kilnwork.dispatch.hub import feed
from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import engine as engines
from kilnwork.jobs import errors, task_hub
from kilnwork.jobs import live_job_state as job_records
from kilnwork.jobs.flows import (
    live_run_state,
    reopening,
    row_storage,
    run_planning,
    run_types,
    snapshot_resharding,
    step_item_source,
    step_jobs,
    step_listing,
    timers,
    views,
)
from kilnwork.kit import clock as clocks

log = logging.getLogger(__name__)

MAX_DEFINITION_BYTES = 16 << 20
"""Maximum size in bytes of a flow with its parameters and shards."""

SHOW_S = 0.25
"""Maximum delay in seconds until progress of a step's tasks is published. The controller examines
the whole SyncSet for each such change, and writes its status at most once a second. Decisions of
the plan are published at once."""

MAX_REMEMBERED = 512
"""Maximum number of views of finished runs kept in memory."""


class FlowRuns:
    """Service of the runs of flows in a data directory.

    `moved_by`: the engine that advances the jobs, not started yet; `blobs`: the directory of large
    values, with a subdirectory per namespace.
    """

    def __init__(
        self,
        hub: task_hub.TaskHub,
        moved_by: engines.Engine,
        *,
        clock: clocks.Clock,
        blobs: Path,
    ) -> None:
        self._hub, self._engine, self._clock = hub, moved_by, clock
        self._tables = row_storage.FlowTables(hub.select, blobs)
        self._writes = row_storage.FlowWrites()
        self._live: dict[run_types.FlowKey, live_run_state.Run] = {}
        """Runs that are unfinished or being changed."""
        self._views: dict[run_types.FlowKey, run_types.FlowRunView] = {}
        """Views of the live runs as stored on disk."""
        self._new: dict[run_types.FlowKey, None] = {}
        self._ready: dict[live_run_state.Run, None] = {}
        self._touched: dict[live_run_state.Run, None] = {}
        """Runs that change in the batch that is being made."""
        self._finished_views: dict[run_types.FlowKey, run_types.FlowRunView] = {}
        """Views of recently shown finished runs."""
        self._joined: list[tuple[live_run_state.Run, run_types.FlowRunView | None]] = []
        """Runs, with their new views, of the batch that is being written."""
        self._waiters: defaultdict[run_types.FlowKey, list[asyncio.Future[None]]] = defaultdict(
            list
        )
        self._settling: list[asyncio.Future[None]] = []
        self._timers: timers.Timers[tuple[run_types.FlowKey, str]] = timers.Timers(clock)
        self._timer: asyncio.TimerHandle | None = None
        self._feed: feed.Feed[run_types.FlowKey] = feed.Feed()
        self._stale: dict[run_types.FlowKey, None] = {}
        """Runs in which only counts have changed."""
        self._stale_timer: asyncio.TimerHandle | None = None
        self._next_row = 1
        self._code: dict[int, tuple[str, frozenset[bytes]]] = {}
        """Namespace and digests of code blobs, by row."""
        sources = step_item_source.StepSources(blobs, hub.result)
        self._jobs = step_jobs.StepJobs(
            hub,
            moved_by,
            self._tables,
            sources=sources,
            writes=self._writes,
            on_change=self._replan,
        )
        moved_by.register(step_item_source.KIND, sources, self, planner=self)

    def load(self) -> None:
        """Resume the unfinished runs. The engine must be running."""
        self._next_row = self._tables.next_row()
        for row in self._tables.iterate_rows("unfinished_flow_runs"):
            try:
                self._load_row(row)
            except (msgspec.MsgspecError, ValueError) as error:
                extra = {"run": row.key, "error": str(error)}
                log.warning(
                    "a flow of the journal cannot be read; it is left as it is", extra=extra
                )
        self._set_timer()

    def stop(self) -> None:
        """Stop the timers, and end all calls of `changes` with an error. Call this only after the
        engine has stopped."""
        for timer in (self._timer, self._stale_timer):
            if timer is not None:
                timer.cancel()
        self._feed.fail(self._engine.stopped or errors.JobsStopped())

    def on_stopped(self, why: errors.JobsStopped) -> None:
        """Raise this error in all calls that wait for a batch (`engine.JobPlanner`)."""
        for waiter in (*self._settling, *(one for some in self._waiters.values() for one in some)):
            if not waiter.done():
                waiter.set_exception(why)

    # commands of the controller

    async def start(self, new: run_types.NewFlowRun) -> run_types.FlowRunView:
        """Start a run, and return its view. If the run was started before, nothing is changed.

        Raises `InvalidJob` (the message begins with the path of the field), `JobsStopped`, and
        `NoSuchJob` if the run was deleted meanwhile.
        """
        self._engine.check_running()
        known = self.view(new.key)
        if known is not None:
            return known
        if new.key not in self._live:
            _check_definition(new)
            made = f"{self._hub.epoch}.{self._next_row}"
            state = live_run_state.RunState(started=self._clock.wall(), made=made, run=new.run)
            run = live_run_state.Run(new, state, row=self._next_row)
            self._next_row += 1
            self._live[new.key] = run
            self._new[new.key] = None
            if run.program.timeout_s is not None:
                self._limit(run, "", run.program.timeout_s, started=state.started)
        self._wake(self._live[new.key])
        await self._wait_stored(new.key)
        found = self.view(new.key)
        if found is None:
            raise errors.NoSuchJob(f"the run of {new.namespace}/{new.set_name} was forgotten")
        return found

    async def suspend(self, key: run_types.FlowKey, *, suspended: bool) -> None:
        """Pause or resume a run: while it is paused, no step and no attempt starts. Running
        attempts continue."""
        run = self._find_unfinished(key)
        if run is None:
            return
        run_planning.suspend(run, suspended=suspended)
        self._jobs.suspend(run)
        self._wake(run)
        await self._wait_stored(key)

    async def kill(
        self, key: run_types.FlowKey, *, reason: str = "Killed", message: str = "it was killed"
    ) -> None:
        """End a run: stop its running steps, then run `finally`. Does nothing if the run has ended
        or is ending.
        """
        run = self._find_unfinished(key)
        if run is not None:
            run_planning.kill(run, reason, message)
            self._wake(run)
            await self._wait_stored(key)

    async def retry(self, key: run_types.FlowKey, *, run: int) -> run_types.FlowRunView | None:
        """Run the failed steps of a run again, and the steps after them, as run number `run`;
        return the view.

        Does nothing if the run is unfinished, has succeeded, or has this run number already.
        Returns None if there is no such run.
        """
        self._engine.check_running()
        view = self.view(key)
        if view is None or view.phase not in reopening.ENDS or view.run >= run:
            return view
        found = self._load_run(key)
        if found is None:
            return None
        self._timers.drop(lambda timer: timer[0] == key)
        wanted = reopening.find_reopening(found, lambda step: self._jobs.run_number(found, step))
        for step in wanted.restarted:
            if found.records[step].job:
                self._jobs.discard(found, step)
        reopening.apply_reopening(found, wanted, run_number=run, now=self._clock.wall())
        self._resume(found)
        await self._wait_stored(key)
        return self.view(key)

    async def forget(self, key: run_types.FlowKey) -> None:
        """Delete a run: stop all its steps, including `finally`, then delete its rows.

        Its tasks stay in the journal as long as any other task.
        """
        run = self._load_run(key)
        if run is not None:
            run_planning.abandon(run)
            run.dirty = True
            self._wake(run)
            await self._wait_stored(key)

    async def reshard(
        self, key: run_types.FlowKey, shards: Mapping[str, list[Any]]
    ) -> run_types.NewFlowRun | None:
        """Replace the shards of snapshots, given by name, and return the definition of the run, or
        None if the run has ended or there is no such run.

        Snapshots that are used by a step that has begun stay unchanged. Raises `InvalidJob` if the
        definition is too large.
        """
        run = self._find_unfinished(key)
        if run is None:
            return None
        new = snapshot_resharding.with_shards(run, shards)
        if new is not run.new:
            _check_size(new)
            run.redefine(new)
            self._wake(run)
            await self._wait_stored(key)
        return new

    # queries of the controller

    def view(self, key: run_types.FlowKey) -> run_types.FlowRunView | None:
        """Return the view of a run, or None if there is no such run.

        It is as stored on disk, with the current counts of unfinished jobs.
        """
        known, run = self._stored_view(key), self._live.get(key)
        if known is None or run is None or key not in self._views or not run.open_jobs:
            return known
        return views.add_open_jobs(known, self._jobs.open_jobs(run))

    def stored(self, key: run_types.FlowKey) -> run_types.NewFlowRun | None:
        """Return the definition of a run with its current shards, for starting a similar run; None
        if there is no such run.
        """
        run = self._live.get(key)
        if run is not None and key in self._views:
            return run.new
        row = self._tables.find_row(key)
        return None if row is None else self._tables.load_definition(row)

    def code(self) -> dict[str, set[bytes]]:
        """Return the digests of the code blobs of all runs in the journal, by namespace.

        They are needed because an old generation may be run again.
        """
        found: dict[str, set[bytes]] = {}
        seen: dict[int, tuple[str, frozenset[bytes]]] = {}
        for row in self._tables.iterate_rows("flow_runs"):
            known = self._code.get(row.row)
            if known is None:
                new = self._tables.load_definition(row)
                program, _ = flow_program.build(new.flow)
                known = new.namespace, flow_program.code_digests(program)
            seen[row.row] = known
            found.setdefault(known[0], set()).update(known[1])
        self._code = seen
        return found

    async def changes(self, since: int) -> tuple[int, list[run_types.FlowRunView]]:
        """Wait until runs have changed after version number `since`; return the number for the next
        call, and the views of these runs.

        Deleted runs are left out. The counts of unfinished jobs are not included, since looking
        them up for each change would take too much time; `view` has them. If `since` is 0, or comes
        from an earlier dispatcher process, return all runs in the journal.
        """
        self._engine.check_running()
        await self._feed.newer(since)
        last = self._feed.last
        if 0 < since <= last:
            keys = self._feed.since(since)
        else:
            keys = [row.key for row in self._tables.iterate_rows("flow_runs")]
        found = (self._stored_view(key) for key in keys)
        return last, [view for view in found if view is not None]

    async def steps(
        self,
        key: run_types.FlowKey,
        *,
        step: str = "",
        after: str = "",
        limit: int = 100,
        state: run_types.InstanceState | None = None,
    ) -> list[run_types.InstanceView]:
        """Return the step instances of a run and their shards, in the order in which they began.

        `step`: only instances of the step with this path; `after`: only instances after this key.
        Raises `NoSuchJob`.
        """
        row = self._tables.find_row(key)
        if row is None:
            raise errors.NoSuchJob(f"there is no run {key.generation} of SyncSet {key.uid}")
        run = self._live.get(key) or self._tables.load_run(row)
        listed = step_listing.InstanceListing(run, self._engine, self._hub)
        return listed.page(step=step, after=after, limit=limit, state=state)

    # called by the engine (`engine.JobPlanner`, `engine.JobListener`)

    @property
    def has_work(self) -> bool:
        """Whether runs have changes for the next batch (`engine.JobPlanner`)."""
        return bool(self._ready)

    def on_job_ended(self, job: job_records.Job) -> None:
        """Record that the job of a step has ended in the batch that is being made
        (`engine.JobPlanner`)."""
        self._jobs.process_end(job)

    def plan_jobs(self, now: float) -> None:
        """Run the plan of each changed run, and add the result to the batch that is being made
        (`engine.JobPlanner`)."""
        for key in self._timers.take_due():
            run = self._live.get(key[0])
            if run is not None:
                run_planning.timed_out(run, key[1])
                self._ready[run] = None
        while self._ready:
            run = next(iter(self._ready))
            del self._ready[run]
            if self._live.get(run.new.key) is not run:
                continue
            for instruction in run_planning.advance(run, now=now):
                self._carry_out(run, instruction)
            self._touched[run] = None
            if run.state.deleting and run.state.stage is live_run_state.FlowStage.OVER:
                self._jobs.delete(run)
        self._set_timer()

    def collect_writes(self) -> instructions.Writes:
        """Return the rows of changed runs for this batch (`engine.JobPlanner`)."""
        touched, self._touched = self._touched, {}
        for run in touched:
            self._collect_run(run)
        return self._writes.take()

    def on_committed(self) -> None:
        """Publish the changes of the last batch, which is on disk (`engine.JobPlanner`)."""
        joined, self._joined = self._joined, []
        for run, view in joined:
            key = run.new.key
            self._finished_views.pop(key, None)
            self._stale.pop(key, None)
            if view is None:
                self._views.pop(key, None)
                self._live.pop(key, None)
            elif key in self._live:
                self._views[key] = view
            self._feed.publish((key,))
            if view is None:
                self._feed.drop((key,))
            elif run.state.stage is live_run_state.FlowStage.OVER and run not in self._ready:
                self._remember(view)
                self._views.pop(key, None)
                self._live.pop(key, None)
        settled, self._settling = self._settling, []
        for waiter in settled:
            if not waiter.done():
                waiter.set_result(None)

    def on_job_changed(self, job: job_records.Job) -> None:
        """Publish a change of a step's job after a delay, since its tasks end in very many
        batches."""
        run = self._jobs.run_of(job)
        if run is not None:
            self._stale[run.new.key] = None
            if self._stale_timer is None:
                loop = asyncio.get_running_loop()
                self._stale_timer = loop.call_later(SHOW_S, self._publish_stale)

    def on_job_released(self, job: job_records.Job) -> None:
        """Keep the counts of a step's job that was dropped from memory."""
        self._jobs.keep_counts(job)

    # private methods

    def _stored_view(self, key: run_types.FlowKey) -> run_types.FlowRunView | None:
        """Return the view of a run without the counts of its unfinished jobs."""
        known = self._views.get(key)
        if known is not None:
            return None if self._live[key].state.deleting else known
        if (over := self._finished_views.get(key)) is not None:
            return over
        row = self._tables.find_row(key)
        if row is None:
            return None
        run = self._tables.load_run(row)
        return None if run.state.deleting else self._remember(views.run_view(run))

    def _publish_stale(self) -> None:
        self._stale_timer = None
        stale, self._stale = self._stale, {}
        self._feed.publish(stale)

    def _remember(self, view: run_types.FlowRunView) -> run_types.FlowRunView:
        """Keep the view of a finished run, which is requested repeatedly, and return the view."""
        if view.phase.final:
            self._finished_views[view.key] = view
            if len(self._finished_views) > MAX_REMEMBERED:
                del self._finished_views[next(iter(self._finished_views))]
        return view

    def _wake(self, run: live_run_state.Run) -> None:
        self._ready[run] = None
        self._hub.wake()

    def _replan(self, run: live_run_state.Run) -> None:
        """Run the plan of a run in the batch that is being made, or in the next batch if none is
        being made.
        """
        self._ready[run] = None

    async def _wait_stored(self, key: run_types.FlowKey) -> None:
        """Wait until all changes of a run so far are on disk."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[key].append(waiter)
        await waiter

    def _load_run(self, key: run_types.FlowKey) -> live_run_state.Run | None:
        self._engine.check_running()
        run = self._live.get(key)
        if run is None and (row := self._tables.find_row(key)) is not None:
            run = self._live[key] = self._tables.load_run(row)
        return run

    def _find_unfinished(self, key: run_types.FlowKey) -> live_run_state.Run | None:
        """Return an unfinished run that is to be changed, or None. The caller wakes the run after
        the change.
        """
        self._engine.check_running()
        run = self._live.get(key)
        return None if run is None or run.state.stage is live_run_state.FlowStage.OVER else run

    def _load_row(self, row: row_storage.FlowRow) -> None:
        """Load the run of a row that an earlier dispatcher process has written, and resume the
        run.
        """
        run = self._live[row.key] = self._tables.load_run(row)
        self._views[row.key] = views.run_view(run)
        self._resume(run)

    def _resume(self, run: live_run_state.Run) -> None:
        """Set the timers of a run, and follow its unfinished jobs."""
        state, program = run.state, run.program
        if program.timeout_s is not None:
            began = state.started if state.resumed is None else state.resumed
            self._limit(run, "", program.timeout_s, started=began)
        if state.finally_started is not None:
            self._limit(run, "finally", run_planning.FINALLY_S, started=state.finally_started)
        limits = {
            path: node.step.timeout_seconds for path, node in views.nodes_by_path(program).items()
        }
        for record in run.records.values():
            seconds = limits[live_run_state.step_path(record.key)]
            if record.state is run_types.InstanceState.RUNNING and seconds is not None:
                self._limit(run, record.key, seconds, started=record.started)
        for key in list(run.open_jobs):
            self._jobs.follow(run, key)
        self._wake(run)

    def _carry_out(self, run: live_run_state.Run, instruction: live_run_state.Instruction) -> None:
        key = instruction.key
        if isinstance(instruction, live_run_state.StartJob):
            self._jobs.start(run, key, instruction.work)
        elif isinstance(instruction, live_run_state.SetTimeLimit):
            self._limit(run, key, instruction.seconds, started=self._clock.wall())
        else:
            self._jobs.stop(run, key, instruction.message)

    def _limit(self, run: live_run_state.Run, key: str, seconds: float, *, started: float) -> None:
        self._timers.set((run.new.key, key), seconds, started=started)

    def _collect_run(self, run: live_run_state.Run) -> None:
        """Add the changes of a run to the rows of this batch, and publish them when the rows are on
        disk.
        """
        key = run.new.key
        over = run.state.stage is live_run_state.FlowStage.OVER
        if run.dirty or run.changed or run.changed_values or key in self._new:
            version = max(run.state.version, run.shown_version)
            version = max(version + 1, int(self._clock.wall() * 1000))
            run.update(version=version)
        if over and run.state.deleting:
            if key not in self._new:
                self._writes.delete(run)
            self._joined.append((run, None))
        else:
            if key in self._new:
                self._writes.insert(run)
            self._writes.update(run)
            self._joined.append((run, views.run_view(run)))
        self._new.pop(key, None)
        self._settling += self._waiters.pop(key, [])

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        delay_s = self._timers.next_deadline_s
        if delay_s is not None and not self._engine.is_stopped:
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        for key, step in self._timers.take_due():
            run = self._live.get(key)
            if run is not None:
                run_planning.timed_out(run, step)
                self._wake(run)
        self._set_timer()


def _check_definition(new: run_types.NewFlowRun) -> None:
    """Raise `InvalidJob` if the definition of a run is invalid."""
    try:
        row_storage.uid_bytes(new.uid)
    except ValueError as error:
        raise errors.InvalidJob(f"metadata.uid: {new.uid!r} is no UUID") from error
    shards = {name: one.shards is not None for name, one in new.snapshots.items()}
    found = flow_validation.problems(new.flow, snapshots=shards, groups=new.clusters)
    if found:
        path, text = found[0]
        raise errors.InvalidJob(f"spec.flow.{path}: {text}")
    unknown = sorted(new.params.keys() - new.flow.params.keys())
    if unknown:
        known = ", ".join(new.flow.params) or "none"
        raise errors.InvalidJob(f"params.{unknown[0]}: is no parameter; flow.params has: {known}")
    _check_size(new)


def _check_size(new: run_types.NewFlowRun) -> None:
    if len(msgspec.json.encode(new)) > MAX_DEFINITION_BYTES:
        raise errors.InvalidJob("spec.flow: it takes more than 16 MiB with parameters and shards")
