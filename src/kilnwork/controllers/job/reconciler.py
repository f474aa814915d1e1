"""The shell of the Job controller: reads the facts about one Job and carries out its plan.

Used by `assembly`. Decides nothing: see `plan` and `status`. A Job is passed to the engine in the
first pass over it, or in the second if its JobConfig must be copied first; statuses are written
when they are due, so that a short Job needs few writes.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from kilnwork.api import job, job_config, job_from_config, kinds, meta, task_cluster, task_object
from kilnwork.controllers import ports, reconciler_context, status_writer, waiting_keys
from kilnwork.controllers.job import arrival_order, dependency_states, plan, status
from kilnwork.jobs import errors as jobs_errors
from kilnwork.jobs import index_job_types, job_start_queue
from kilnwork.kube import errors, events, queue

Key = tuple[str, str]


class _KnownState(msgspec.Struct):
    """The state of one Job that is kept in memory between passes."""

    uid: str
    held: status.StatusHold | None = None
    refused: tuple[int, str] = (0, "")
    """Object generation that was refused, and the reason. A new object generation is tried again.
    """
    known_hold: job_start_queue.Hold | msgspec.UnsetType | None = msgspec.UNSET
    """The hold that the engine has; UNSET if none was set yet."""


class Reconciler:
    """The reconciler of Jobs; each pass handles one Job. `find_input`, `find_view`: provided by the
    Task controller.
    """

    def __init__(
        self,
        context: reconciler_context.ReconcilerContext,
        work: queue.WorkQueue,
        *,
        find_input: dependency_states.FindInput,
        find_view: dependency_states.FindView,
    ) -> None:
        self._client = context.kube
        self._caches = context.caches
        self._emit = context.emit
        self._clock = context.time
        self._queue = work
        self._hub: ports.JobHub | None = None
        self._views: dict[str, index_job_types.IndexJobView] = {}
        self._dependencies = dependency_states.Dependencies(
            context.caches, self._views, find_input=find_input, find_view=find_view
        )
        self._names: dict[Key, set[str]] = {}
        """Uids of the engine's Jobs, by name."""
        self._waiting_keys = waiting_keys.WaitingKeys()
        self._arrival_order = arrival_order.ArrivalOrder()
        self._writer = status_writer.StatusWriter(context.kube, kinds.JOBS, job.JobStatus)
        self._memories: dict[Key, _KnownState] = {}
        self.on_change: Callable[[str, str], None] = lambda namespace, config_uid: None
        """Called with the namespace and the uid of the JobConfig of a Job, when the Job has
        started, its phase has changed, or the engine has released it."""

    # Event handlers: each one only queues the keys that must be reconciled.

    def job_changed(self, key: Key, old: job.Job | None, new: job.Job | None) -> None:
        """Handle the creation, change or deletion of a Job."""
        if old is None or new is None:
            self._wake("Job", key)
            self._wake_config(new or old)
        elif self._writer.is_own_write(old, new):
            return
        elif job_from_config.config_of(old) is None:
            self._wake_config(new)
        self._queue.add(key)

    def config_changed(
        self, key: Key, old: job_config.JobConfig | None, new: job_config.JobConfig | None
    ) -> None:
        """Handle the creation, change or deletion of a JobConfig. Changes of the status matter,
        too: the schedule may have dropped a tick.
        """
        self._wake("JobConfig", key)

    def object_changed(
        self, key: Key, old: task_object.TaskObject | None, new: task_object.TaskObject | None
    ) -> None:
        """Handle the creation or deletion of a TaskObject."""
        if old is None or new is None:
            self._wake("TaskObject", key)

    def cluster_changed(
        self,
        key: Key,
        old: task_cluster.TaskCluster | None,
        new: task_cluster.TaskCluster | None,
    ) -> None:
        """Handle the creation of a TaskCluster or the start of its deletion."""
        gone = [one is None or bool(one.metadata.deletion_timestamp) for one in (old, new)]
        if gone[0] != gone[1]:
            self._wake("TaskCluster", key)

    def task_over(self, key: Key) -> None:
        """Handle the creation, end or deletion of a Task."""
        self._wake("Task", key)

    async def follow(self, hub: ports.JobHub) -> None:
        """Process the changes of Jobs that the engine publishes, until cancelled."""
        self._hub = hub
        self._dependencies.use(hub)
        since = 0
        while True:
            since, changed = await hub.changes(since)
            for view in changed:
                self._seen_view(view)

    async def reconcile(self, key: Key) -> float | None:
        """Make one pass over a Job; return in how many seconds to make the next one, if no change
        comes first.

        This replaces the time that the previous pass returned.
        """
        self._queue.cancel(key)
        decided, facts = self._decide(key)
        for uid in decided.release:
            await self._release(uid)
        if decided.patch is None and decided.put is None:
            self._leave_line(key)
        if facts.job is None:
            self._forget(key)
            return None
        for text in decided.warnings:
            self._emit_event(facts.job, "Warning", "FieldsReplaced", text)
        if decided.patch is not None:
            await self._patch(facts.job, decided.patch)
            return None
        if decided.put is not None:
            if self._arrival_order.must_wait(key):
                return None
            # `put` must be called in the order of the Jobs; its completion need not be awaited for
            # the next.
            self._leave_line(key)
            await self._put(key, facts.job, decided.put)
            decided, facts = self._decide(key)
        if facts.job is not None and facts.view is not None and decided.is_change:
            await self._change(key, facts.job, decided)
            decided, facts = self._decide(key)
        if facts.job is None:
            return 0.0
        if decided.delete:
            await reconciler_context.delete(self._client, kinds.JOBS, facts.job.metadata)
        waits = [decided.again_s]
        if decided.status is not None:
            waits.append(await self._write(key, facts.job, decided.status))
        return min((w for w in waits if w is not None), default=None)

    # Reading

    def _decide(self, key: Key) -> tuple[plan.Plan, plan.Facts]:
        facts = self._facts(key)
        decided = plan.decide(facts)
        self._waiting_keys.set(key, ((w.kind, key[0], w.name) for w in decided.wakes))
        return decided, facts

    def _facts(self, key: Key) -> plan.Facts:
        found = self._caches.jobs.get(key)
        named = self._names.get(key, set())
        if found is None:
            return plan.Facts(job=None, view=None, strays=tuple(named))
        uid = found.metadata.uid
        seen = msgspec.structs.replace(found, status=self._writer.current(found))
        view = self._views.get(uid)
        waits = view is None or view.started is None
        known = self._memory(key, seen)
        return plan.Facts(
            job=seen,
            view=view,
            strays=tuple(one for one in named if one != uid),
            config=self._config(seen),
            dependencies=self._dependencies.states(seen) if waits else (),
            sources=self._dependencies.sources(seen) if waits else {},
            refused=known.refused[1] if known.refused[0] == seen.metadata.generation else "",
            no_cluster=self._no_cluster(seen) if waits else "",
            known_hold=known.known_hold,
            now=self._clock.wall(),
        )

    def _config(self, seen: job.Job) -> job_config.JobConfig | None:
        name, uid = plan.config_name(seen)
        found = self._caches.job_configs.get((seen.metadata.namespace, name)) if name else None
        return found if found is None or uid in ("", found.metadata.uid) else None

    def _no_cluster(self, seen: job.Job) -> str:
        name, namespace = plan.cluster_name(seen), seen.metadata.namespace
        cluster = self._caches.clusters.get((namespace, name)) if name else None
        if not name or (cluster is not None and cluster.metadata.deletion_timestamp is None):
            return ""
        what = "does not exist" if cluster is None else "is being deleted"
        return f"TaskCluster {name} {what} in namespace {namespace}"

    def _memory(self, key: Key, seen: job.Job) -> _KnownState:
        known = self._memories.get(key)
        if known is None or known.uid != seen.metadata.uid:
            if known is not None:
                self._writer.forget(known.uid)
            known = self._memories[key] = _KnownState(seen.metadata.uid)
        return known

    def _forget(self, key: Key) -> None:
        known = self._memories.pop(key, None)
        if known is not None:
            self._writer.forget(known.uid)

    def _seen_view(self, view: index_job_types.IndexJobView) -> None:
        key = (view.namespace, view.name)
        before = self._views.get(view.uid)
        if before is not None and before.version >= view.version:
            return
        self._views[view.uid] = view
        self._names.setdefault(key, set()).add(view.uid)
        self._queue.add(key)
        if view.phase.final:
            self._wake("Job", key)
        moved = before is None or (before.started, before.phase) != (view.started, view.phase)
        if view.group and moved:
            self.on_change(view.namespace, view.group)

    def _wake_config(self, of: job.Job | None) -> None:
        """Wake the Jobs that depend on a JobConfig, after one of its Jobs was created or
        deleted.
        """
        owner = None if of is None else job_from_config.config_of(of)
        if of is not None and owner is not None:
            self._wake("JobConfig", (of.metadata.namespace, owner.name))

    def _wake(self, kind: str, key: Key) -> None:
        for waiting in self._waiting_keys.waiting(kind, *key):
            self._queue.add(waiting)

    # Writing

    async def _release(self, uid: str) -> None:
        await self._engine().release(uid)
        view = self._views.pop(uid, None)
        if view is None:
            return
        key = (view.namespace, view.name)
        self._names[key].discard(uid)
        if not self._names[key]:
            del self._names[key]
        if view.group:
            self.on_change(view.namespace, view.group)

    async def _put(self, key: Key, seen: job.Job, new: index_job_types.NewIndexJob) -> None:
        known = self._memory(key, seen)
        try:
            self._seen_view(await self._engine().put(new))
            known.known_hold = new.hold
        except jobs_errors.InvalidJob as error:
            known.refused = (seen.metadata.generation, str(error))

    async def _change(self, key: Key, seen: job.Job, decided: plan.Plan) -> None:
        """Pass changes of the spec, and inputs that have become available, to the engine."""
        engine, uid = self._engine(), seen.metadata.uid
        if decided.rerun is not None:
            await engine.rerun(
                uid,
                decided.rerun,
                suspended=msgspec.UNSET if decided.suspend is None else decided.suspend,
                max_in_flight=decided.max_in_flight,
                priority=decided.priority,
                killed=decided.kill,
            )
        else:
            await self._adjust(key, seen, decided)
        newer = engine.view(uid)
        if newer is not None:
            self._seen_view(newer)

    async def _adjust(self, key: Key, seen: job.Job, decided: plan.Plan) -> None:
        engine, uid = self._engine(), seen.metadata.uid
        if decided.kill:
            await engine.kill(uid, message=decided.kill)
        if decided.fail is not None:
            await engine.fail(uid, decided.fail.reason, decided.fail.message)
        if decided.provide is not None:
            given = decided.provide
            await engine.provide(uid, items=given.items, inputs=given.inputs)
        if decided.hold is not msgspec.UNSET:
            await engine.set_hold(uid, decided.hold)
            self._memory(key, seen).known_hold = decided.hold
        if decided.suspend is not None:
            await engine.suspend(uid, suspended=decided.suspend)
        changed: dict[str, Any] = {}
        if decided.max_in_flight is not msgspec.UNSET:
            changed["max_in_flight"] = decided.max_in_flight
        if decided.priority is not msgspec.UNSET:
            changed["priority"] = decided.priority
        if changed:
            await engine.adjust(uid, **changed)

    async def _patch(self, seen: job.Job, patch: list[meta.JsonObject]) -> None:
        metadata = seen.metadata
        key = (metadata.namespace, metadata.name)
        self._arrival_order.enter(
            key
        )  # kept until the Job is passed to the engine, after the patch is observed
        patched = False
        try:
            await self._client.json_patch(kinds.JOBS, metadata.name, patch, metadata.namespace)
            patched = True
        except errors.NotFound:
            return
        except errors.Invalid as error:
            self._memory(key, seen).refused = (metadata.generation, str(error))
            self._queue.add(key)  # its status must report this
        finally:
            if not patched:
                self._leave_line(key)

    def _leave_line(self, key: Key) -> None:
        following = self._arrival_order.leave(key)
        if following is not None:
            self._queue.add(following)

    async def _write(self, key: Key, seen: job.Job, wanted: job.JobStatus) -> float | None:
        """Write the status of a Job if it is due; return in how many seconds it will be."""
        known, now = self._memory(key, seen), self._clock.monotonic()
        known.held, wait_s = status.hold(seen.status, wanted, held=known.held, now=now)
        if wait_s is None or wait_s > 0:
            return wait_s
        try:
            await self._writer.write(seen, wanted)
        except errors.NotFound:
            return None
        known.held = None
        announced = status.announcement(seen.status, wanted)
        if announced is not None:
            self._emit_event(seen, announced.type, announced.reason, announced.message)
        return None

    def _emit_event(self, seen: job.Job, type_: str, reason: str, message: str) -> None:
        self._emit(events.reference(kinds.JOBS, seen), type_, str(reason), message)

    def _engine(self) -> ports.JobHub:
        if self._hub is None:
            raise errors.NotSynced("the engine of jobs is not there yet")
        return self._hub
