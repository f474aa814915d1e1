"""Service of Jobs for controllers, server and CLI: adds, follows, changes and ends Jobs, and lists
their indexes.

Jobs are identified by uid. There is one service per dispatcher, on the dispatcher's event loop; its
tables are in the dispatcher's journal. A coroutine method returns when its effect is on disk.
Reading methods do not block: they read memory, or rows of one index. All methods may be repeated.
The meaning of a Job object is defined in `api.job`, and when its schedule is due in
`api.due_ticks`.
"""

import functools
import uuid as uuids
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from kilnwork.api import filejobs
from kilnwork.dispatch.hub import feed
from kilnwork.jobs import (
    engine,
    errors,
    file_job_types,
    index_item_source,
    index_job_types,
    job_index_listing,
    job_start_queue,
    live_job_state,
    row_storage,
    rows,
    schedule_rows,
    task_hub,
    transitions,
)
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids

PAGE = 500
"""Number of rows read at once when all Jobs are listed."""

MAX_RELEASED = 4_000
"""Number of views kept for the next call of `changes` after their Jobs were dropped from memory: a
kilobyte each."""

MAX_DEFINITION_BYTES = 16 << 20
"""Maximum size of a template with variables, inputs and the items that a task returned."""

_View = file_job_types.GenericJobView[index_item_source.IndexSpec, index_item_source.IndexProgress]


class IndexJobs:
    """Service of the Jobs in a data directory. `moved_by`: the engine that advances the jobs, not
    started yet."""

    def __init__(
        self, hub: task_hub.TaskHub, moved_by: engine.Engine, *, clock: clocks.Clock
    ) -> None:
        self._hub, self._engine, self._clock = hub, moved_by, clock
        self._tables = row_storage.Tables(hub.select)
        self._sources = index_item_source.IndexSources()
        self._schedules = schedule_rows.Schedules(self._tables)
        self._feed: feed.Feed[str] = feed.Feed()
        self._recent: dict[str, index_job_types.IndexJobView] = {}
        """Views returned by the last call of `changes`, and by `put` since then; both methods
        reuse these views."""
        self._released: dict[bytes, _View] = {}
        """Views of Jobs that were dropped from memory and not returned by `changes` yet, so that
        they need not be read from the journal."""
        self._known: set[bytes] | None = None
        """UUIDs of all Jobs in the journal, once they have been read, so that a new Job need not be
        looked up."""
        moved_by.register(index_item_source.KIND, self._sources, self)

    def stop(self) -> None:
        """End all calls that wait for changes. The engine must be stopped."""
        self._feed.fail(self._engine.stopped or errors.JobsStopped())

    async def put(self, new: index_job_types.NewIndexJob) -> index_job_types.IndexJobView:
        """Add a Job, and return its view. If the Job was added before, nothing is changed.

        A Job that is refused gets phase AdmissionError with reason `Forbidden`, `QueueFull` or
        `TickNotDecided`. Raises `InvalidJob` (the message begins with the path of the field),
        `JobsStopped`, and `NoSuchJob` if the Job was released meanwhile.
        """
        self._check()
        uuid = _uuid(new.uid)
        is_new = self._known is not None and uuid not in self._known
        job = None if is_new else self._engine.find(uuid)
        there = job is not None
        if job is None:
            source = self._sources.new(_definition(new))
            if len(msgspec.json.encode(source.definition)) > MAX_DEFINITION_BYTES:
                raise errors.InvalidJob(
                    "spec.template: it takes more than 16 MiB with its variables and inputs"
                )
            job = self._add(new, uuid, source)
        await self._engine.wait_stored(job)
        recent = None if there else self._recent.get(new.uid)
        found = recent or self.view(new.uid)
        if found is None:
            raise errors.NoSuchJob(f"Job {new.namespace}/{new.name} was released meanwhile")
        self._recent[new.uid] = found
        return found

    def _add(
        self, new: index_job_types.NewIndexJob, uuid: bytes, source: index_item_source.IndexItems
    ) -> live_job_state.Job:
        refusal, row = "", None
        if new.tick is not None:
            config = "" if new.group is None else new.group.config
            refusal = self._schedules.refusal(config, new.tick, new.uid)
            row = self._schedules.take(config, new.tick, new.uid) if not refusal else None
        job = live_job_state.Job(
            file_job_types.JobId(uuid, new.uid),
            row=self._engine.new_row(),
            namespace=new.namespace,
            spec=_spec(new, source),
            source=source,
            created=new.created,
        )
        job.fresh = job.waits = True
        job.run = job.base_run = new.spec.run
        job.changed(self._clock.wall())
        self._engine.add(job, None, None)
        if self._known is not None:
            self._known.add(uuid)
        if refusal:
            transitions.refuse(job, "TickNotDecided", refusal, now=self._clock.wall())
        else:
            self._engine.admission.add_waiting(job, _claim(new, source))
        if row is not None:  # written in the batch of the Job: both are stored, or neither
            self._hub.write_next(schedule_rows.writes(row))
        return job

    async def provide(
        self,
        uid: str,
        *,
        items: list[Any] | None = None,
        inputs: dict[str, Any] | None = None,
    ) -> None:
        """Set the list of `withResultOf`, or the inputs, of a Job that has not started.

        Values that are set already stay. Raises `InvalidJob` if the values are too large, or give
        no valid index set.
        """
        job = self._load(uid)
        if job is None or not job.waits or job.stage is not live_job_state.RUNNING:
            return
        known = _source(job).definition
        definition = msgspec.structs.replace(
            known,
            items=known.items if known.items is not None else items,
            inputs=known.inputs if known.inputs is not None else inputs,
        )
        if len(msgspec.json.encode(definition)) > MAX_DEFINITION_BYTES:
            raise errors.InvalidJob("spec.template.parallelism: its list takes more than 16 MiB")
        if definition != known:
            self._engine.redefine(job, self._sources.new(definition))
            claim = self._engine.admission.find_claim(job.row)
            if claim is not None and definition.known:
                claim = msgspec.structs.replace(claim, incomplete=False)
                self._engine.admission.change_claim(job.row, claim)
        await self._engine.wait_stored(job)

    async def set_hold(self, uid: str, hold: job_start_queue.Hold | None) -> None:
        """Hold a Job that has not started or, if `hold` is None, release it to start when its turn
        comes.
        """
        await self._change_claim(uid, hold=hold)

    async def suspend(self, uid: str, *, suspended: bool) -> None:
        """Pause or resume a Job: while it is paused, no attempt starts. Running attempts
        continue."""
        job = self._find_unfinished(uid)
        if job is not None:
            transitions.adjust(
                job, file_job_types.Adjustment(suspend=suspended), now=self._clock.wall()
            )
            await self._change_claim(uid, suspended=suspended)

    async def adjust(
        self,
        uid: str,
        *,
        max_in_flight: int | msgspec.UnsetType | None = msgspec.UNSET,
        priority: int | msgspec.UnsetType = msgspec.UNSET,
    ) -> None:
        """Change the parallelism or priority of an unfinished Job. Existing tasks keep their
        priority."""
        job = self._find_unfinished(uid)
        if job is None:
            return
        change = file_job_types.Adjustment(
            parallelism=_limit_in_flight(max_in_flight), priority=priority
        )
        transitions.adjust(job, change, now=self._clock.wall())
        more = {} if isinstance(priority, msgspec.UnsetType) else {"priority": priority}
        await self._change_claim(uid, **more)

    async def _change_claim(self, uid: str, **given: Any) -> None:
        job = self._find_unfinished(uid)
        if job is None:
            return
        claim = self._engine.admission.find_claim(job.row)
        if claim is not None:
            self._engine.admission.change_claim(job.row, msgspec.structs.replace(claim, **given))
            transitions.requeue(job, now=self._clock.wall())
        await self._engine.wait_stored(job)

    async def kill(self, uid: str, *, reason: str = "Killed", message: str = "") -> None:
        """End a Job: its phase is Killing, then Killed when none of its tasks can be running any
        more.

        Does nothing if the Job has ended or is ending.
        """
        job = self._find_unfinished(uid)
        if job is not None:
            transitions.kill(job, reason, message or "it was killed", now=self._clock.wall())
            await self._engine.wait_stored(job)

    async def fail(self, uid: str, reason: str, message: str) -> None:
        """End a Job as Failed because a resource that it needs is unavailable. Does nothing if the
        Job has ended or is ending.
        """
        job = self._find_unfinished(uid)
        if job is not None:
            transitions.fail(job, reason, message, now=self._clock.wall())
            await self._engine.wait_stored(job)

    async def rerun(
        self,
        uid: str,
        run: int,
        *,
        suspended: bool | msgspec.UnsetType = msgspec.UNSET,
        max_in_flight: int | msgspec.UnsetType | None = msgspec.UNSET,
        priority: int | msgspec.UnsetType = msgspec.UNSET,
        killed: str = "",
    ) -> None:
        """Queue a finished Job for run number `run`, in which the indexes that have not succeeded
        are run again.

        Does nothing if the Job is unfinished or `run` is not higher. A Job that was refused for its
        group is considered again; a Job whose tick was not decided is refused again. The new
        settings hold from the start of the run. `killed`: why the run is killed before it starts;
        "" if it is not.
        """
        job = self._load(uid)
        if (
            job is None
            or job.stage is not live_job_state.FINISHED
            or job.deleting
            or run <= job.run
        ):
            return
        claim = self._engine.admission.find_claim(job.row)
        if claim is None:
            transitions.refuse_again(job, run, now=self._clock.wall())
            await self._engine.wait_stored(job)
            return
        _source(job).begin_run()
        now = self._clock.wall()
        transitions.rerun(job, run, now=now)
        change = file_job_types.Adjustment(
            suspend=suspended, parallelism=_limit_in_flight(max_in_flight), priority=priority
        )
        transitions.adjust(job, change, now=now)
        if killed:
            transitions.kill(job, "Killed", killed, now=now)
        else:
            more = {"suspended": suspended, "priority": priority}
            given = {name: value for name, value in more.items() if value is not msgspec.UNSET}
            self._engine.admission.add_waiting(job, msgspec.structs.replace(claim, **given))
        await self._engine.wait_stored(job)

    async def release(self, uid: str) -> None:
        """Delete a Job whose object was deleted: kill its running tasks, then delete its rows.

        Its tasks stay in the journal as long as any other task.
        """
        job = self._load(uid)
        if job is not None:
            transitions.delete(job, now=self._clock.wall())
            await self._engine.wait_stored(job)

    def limit(self, group: job_start_queue.ConcurrencyGroup) -> None:
        """Set the limits of a JobConfig. The limits are not stored: call this after each start."""
        self._engine.admission.turns.set_limits(group)
        self._hub.wake()

    def group(self, config: str) -> index_job_types.GroupView:
        """Return the uids of the running and of the waiting Jobs of a JobConfig, including
        decisions that are not on disk yet.
        """
        admission = self._engine.admission
        return index_job_types.GroupView(
            active=tuple(map(_text, admission.uuids_of(admission.turns.active_rows(config)))),
            queued=tuple(map(_text, admission.uuids_of(admission.turns.queued_rows(config)))),
        )

    async def changes(self, since: int) -> tuple[int, list[index_job_types.IndexJobView]]:
        """Wait until Jobs have changed after version number `since`; return the number for the next
        call, and the views of these Jobs.

        Deleted Jobs are left out. If `since` is 0, or comes from an earlier dispatcher process,
        return all Jobs in the journal.
        """
        self._engine.check_running()
        await self._feed.newer(since)
        last = self._feed.last
        recent, self._recent = self._recent, {}
        if not 0 < since <= last:
            return last, [self._to_job_view(view) for view in self._all_views()]
        for uid in self._feed.since(since):
            found = self._newest_view(uid, recent.get(uid))
            if found is not None:
                self._recent[uid] = found
        self._released.clear()
        return last, list(self._recent.values())

    def _newest_view(
        self, uid: str, known: index_job_types.IndexJobView | None
    ) -> index_job_types.IndexJobView | None:
        """Return the newest view of a Job, or None. `known` is returned if it is current."""
        found = self._stored_view(_uuid(uid))
        if found is None or found.deleting:
            return None
        same = known is not None and known.version == found.version
        return known if same else self._to_job_view(found)

    def view(self, uid: str) -> index_job_types.IndexJobView | None:
        """Return the view of a Job as stored on disk, or None if there is no such Job."""
        found = self._stored_view(_uuid(uid))
        return None if found is None or found.deleting else self._to_job_view(found)

    async def indexes(
        self,
        uid: str,
        *,
        after: int = -1,
        limit: int = 100,
        state: index_job_types.IndexState | None = None,
    ) -> list[index_job_types.IndexView]:
        """Return up to `limit` indexes of a Job with numbers above `after`, in order. Raises
        `NoSuchJob`.
        """
        row = self._tables.find_job("uuid", _uuid(uid))
        if row is None or row.deleting or row.source != index_item_source.KIND:
            raise errors.NoSuchJob(f"there is no Job with uid {uid}")
        found = job_index_listing.IndexListing(
            self._tables, self._hub, row, self._engine.live.get(row.uuid)
        )
        return found.page(after=after, limit=limit, state=state)

    def schedule(self, config: str) -> index_job_types.ScheduleRow | None:
        """Return the row of a JobConfig's schedule, which says what was decided about its ticks.

        None if no tick of the schedule was decided yet. `config`: uid of the JobConfig.
        """
        return self._schedules.row(config)

    async def decide(self, decision: index_job_types.TickDecision) -> index_job_types.ScheduleRow:
        """Store which ticks of a schedule create a Job and which do not; return the new row.

        Call this before creating the Jobs. Raises `TickDecided` if a later tick was decided before,
        perhaps by another manager, or if this tick was, unless the schedule was edited or ticks are
        abandoned.
        """
        self._check()
        row = self._schedules.decide(decision)
        await self._hub.write(schedule_rows.writes(row))
        return row

    async def forget_schedule(self, config: str) -> None:
        """Delete the decisions about the ticks of a JobConfig that was deleted."""
        if self._schedules.row(config) is not None:
            await self._hub.write(self._schedules.forget(config))

    def on_job_changed(self, job: live_job_state.Job) -> None:
        """Publish a change of a Job (`engine.JobListener`)."""
        self._feed.publish((job.id.text,))
        if job.view is None:
            self._feed.drop((job.id.text,))
            if self._known is not None:
                self._known.discard(job.id.uuid)

    def on_job_released(self, job: live_job_state.Job) -> None:
        """Keep the view of a Job that was dropped from memory (`engine.JobListener`)."""
        if job.view is None:
            self._released.pop(job.id.uuid, None)
            return
        if len(self._released) >= MAX_RELEASED:
            self._released.clear()  # no controller asks for changes
        self._released[job.id.uuid] = job.view

    def _check(self) -> None:
        """Raise `JobsStopped` at once if the journal cannot be written, so that callers do not wait
        for space on the disk.
        """
        self._engine.check_running()
        if self._hub.refused is not None:
            raise errors.JobsStopped(
                f"nothing can be written to the journal: {self._hub.refused}; ask again when the "
                "server's disk can be written to"
            )

    def _load(self, uid: str) -> live_job_state.Job | None:
        self._check()
        return self._engine.find(_uuid(uid))

    def _find_unfinished(self, uid: str) -> live_job_state.Job | None:
        """Return an unfinished Job that is to be changed, or None. The caller wakes the Job after
        the change.
        """
        job = self._load(uid)
        return None if job is None or job.stage is live_job_state.FINISHED else job

    def _stored_view(self, uuid: bytes) -> _View | None:
        live = self._engine.live.get(uuid)
        if live is not None and live.view is not None:
            return live.view
        if live is None and uuid in self._released:
            return self._released[uuid]
        row = self._tables.find_job("uuid", uuid)
        if row is None or row.source != index_item_source.KIND:
            return None
        return rows.row_view(row, self._sources)

    def _all_views(self) -> Iterator[_View]:
        above, self._known = 0, set()
        while page := self._tables.list_index_jobs(above, PAGE):
            self._known.update(row.uuid for row in page)
            for row in page:
                above = row.row
                live = self._engine.live.get(row.uuid)
                view = None if live is None else live.view
                if not row.deleting:
                    yield view or rows.row_view(row, self._sources)

    def _to_job_view(self, view: _View) -> index_job_types.IndexJobView:
        detail: index_item_source.IndexDetail = view.detail
        row = self._engine.admission.row_of(view.uuid)
        waiting = None if row is None else self._engine.admission.turns.explain_wait(row)
        succeeded = view.phase is filejobs.FileJobPhase.SUCCEEDED
        live = self._engine.live.get(view.uuid)
        find = functools.cache(self._hub.view)  # the only task of a Job is looked up more than once
        reason, message = job_index_listing.explain_phase(view, waiting, live=live, find=find)
        return index_job_types.IndexJobView(
            uid=view.id,
            namespace=view.namespace,
            name=view.spec.name,
            version=view.version,
            phase=detail.phase,
            reason=reason,
            message=message,
            run=view.run,
            created=view.created,
            started=detail.admitted,
            finished=view.finished,
            counts=job_index_listing.index_counts(view),
            failed_indexes=detail.failed_indexes,
            newest=job_index_listing.shown_indexes(view, find),
            result=job_index_listing.job_result(view, find) if succeeded else None,
            stopped=detail.stopped,
            waiting_for=waiting,
            suspended=view.spec.suspend,
            priority=view.spec.priority,
            max_in_flight=view.spec.parallelism,
            group=view.spec.group,
        )


def _uuid(uid: str) -> bytes:
    try:
        return uuids.UUID(uid).bytes
    except ValueError as error:
        raise errors.InvalidJob(f"metadata.uid: {uid!r} is no UUID") from error


def _limit_in_flight(most: int | msgspec.UnsetType | None) -> int | msgspec.UnsetType | None:
    return min(most, index_item_source.MAX_IN_FLIGHT) if isinstance(most, int) else most


def _text(uuid: bytes) -> str:
    return ids.task_text(ids.TaskId(uuid))


def _source(job: live_job_state.Job) -> index_item_source.IndexItems:
    return cast(index_item_source.IndexItems, job.source)


def _definition(new: index_job_types.NewIndexJob) -> index_item_source.IndexDefinition:
    if new.spec.template is None:
        raise errors.InvalidJob("spec.template: it is missing")
    return index_item_source.IndexDefinition(
        name=new.name, template=new.spec.template, variables=new.variables, inputs=new.inputs
    )


def _spec(
    new: index_job_types.NewIndexJob, source: index_item_source.IndexItems
) -> index_item_source.IndexSpec:
    most = source.settings.max_in_flight
    return index_item_source.IndexSpec(
        name=new.name,
        cluster_name=source.settings.index_task.cluster_name,
        parallelism=None if most is None else min(most, index_item_source.MAX_IN_FLIGHT),
        suspend=new.spec.suspend,
        priority=new.spec.priority,
        group="" if new.group is None else new.group.config,
        finalizer=source.finalizer,
    )


def _claim(
    new: index_job_types.NewIndexJob, source: index_item_source.IndexItems
) -> job_start_queue.Claim:
    return job_start_queue.Claim(
        priority=new.spec.priority,
        group=new.group,
        locks=new.spec.locks,
        start_after=new.start_after,
        hold=new.hold,
        suspended=new.spec.suspend,
        incomplete=not source.definition.known,
        job_seconds=source.settings.job_seconds,
    )
