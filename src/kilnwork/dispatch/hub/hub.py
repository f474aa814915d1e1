"""The hub: where controllers, server, workers and drivers meet the dispatcher.

Controllers submit, kill and follow changes here; agents, slots and drivers connect over a Unix
socket, or by whatever else listens and gives each connection a `new_link`, and are `peers`' care.
The hub does the I/O and decides nothing: `machine` does, and `commits` keeps machine and store in
step. What callers get is stored: on disk, if the store is a journal.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.channel import ports
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.hub import (
    attempt_logs,
    callbacks,
    commits,
    delivery,
    feed,
    links,
    participation,
    peers,
    retention,
    subscriptions,
    task_views,
)
from kilnwork.dispatch.hub import variables as hub_variables
from kilnwork.dispatch.journal import port
from kilnwork.dispatch.machine import inputs, instructions, records, views
from kilnwork.kit import clock as clocks
from kilnwork.kit import coroutines, ids

CLUSTERS_EVERY_S = 0.1
"""Shortest time between two publications of changed clusters."""

MAX_BACKLOG = 1_000_000
"""Calls that wait for a slot of one cluster before no more are accepted: half a gigabyte."""


LEASE_S, RENEW_S = 10.0, 3.0
"""On one machine, where a dispatcher that is killed is back within seconds."""


@dataclass(frozen=True, slots=True)
class HubOptions:
    """Optional settings of a hub."""

    lease_s: float = LEASE_S
    """How long a worker may be silent."""
    renew_s: float = RENEW_S
    """How often it renews: three tries fit one lease."""
    keep: retention.RetentionLimits = field(default_factory=retention.RetentionLimits)
    """How long, and how much, tasks that are over and have no object are kept, with their
    output."""
    max_backlog: int = MAX_BACKLOG
    executors: bool = True
    """Executors join: tasks may name others than the worker."""
    callback_url: Callable[[attempts.AttemptRef, float], str] | None = None
    """As of `delivery.Terms`; None: no executor can call back."""
    images: model.ImageRule = model.label_image
    """What the image of a spawned command means."""
    variables: hub_variables.VariableSource | None = None
    """Where tasks' variables from Secrets and ConfigMaps are read; None: there are none."""
    drivers_prune: bool = False
    """Drivers may forget tasks: where every driver owns everything."""
    blobs_dir: Path | None = None
    """Where the directories of blobs are, by namespace."""
    clock_file: Path | None = None
    on_failure: Callable[[BaseException], None] = lambda error: None
    """Called when the store cannot go on (another dispatcher took over, the file is broken): the
    process should end, and the next one start from the journal."""


class Hub:
    """The dispatcher as others see it. Make it, `start` it in a running loop, `stop` it.

    `logs_dir`: where output of tasks is kept; None: nowhere.
    """

    def __init__(
        self,
        store: port.Store,
        *,
        clock: clocks.Clock,
        verifier: ports.TokenVerifier,
        logs_dir: Path | None,
        entropy: ids.Entropy,
        options: HubOptions = HubOptions(),
    ) -> None:
        self.logs = attempt_logs.AttemptLogs(logs_dir)
        limits = commits.BatchLimits(
            options.lease_s, options.max_backlog, options.executors, options.images
        )
        terms = delivery.Terms(
            lease_s=options.lease_s,
            renew_s=options.renew_s,
            blobs=options.blobs_dir,
            callback_url=options.callback_url,
        )
        frames = delivery.Delivery({}, self.logs, terms)
        self._core: commits.Core = commits.Core(
            store, frames, self, clock=clock, entropy=entropy, limits=limits
        )
        self._on_failure = options.on_failure
        self._background = coroutines.BackgroundWork("hub")
        self._tasks: feed.Feed[ids.TaskId] = feed.Feed()
        self._views = task_views.TaskViews(self._core, self._tasks)
        self.view = self._views.view
        self.current = self._views.current
        self._retention = retention.Retention(
            self._core,
            self.logs,
            blobs=options.blobs_dir,
            limits=options.keep,
            clock_file=options.clock_file,
        )
        self._peers: peers.Peers = peers.Peers(
            self._core,
            frames,
            logs=self.logs,
            verifier=verifier,
            background=self._background,
            view=self.view,
            variables=options.variables,
            prune=self._prune if options.drivers_prune else None,
        )
        self._retrying = self._peers.retries
        self.new_link: Callable[[], links.Link] = self._peers.new_link
        """The protocol of one more connection, from wherever it comes."""
        self.join_executor = self._peers.join_executor
        self.containers = self._peers.containers
        """Attempts that run as containers of their workers' Pods."""
        self._clusters: feed.ThrottledFeed[records.ClusterKey] = feed.ThrottledFeed(
            every_s=CLUSTERS_EVERY_S
        )
        self._subscriptions = subscriptions.Subscriptions()
        self.call_back = callbacks.Callbacks(
            self._core, frames.links, self._subscriptions, self._peers.concluded
        ).call_back
        self.participation: participation.Participation = participation.Participation(
            self._core,
            self._subscriptions,
            self.logs,
            views=self._views,
            cluster=self.cluster,
        )
        """For what stores rows and tasks of its own in the batches."""
        self.knows = self.participation.knows
        self._server: asyncio.Server | None = None
        self._socket: Path | None = None

    @property
    def epoch(self) -> int:
        """Return the epoch of this leadership; 0 before `start`."""
        return self._core.store.epoch

    @property
    def trouble(self) -> str | None:
        """Why nothing is accepted at the moment (the disk refuses), None when all is well."""
        return self._core.store.trouble

    async def start(self, where: Path | socket.socket) -> None:
        """Take over the store and listen: on a path, or on a socket that listens already.

        Raises `JournalLocked` or `JournalUnreadable`.
        """
        try:
            self._core.start()
            self._peers.start(self.epoch)
            loop = asyncio.get_running_loop()
            if isinstance(where, Path):
                _make_room(where)
                self._server = await loop.create_unix_server(self.new_link, str(where))
                _restrict(where)
                self._socket = where
            else:
                self._server = await loop.create_unix_server(self.new_link, sock=where)
            self._background.start("retention", self._retention.run())
        except BaseException:
            self._core.close()
            raise

    async def stop(self, *, leaving: str = "") -> None:
        """Close all links and the store; what was accepted stays there.

        `leaving`: no dispatcher will follow soon; peers are notified, and need not wait for one.
        """
        if self._server is not None:
            self._server.close()
            self._server = None
        if leaving:
            self._peers.dismiss(leaving)
        self._disconnect(errors.HubStopped())
        await self._background.stop()
        await self._retention.save_time()
        self._core.close()
        if self._socket is not None:
            _make_room(self._socket)

    async def submit(
        self, submission: model.Submission, *, force: bool = False, resume: bool = False
    ) -> model.TaskView:
        """Accept a run; on disk when this returns. The same run again changes nothing.

        A higher run starts a finished task again; while the run before goes on it is killed, and
        the view of *that* is returned: submit again when it is over. `resume`: it goes on with the
        children of the run before, of which only those that failed run again. Raises `RunRefused`
        for a new run after a success without `force`, `TaskTooLarge`, `HubStopped`.
        """
        self._core.check()
        task = submission.task
        known = self._core.machine.task(task)
        past = self._past(task) if known is None else None
        earlier = self._retrying.earlier(task) if resume else None
        self._core.apply(inputs.Submit(submission, past, force, earlier))
        await self._core.flush()
        view = self.view(task)
        if view is None:
            raise errors.HubStopped("the journal lost a task that it had accepted")
        return view

    def holds(self, ref: attempts.AttemptRef) -> bool:
        """Return whether a worker has this attempt, or will be asked about it: it is not over."""
        task = self._core.machine.task(ref.task)
        return task is not None and task.held and task.ref == ref

    async def retry(self, task: ids.TaskId, *, force: bool = False) -> None:
        """Start a new run of a spawned task that is over; on disk when this returns.

        Raises `RunRefused` when it is unknown, not over, or has succeeded and `force` is False.
        """
        await self._retrying.retry(task, force=force)

    async def retry_failed(self, task: ids.TaskId, *, objects: bool = False) -> model.Retried:
        """Run again what failed of a task: itself, and all failed tasks that are connected with it;
        on disk when this returns, all of it or nothing.

        What succeeded is used as it is: children of runs before are those of the new runs, and only
        the failed ones among them run again, when they are asked for. Raises `RunRefused` when it
        is unknown, not over, or has succeeded; and unless `objects`, which is for a caller that can
        raise the `spec.run` of those, when Task objects are among them.
        """
        return await self._retrying.retry_failed(task, objects=objects)

    async def kill(self, task: ids.TaskId, *, reason: str, message: str = "") -> None:
        """Kill a task and its unfinished children; on disk when this returns.

        Unknown or over: nothing happens.
        """
        self._core.apply(inputs.Kill(task, reason, message))
        await self._core.flush()

    async def suspend(self, task: ids.TaskId, *, suspended: bool) -> model.TaskView | None:
        """Hold a task back, or let it go; on disk when this returns. Gives its view.

        An attempt that runs goes on, the next one waits. Unknown or over: nothing happens.
        """
        self._core.apply(inputs.Suspend(task, suspended))
        await self._core.flush()
        return self.view(task)

    async def release(self, tasks: Iterable[ids.TaskId]) -> None:
        """The objects of these tasks are gone; on disk when this returns.

        Those that are over are no longer among the changes since 0, and need not be kept for ever.
        """
        released = tuple(tasks)
        self._core.apply(inputs.Release(released))
        await self._core.flush()
        self._tasks.drop(released)

    async def forget_old(self) -> None:
        """Forget now whatever is old enough, and collect: for tests and for who cannot wait until
        it happens by itself."""
        await self._retention.forget_all()
        await self._retention.collect()

    async def prune(self, asked: model.Pruning, *, dry_run: bool = False) -> model.Pruned:
        """Forget tasks that are over, or only say how many that would be."""
        pruned = await self._retention.prune(asked, dry_run=dry_run)
        if dry_run:
            return pruned
        later_bytes = await self._retention.collect_released()
        return msgspec.structs.replace(pruned, later_bytes=later_bytes)

    async def _prune(self, asked: model.Pruning, dry_run: bool) -> model.Pruned:  # noqa: FBT001
        return await self.prune(asked, dry_run=dry_run)

    async def forget(self, task: ids.TaskId) -> None:
        """Forget a task that is over, with all its runs and output; on disk when this returns.

        Raises `RunRefused` when it is unknown, not over, an object, or a user may look for it.
        """
        row = self._core.reader.task_row(task)
        if row is None:
            raise errors.RunRefused("the journal does not know this task")
        if refusal := self._retention.refusal(row):
            raise errors.RunRefused(refusal)
        await self._retention.forget((task,))

    async def close_cluster(self, namespace: str, cluster: str, *, running: bool = True) -> None:
        """Fail all unfinished tasks of a TaskCluster that is gone; `running` False: that is being
        deleted, those that no worker has."""
        self._core.apply(inputs.CloseCluster(namespace, cluster, running))
        await self._core.flush()

    async def drain(self, namespace: str, cluster: str, pods: frozenset[str]) -> None:
        """The workers in these Pods of a cluster, and in no others, get nothing new.

        What they have goes on; what is lost with one of them does not count as a loss.
        """
        seen = self._core.machine.memory.clusters.get((namespace, cluster))
        if (frozenset() if seen is None else seen.draining) != pods:
            self._core.apply(inputs.Drain(namespace, cluster, pods))
            await self._core.flush()

    async def set_portions(
        self, namespace: str, cluster: str, portions: Mapping[str, frozenset[int]]
    ) -> None:
        """Tasks that need a portion of a SyncSet's data go to workers of a cluster on nodes that
        hold it: `portions` by node. What runs goes on."""
        seen = self._core.machine.memory.clusters.get((namespace, cluster))
        if ({} if seen is None else seen.portions) != portions:
            self._core.apply(inputs.SetPortions(namespace, cluster, dict(portions)))
            await self._core.flush()

    async def closing(self) -> None:
        """The node is about to end every worker: start nothing more, count no loss against a task.

        Until `stop`, ends are still received and stored; there is no way back.
        """
        self._core.apply(inputs.Close())
        await self._core.flush()

    async def worker_gone(self, pod_uid: str, *, why: str = "", ended: float | None = None) -> None:
        """The Pod is gone, or its container has `ended`, and so is everything that ran in it.

        `why`: if that is known. `ended`: see `inputs.WorkerGone`.
        """
        self._core.apply(inputs.WorkerGone(pod_uid, why, ended))
        await self._core.flush()

    async def changes(self, since: int) -> tuple[int, list[model.TaskView]]:
        """Declared tasks that changed after `since`, once there are any, and the number to go on.

        `since` 0, or of another dispatcher's life: the newest run of every declared task.
        """
        self._core.check()
        await self._tasks.newer(since)
        last = self._tasks.last
        if not 0 < since <= last:
            return last, [self._views.of_row(row) for row in self._core.reader.declared()]
        found = (self.view(task) for task in self._tasks.since(since))
        return last, [view for view in found if view is not None]

    async def clusters_changed(self, since: int) -> tuple[int, set[tuple[str, str]]]:
        """Namespace and name of clusters whose view changed after `since`, once there are any."""
        self._core.check()
        await self._clusters.newer(since)
        last = self._clusters.last
        if not 0 < since <= last:
            every = self._core.machine.memory.clusters.values()
            own = (one for one in every if not one.is_executor and one.base is None)
            return last, {cluster.key for cluster in own}
        return last, set(self._clusters.since(since))

    def cluster(self, namespace: str, name: str) -> model.ClusterView | None:
        """A TaskCluster as the dispatcher sees it; None when nothing of it was ever seen."""
        seen = self._core.machine.memory.clusters.get((namespace, name))
        return None if seen is None else views.of_cluster(seen)

    def counts(self, namespace: str | None = None) -> list[model.TaskCount]:
        """How many tasks there are by function and state, in one namespace or (None) in all."""
        return self._core.reader.counts(namespace)

    def log_file(self, task: ids.TaskId, *, run: int, attempt: int) -> Path:
        """Where the output of an attempt is kept (older part: `.1` appended); need not exist."""
        ref = attempts.AttemptRef(task, run, attempt)
        path = attempt_logs.path(self.logs.logs_dir or Path(os.devnull), ref)
        if not path.exists() and (data := self._core.reader.output(ref)):
            self.logs.append(ref, 0, data)  # the journal had it; readers of output read files
            self.logs.forget(ref)
        return path

    def tick(self) -> None:
        """Look at the clock now: for tests that move it by hand."""
        self._core.tick()

    @property
    def drivers(self) -> int:
        """How many are connected."""
        return self._peers.drivers

    @property
    def greeted(self) -> int:
        """Drivers that were let in since the start."""
        return self._peers.greeted

    @property
    def at_work(self) -> bool:
        """Something runs, or will as soon as a connected worker has a slot for it."""
        mem = self._core.machine.memory
        return bool(mem.tasks) and any(worker.ready for worker in mem.workers.values())

    def committed(self, batch: instructions.Batch, written: port.Written) -> None:
        """Publish what a stored batch has changed (`commits.Observer`)."""
        self._views.committed(batch, written)
        self._peers.committed(batch)
        if batch.dirty or batch.published:
            changed = [task.id for task in batch.dirty if task.declared]
            self._tasks.publish(changed)
            self._tasks.publish(batch.published.difference(changed))
            self._subscriptions.publish(batch)
        if batch.clusters:
            own = {c.base or c for c in batch.clusters if not c.is_executor}
            self._clusters.publish(c.key for c in own)

    def failed(self, error: BaseException) -> None:
        """End all waits: the store cannot go on (`commits.Observer`)."""
        self._disconnect(errors.HubStopped(f"the dispatcher failed: {error}"))
        self._on_failure(error)

    def _past(self, task: ids.TaskId) -> inputs.Past | None:
        row = self._core.reader.task_row(task)
        return None if row is None else inputs.Past(row.run, api_task.State(row.state))

    def _disconnect(self, error: errors.HubStopped) -> None:
        self._tasks.fail(error)
        self._clusters.fail(error)
        self._peers.disconnect()


def _make_room(socket: Path) -> None:
    """A directory that only we can enter, and no socket of an earlier life in it."""
    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)


def _restrict(socket: Path) -> None:
    socket.chmod(0o600)
