"""The shell of the Task controller: reads the facts about one Task and carries out its plan.

Used by `assembly`. Decides nothing: see `plan` and `status`. A task is submitted in the first pass
over it; statuses are written when they are due, so that a short task needs one or two writes.
"""

from collections.abc import Callable

import msgspec

from kilnwork.api import input_assembly, kinds, task, task_cluster, task_object
from kilnwork.controllers import (
    ports,
    reconciler_context,
    status_writer,
    task_view_cache,
    waiting_keys,
)
from kilnwork.controllers.task import known_state, output_object, own_container_choice, plan, status
from kilnwork.dispatch import errors as dispatch_errors
from kilnwork.dispatch import model
from kilnwork.kit import ids
from kilnwork.kube import errors, events, queue

Key = tuple[str, str]


class Reconciler:
    """The reconciler of Tasks; each pass handles one Task."""

    def __init__(
        self, context: reconciler_context.ReconcilerContext, work: queue.WorkQueue
    ) -> None:
        self._client = context.kube
        self._caches = context.caches
        self._emit = context.emit
        self._clock = context.time
        self._queue = work
        self._hub: ports.TaskHub | None = None
        self._views = task_view_cache.TaskViews()
        self._waiting_keys = waiting_keys.WaitingKeys()
        self._writer = status_writer.StatusWriter(context.kube, kinds.TASKS, task.TaskStatus)
        self._memories: dict[Key, known_state.KnownState] = {}
        self.on_task: Callable[[Key], None] = lambda key: None
        """Called with the key of a Task that was created or deleted, or has finished."""
        self._submitting: set[Key] = set()
        """Keys that are being submitted: their passes decide again with the new view."""

    # Event handlers: each one only queues the keys that must be reconciled.

    def task_changed(self, key: Key, old: task.Task | None, new: task.Task | None) -> None:
        """Handle the creation, change or deletion of a Task."""
        if old is None or new is None:
            self._wake("Task", key)
        elif self._writer.is_own_write(old, new):
            return
        self._queue.add(key)

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
        """Handle the creation or deletion of a TaskCluster, or a change of the problems in its
        status.
        """
        if old is None or new is None or _news(old) != _news(new):
            self._wake("TaskCluster", key)

    async def follow(self, hub: ports.TaskHub) -> None:
        """Process the changes of tasks that the dispatcher publishes, until cancelled."""
        self._hub = hub
        since = 0
        while True:
            since, changed = await hub.changes(since)
            for view in changed:
                self._seen_view(view)

    async def reconcile(self, key: Key) -> float | None:
        """Make one pass over a Task; return in how many seconds to make the next one, if no change
        comes first.

        This replaces the time that the previous pass returned.
        """
        self._queue.cancel(key)
        decided, facts = self._decide(key)
        await self._kill(decided)
        if decided.submit is not None:
            how = {"force": decided.force, "resume": decided.resume}
            await self._submit(key, decided.submit, **how)
            decided, facts = self._decide(key)
        if decided.suspend is not None and facts.view is not None:
            await self._suspend(facts.view, suspended=decided.suspend)
            decided, facts = self._decide(key)
        if decided.output is not None and facts.task is not None and facts.view is not None:
            await self._make_output(key, facts.task, facts.view, output=decided.output)
            decided, facts = self._decide(key)
        await self._drop_views(key, facts.task)
        if facts.task is None:
            self._forget(key)
            return None
        if decided.delete:
            await reconciler_context.delete(self._client, kinds.TASKS, facts.task.metadata)
        waits = [decided.again_s]
        if decided.status is not None:
            waits += await self._update_status(key, facts.task, decided.status)
        return min((w for w in waits if w is not None), default=None)

    # Reading

    def _decide(self, key: Key) -> tuple[plan.Plan, plan.Facts]:
        facts = self._facts(key)
        decided = plan.decide(facts)
        self._waiting_keys.set(key, ((w.kind, key[0], w.name) for w in decided.wakes))
        return decided, facts

    def _facts(self, key: Key) -> plan.Facts:
        found = self._caches.tasks.get(key)
        views = self._views.named(key)
        if found is None:
            return plan.Facts(task=None, view=None, strays=_unfinished(views))
        remembered = self._memory(key, found)
        seen = msgspec.structs.replace(found, status=self._writer.current(found))
        own = ids.task_id(found.metadata.uid)
        view = self._views.get(own)
        run = seen.spec.run if view is None else view.run
        now = self._clock.wall()
        cluster = self._caches.clusters.get((key[0], _cluster_of(seen, view)))
        return plan.Facts(
            task=seen,
            view=view,
            strays=_unfinished(tuple(v for v in views if v.task != own)),
            cluster=cluster,
            workers=self._workers(cluster) if seen.spec.image else None,
            sources=self._sources(seen) if view is None or view.run < seen.spec.run else {},
            output_made=remembered.output_made(seen, run),
            unfit=remembered.unfit_for(seen.spec.run),
            refused=remembered.refused == seen.spec.run and not plan.is_forced(seen),
            pending_since=remembered.pending_since(seen, now),
            now=now,
        )

    def _workers(
        self, cluster: task_cluster.TaskCluster | None
    ) -> own_container_choice.WorkerImage | None:
        """Return the image of the cluster's workers. Only for tasks with an image, since this reads
        all Pods of the cluster.
        """
        if cluster is None:
            return None
        return own_container_choice.worker_image(self._caches.pods.owned_by(cluster.metadata.uid))

    def _sources(self, seen: task.Task) -> dict[input_assembly.InputSource, plan.Found]:
        try:
            wanted = input_assembly.sources(seen.spec)
        except input_assembly.InputError:
            return {}  # the plan reports the same problem
        namespace = seen.metadata.namespace
        return {source: self.find_input(source, namespace) for source, _ in wanted.values()}

    def find_view(self, uid: str) -> model.TaskView | None:
        """Return the dispatcher's view of the Task with this uid."""
        return self._views.get(ids.task_id(uid))

    def find_input(self, source: input_assembly.InputSource, namespace: str) -> plan.Found:
        """Return the data of a TaskObject or the result of a Task, or why it is missing."""
        key = (namespace, source.name)
        if source.kind is input_assembly.InputKind.OBJECT:
            found = self._caches.objects.get(key)
            return _absent(source, namespace) if found is None else plan.Ready(found.data)
        other = self._caches.tasks.get(key)
        if other is None:
            return _absent(source, namespace)
        current = msgspec.structs.replace(other, status=self._writer.current(other))
        return plan.result_of(current, self._views.get(ids.task_id(other.metadata.uid)))

    def _memory(self, key: Key, seen: task.Task) -> known_state.KnownState:
        known = self._memories.get(key)
        if known is None or known.uid != seen.metadata.uid:
            if known is not None:
                self._writer.forget(known.uid)
            known = self._memories[key] = known_state.KnownState(seen.metadata.uid)
        return known

    async def _drop_views(self, key: Key, seen: task.Task | None) -> None:
        """Release finished tasks whose objects are gone, and forget their views."""
        own = None if seen is None else ids.task_id(seen.metadata.uid)
        gone = [v.task for v in self._views.named(key) if v.state.final and v.task != own]
        if gone:
            await self._dispatcher().release(gone)
        for released in gone:
            self._views.drop(released)

    def _forget(self, key: Key) -> None:
        known = self._memories.pop(key, None)
        if known is not None:
            self._writer.forget(known.uid)

    def _seen_view(self, view: model.TaskView) -> None:
        if not view.declared:
            return
        key = (view.namespace, view.name)
        is_news = self._views.get(view.task) != view
        self._views.put(view)
        if is_news and key not in self._submitting:
            steps = status.is_pod(view) and not view.state.final
            self._queue.add(key, status.POD_SETTLE_S if steps else 0.0)
        if view.state.final:
            self._wake("Task", key)

    def _wake(self, kind: str, key: Key) -> None:
        if kind == "Task":
            self.on_task(key)
        for waiting in self._waiting_keys.waiting(kind, *key):
            self._queue.add(waiting)

    # Writing

    async def _kill(self, decided: plan.Plan) -> None:
        for kill in decided.kills:
            await self._dispatcher().kill(kill.task, reason=str(kill.reason), message=kill.message)

    async def _suspend(self, view: model.TaskView, *, suspended: bool) -> None:
        newer = await self._dispatcher().suspend(view.task, suspended=suspended)
        if newer is not None:
            self._views.put(newer)

    async def _submit(
        self, key: Key, submission: model.Submission, *, force: bool, resume: bool
    ) -> None:
        self._submitting.add(key)
        try:
            view = await self._dispatcher().submit(submission, force=force, resume=resume)
        except dispatch_errors.RunRefused as error:
            self._refused(key, submission.spec.run, str(error))
            return
        except dispatch_errors.TaskTooLarge as error:
            seen = self._caches.tasks.get(key)
            if seen is not None:
                self._memory(key, seen).unfit = (submission.spec.run, str(error))
            return
        finally:
            self._submitting.discard(key)
        self._views.put(view)

    def _refused(self, key: Key, run: int, why: str) -> None:
        seen = self._caches.tasks.get(key)
        if seen is None:
            return
        self._memory(key, seen).refused = run
        hint = f"annotate the Task with {task.FORCE_ANNOTATION}={run}"
        self._emit_event(seen, "Warning", "RunRefused", f"{why}: {hint}")

    async def _make_output(
        self, key: Key, seen: task.Task, view: model.TaskView, *, output: plan.Output
    ) -> None:
        obstacle: str | None = output.obstacle
        if not obstacle:
            obstacle = await output_object.make(
                self._client, seen, run=view.run, name=output.name, data=output.data
            )
        if obstacle is not None:
            self._emit_event(seen, "Warning", "OutputObjectNotMade", obstacle)
        made = output.name if obstacle is None else ""
        self._memory(key, seen).output = (view.run, made)

    async def _update_status(
        self, key: Key, seen: task.Task, wanted: task.TaskStatus
    ) -> list[float | None]:
        """Write the status of a Task if it is due; return the delays in seconds after which the
        Task needs further passes.
        """
        known, now = self._memory(key, seen), self._clock.monotonic()
        due, later_s = known.long_wait(wanted, now)
        if due:
            self._emit_event(seen, "Warning", wanted.reason, wanted.message)
        wanted = status.settle(seen.status, wanted)
        view = self._views.get(ids.task_id(seen.metadata.uid))
        known.held, wait_s = status.hold(
            seen.status, wanted, held=known.held, now=now, is_pod=status.is_pod(view)
        )
        if wait_s is None or wait_s > 0:
            return [wait_s, later_s]
        try:
            others = await self._writer.write(seen, wanted)
        except errors.NotFound:
            return []
        if others:
            self._queue.add(key)
        known.held = None
        event = status.announcement(seen.status, wanted, loss="" if view is None else view.loss)
        if event is not None:
            self._emit_event(seen, event.type, event.reason, event.message)
        return [later_s]

    def _emit_event(self, seen: task.Task, type_: str, reason: str, message: str) -> None:
        self._emit(events.reference(kinds.TASKS, seen), type_, str(reason), message)

    def _dispatcher(self) -> ports.TaskHub:
        if self._hub is None:
            raise errors.NotSynced("the dispatcher is not there yet")
        return self._hub


def _unfinished(known: tuple[model.TaskView, ...]) -> tuple[ids.TaskId, ...]:
    return tuple(v.task for v in known if not v.state.final and v.state is not task.State.KILLING)


def _news(cluster: task_cluster.TaskCluster) -> tuple[object, ...]:
    """Return the part of a TaskCluster's state that matters to tasks waiting for a worker, without
    its counts.
    """
    conditions = tuple((c.type, c.status, c.reason, c.message) for c in cluster.status.conditions)
    return cluster.metadata.uid, cluster.metadata.deletion_timestamp, conditions


def _cluster_of(seen: task.Task, view: model.TaskView | None) -> str:
    return seen.spec.cluster_name if view is None or view.run < seen.spec.run else view.cluster


def _absent(source: input_assembly.InputSource, namespace: str) -> plan.Missing:
    return plan.Missing(f"{source} does not exist in namespace {namespace}")
