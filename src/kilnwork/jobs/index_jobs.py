"""Jobs as controllers, server and CLI see them: taken up by uid, followed, ended, listed by index.

One service per dispatcher, on its loop; its tables are in the dispatcher's journal. What a
coroutine method returns is on disk. Reading methods do not block: they read memory, or one index.
Everything may be repeated. Not what a Job object says (`api.job`), nor when its schedule is due.
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
    index_items,
    index_listing,
    index_model,
    model,
    records,
    rows,
    schedule_rows,
    start_queue,
    tables,
    task_hub,
    transitions,
)
from kilnwork.kit import clock as clocks
from kilnwork.kit import ids

PAGE = 500
"""Rows read at once, of those who want to know everything."""

MAX_RELEASED = 4_000
"""Views that are kept until they were handed out, of Jobs that memory has no more: a kilobyte
each."""

MAX_DEFINITION_BYTES = 16 << 20
"""Longest template, with variables, inputs and the items that a task returned."""

_View = model.GenericJobView[index_items.IndexSpec, index_items.IndexProgress]


class IndexJobs:
    """The Jobs of a data directory. `moved_by`: an engine that is not started yet."""

    def __init__(
        self, hub: task_hub.TaskHub, moved_by: engine.Engine, *, clock: clocks.Clock
    ) -> None:
        self._hub, self._engine, self._clock = hub, moved_by, clock
        self._tables = tables.Tables(hub.select)
        self._sources = index_items.IndexSources()
        self._schedules = schedule_rows.Schedules(self._tables)
        self._feed: feed.Feed[str] = feed.Feed()
        self._recent: dict[str, index_model.IndexJobView] = {}
        """What the newest `changes` has returned, and `put` since: each uses the other's."""
        self._released: dict[bytes, _View] = {}
        """Jobs that memory has no more and that `changes` has not given: they need no read."""
        self._known: set[bytes] | None = None
        """All Jobs of the journal, once they were read: a new one need not be looked for."""
        moved_by.register(index_items.KIND, self._sources, self)

    def stop(self) -> None:
        """End all waits for changes. The engine is stopped."""
        self._feed.fail(self._engine.stopped or errors.JobsStopped())

    async def put(self, new: index_model.NewIndexJob) -> index_model.IndexJobView:
        """Take up a Job; one that is known already is returned as it is.

        One that is not accepted is in phase AdmissionError: `Forbidden`, `QueueFull`, or
        `TickNotDecided`. Raises `InvalidJob` (message begins with the field's path), `JobsStopped`.
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
        await self._engine.settled(job)
        recent = None if there else self._recent.get(new.uid)
        found = recent or self.view(new.uid)
        if found is None:
            raise errors.NoSuchJob(f"Job {new.namespace}/{new.name} was released meanwhile")
        self._recent[new.uid] = found
        return found

    def _add(
        self, new: index_model.NewIndexJob, uuid: bytes, source: index_items.IndexItems
    ) -> records.Job:
        refusal, row = "", None
        if new.tick is not None:
            config = "" if new.group is None else new.group.config
            refusal = self._schedules.refusal(config, new.tick, new.uid)
            row = self._schedules.take(config, new.tick, new.uid) if not refusal else None
        job = records.Job(
            model.JobId(uuid, new.uid),
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
            self._engine.admission.add(job, _claim(new, source))
        if row is not None:  # in the batch of the Job: both are stored, or neither
            self._hub.write_next(schedule_rows.writes(row))
        return job

    async def provide(
        self,
        uid: str,
        *,
        items: list[Any] | None = None,
        inputs: dict[str, Any] | None = None,
    ) -> None:
        """Give a Job that has not started the list of `withResultOf`, or its inputs; what it has
        already stays. Raises `InvalidJob` for what is too large."""
        job = self._load(uid)
        if job is None or not job.waits or job.stage is not records.RUNNING:
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
            claim = self._engine.admission.claim(job.row)
            if claim is not None and definition.known:
                claim = msgspec.structs.replace(claim, incomplete=False)
                self._engine.admission.change(job.row, claim)
        await self._engine.settled(job)

    async def set_hold(self, uid: str, hold: start_queue.Hold | None) -> None:
        """Do not let a Job start, or let it when its turn comes; one that has started goes on."""
        await self._change_claim(uid, hold=hold)

    async def suspend(self, uid: str, *, suspended: bool) -> None:
        """Start no attempt, or go on; what runs goes on in any case."""
        job = self._open(uid)
        if job is not None:
            transitions.adjust(job, model.Adjustment(suspend=suspended), now=self._clock.wall())
            await self._change_claim(uid, suspended=suspended)

    async def adjust(
        self,
        uid: str,
        *,
        max_in_flight: int | msgspec.UnsetType | None = msgspec.UNSET,
        priority: int | msgspec.UnsetType = msgspec.UNSET,
    ) -> None:
        """Change what may be changed of a Job that is not over; tasks that were made keep their
        priority."""
        job = self._open(uid)
        if job is None:
            return
        change = model.Adjustment(parallelism=_capped(max_in_flight), priority=priority)
        transitions.adjust(job, change, now=self._clock.wall())
        more = {} if isinstance(priority, msgspec.UnsetType) else {"priority": priority}
        await self._change_claim(uid, **more)

    async def _change_claim(self, uid: str, **given: Any) -> None:
        job = self._open(uid)
        if job is None:
            return
        claim = self._engine.admission.claim(job.row)
        if claim is not None:
            self._engine.admission.change(job.row, msgspec.structs.replace(claim, **given))
            transitions.requeue(job, now=self._clock.wall())
        await self._engine.settled(job)

    async def kill(self, uid: str, *, reason: str = "Killed", message: str = "") -> None:
        """End a Job: Killing, then Killed when it is proved that nothing of it runs. Over or ending
        already: nothing happens."""
        job = self._open(uid)
        if job is not None:
            transitions.kill(job, reason, message or "it was killed", now=self._clock.wall())
            await self._engine.settled(job)

    async def fail(self, uid: str, reason: str, message: str) -> None:
        """End a Job as Failed, since what it needs cannot be had. Over or ending already: nothing
        happens."""
        job = self._open(uid)
        if job is not None:
            transitions.fail(job, reason, message, now=self._clock.wall())
            await self._engine.settled(job)

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
        """Run again what has not succeeded of a Job that is over, in its turn; not over, or no
        higher run: nothing happens. One that was refused for its group is looked at again; one
        whose tick was not decided is refused again.

        What is newly asked for holds from the start of the run. `killed`: why the run is killed
        before it starts; "": it is not.
        """
        job = self._load(uid)
        if job is None or job.stage is not records.FINISHED or job.deleting or run <= job.run:
            return
        claim = self._engine.admission.claim(job.row)
        if claim is None:
            transitions.refuse_again(job, run, now=self._clock.wall())
            await self._engine.settled(job)
            return
        _source(job).begin_run()
        now = self._clock.wall()
        transitions.rerun(job, run, now=now)
        change = model.Adjustment(
            suspend=suspended, parallelism=_capped(max_in_flight), priority=priority
        )
        transitions.adjust(job, change, now=now)
        if killed:
            transitions.kill(job, "Killed", killed, now=now)
        else:
            more = {"suspended": suspended, "priority": priority}
            given = {name: value for name, value in more.items() if value is not msgspec.UNSET}
            self._engine.admission.add(job, msgspec.structs.replace(claim, **given))
        await self._engine.settled(job)

    async def release(self, uid: str) -> None:
        """The object of a Job is gone: what runs is killed, then the Job is forgotten. Its tasks
        stay in the journal as long as any other."""
        job = self._load(uid)
        if job is not None:
            transitions.delete(job, now=self._clock.wall())
            await self._engine.settled(job)

    def limit(self, group: start_queue.Group) -> None:
        """A JobConfig has other limits; not stored, so to be said at each start."""
        self._engine.admission.turns.set_limits(group)
        self._hub.wake()

    def group(self, config: str) -> index_model.GroupView:
        """Return which Jobs of a JobConfig run, and which wait: what is decided, a moment before it
        is on disk."""
        admission = self._engine.admission
        return index_model.GroupView(
            active=tuple(map(_text, admission.uuids(admission.turns.active(config)))),
            queued=tuple(map(_text, admission.uuids(admission.turns.queued(config)))),
        )

    async def changes(self, since: int) -> tuple[int, list[index_model.IndexJobView]]:
        """Jobs that changed after `since`, once there are any, and the number to go on; a Job that
        was released is left out.

        `since` 0, or of another dispatcher's life: all Jobs of the journal.
        """
        self._engine.check()
        await self._feed.newer(since)
        last = self._feed.last
        recent, self._recent = self._recent, {}
        if not 0 < since <= last:
            return last, [self._shown(view) for view in self._everything()]
        for uid in self._feed.since(since):
            found = self._changed(uid, recent.get(uid))
            if found is not None:
                self._recent[uid] = found
        self._released.clear()
        return last, list(self._recent.values())

    def _changed(
        self, uid: str, known: index_model.IndexJobView | None
    ) -> index_model.IndexJobView | None:
        """Return the newest view of a Job; `known`: one of this moment, maybe."""
        found = self._view(_uuid(uid))
        if found is None or found.deleting:
            return None
        same = known is not None and known.version == found.version
        return known if same else self._shown(found)

    def view(self, uid: str) -> index_model.IndexJobView | None:
        """Return a Job as it is on disk; None: there is none, or it was released."""
        found = self._view(_uuid(uid))
        return None if found is None or found.deleting else self._shown(found)

    async def indexes(
        self,
        uid: str,
        *,
        after: int = -1,
        limit: int = 100,
        state: index_model.IndexState | None = None,
    ) -> list[index_model.IndexView]:
        """Return indexes with numbers above `after`, in order. Raises `NoSuchJob`."""
        row = self._tables.job("uuid", _uuid(uid))
        if row is None or row.deleting or row.source != index_items.KIND:
            raise errors.NoSuchJob(f"there is no Job with uid {uid}")
        found = index_listing.Indexes(self._tables, self._hub, row, self._engine.live.get(row.uuid))
        return found.page(after=after, limit=limit, state=state)

    def schedule(self, config: str) -> index_model.ScheduleRow | None:
        """Return what was decided about the ticks of a JobConfig; None: nothing yet."""
        return self._schedules.row(config)

    async def decide(self, decision: index_model.Decision) -> index_model.ScheduleRow:
        """Note what was decided about ticks, before a Job is made of them. Raises `TickDecided`:
        another manager has led meanwhile."""
        self._check()
        row = self._schedules.decide(decision)
        await self._hub.write(schedule_rows.writes(row))
        return row

    async def forget_schedule(self, config: str) -> None:
        """The JobConfig is gone."""
        if self._schedules.row(config) is not None:
            await self._hub.write(self._schedules.forget(config))

    def shown(self, job: records.Job) -> None:
        """Publish what is new of a Job (`engine.Listener`)."""
        self._feed.publish((job.id.text,))
        if job.view is None:
            self._feed.drop((job.id.text,))
            if self._known is not None:
                self._known.discard(job.id.uuid)

    def released(self, job: records.Job) -> None:
        """The journal has all of it (`engine.Listener`)."""
        if job.view is None:
            self._released.pop(job.id.uuid, None)
            return
        if len(self._released) >= MAX_RELEASED:
            self._released.clear()  # no controller asks for changes
        self._released[job.id.uuid] = job.view

    def _check(self) -> None:
        """Raises `JobsStopped`, so that callers do not wait until there is room on the disk."""
        self._engine.check()
        if self._hub.refused is not None:
            raise errors.JobsStopped(
                f"nothing can be written to the journal: {self._hub.refused}; ask again when the "
                "server's disk can be written to"
            )

    def _load(self, uid: str) -> records.Job | None:
        self._check()
        return self._engine.find(_uuid(uid))

    def _open(self, uid: str) -> records.Job | None:
        """Return a Job that is not over, to be changed; wake it afterwards."""
        job = self._load(uid)
        return None if job is None or job.stage is records.FINISHED else job

    def _view(self, uuid: bytes) -> _View | None:
        live = self._engine.live.get(uuid)
        if live is not None and live.view is not None:
            return live.view
        if live is None and uuid in self._released:
            return self._released[uuid]
        row = self._tables.job("uuid", uuid)
        if row is None or row.source != index_items.KIND:
            return None
        return rows.view_of(row, self._sources)

    def _everything(self) -> Iterator[_View]:
        above, self._known = 0, set()
        while page := self._tables.index_jobs(above, PAGE):
            self._known.update(row.uuid for row in page)
            for row in page:
                above = row.row
                live = self._engine.live.get(row.uuid)
                view = None if live is None else live.view
                if not row.deleting:
                    yield view or rows.view_of(row, self._sources)

    def _shown(self, view: _View) -> index_model.IndexJobView:
        detail: index_items.IndexDetail = view.detail
        row = self._engine.admission.row(view.uuid)
        waiting = None if row is None else self._engine.admission.turns.why(row)
        succeeded = view.phase is filejobs.FileJobPhase.SUCCEEDED
        live = self._engine.live.get(view.uuid)
        find = functools.cache(self._hub.view)  # the only task of a Job is asked for more than once
        reason, message = index_listing.why(view, waiting, live=live, find=find)
        return index_model.IndexJobView(
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
            counts=index_listing.counts(view),
            failed_indexes=detail.failed_indexes,
            newest=index_listing.newest(view, find),
            result=index_listing.result(view, find) if succeeded else None,
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


def _capped(most: int | msgspec.UnsetType | None) -> int | msgspec.UnsetType | None:
    return min(most, index_items.MAX_IN_FLIGHT) if isinstance(most, int) else most


def _text(uuid: bytes) -> str:
    return ids.task_text(ids.TaskId(uuid))


def _source(job: records.Job) -> index_items.IndexItems:
    return cast(index_items.IndexItems, job.source)


def _definition(new: index_model.NewIndexJob) -> index_items.IndexDefinition:
    if new.spec.template is None:
        raise errors.InvalidJob("spec.template: it is missing")
    return index_items.IndexDefinition(
        name=new.name, template=new.spec.template, variables=new.variables, inputs=new.inputs
    )


def _spec(new: index_model.NewIndexJob, source: index_items.IndexItems) -> index_items.IndexSpec:
    most = source.settings.max_in_flight
    return index_items.IndexSpec(
        name=new.name,
        cluster_name=source.settings.index_task.cluster_name,
        parallelism=None if most is None else min(most, index_items.MAX_IN_FLIGHT),
        suspend=new.spec.suspend,
        priority=new.spec.priority,
        group="" if new.group is None else new.group.config,
        finalizer=source.finalizer,
    )


def _claim(new: index_model.NewIndexJob, source: index_items.IndexItems) -> start_queue.Claim:
    return start_queue.Claim(
        priority=new.spec.priority,
        group=new.group,
        locks=new.spec.locks,
        start_after=new.start_after,
        hold=new.hold,
        suspended=new.spec.suspend,
        incomplete=not source.definition.known,
        job_seconds=source.settings.job_seconds,
    )
