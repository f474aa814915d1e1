"""The hub: the interface of the dispatcher to controllers, server, workers and drivers.

Controllers submit, kill and follow changes here. Agents, slots and drivers connect over a Unix
socket, or through another listener that gives each connection a `new_link`; `peers` handles them.
The hub performs I/O and decides nothing: `machine` does, and `commits` keeps machine and store in
step. Everything that callers get is stored: on disk, if the store is a journal.
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
    callback_results,
    commit_participation,
    commits,
    delivery,
    feed,
    links,
    peers,
    retention,
    subscriptions,
    task_views,
)
from kilnwork.dispatch.hub import environment_variables as hub_variables
from kilnwork.dispatch.journal import port
from kilnwork.dispatch.machine import inputs, instructions, records, views
from kilnwork.kit import clock as clocks
from kilnwork.kit import coroutines, ids

CLUSTERS_EVERY_S = 0.1
"""Minimum seconds between two publications of changed clusters."""

MAX_BACKLOG = 1_000_000
"""Maximum number of calls that wait for a slot of one cluster: half a gigabyte of memory. While
more wait, the dispatcher withholds `Accepted`, so that submitters wait.
"""


LEASE_S, RENEW_S = 10.0, 3.0
"""Defaults for one machine, where a dispatcher that is killed is back within seconds."""


@dataclass(frozen=True, slots=True)
class HubOptions:
    """Optional settings of a hub."""

    lease_s: float = LEASE_S
    """Seconds that a worker may be silent."""
    renew_s: float = RENEW_S
    """Seconds between two renewals of a worker's lease: three tries fit one lease."""
    keep: retention.RetentionLimits = field(default_factory=retention.RetentionLimits)
    """Limits on the age, number and size of finished tasks without an object that are kept, with
    their output.
    """
    max_backlog: int = MAX_BACKLOG
    executors: bool = True
    """Whether executors join: then tasks may name executors other than the worker."""
    callback_url: Callable[[attempts.AttemptRef, float], str] | None = None
    """See `delivery.Terms`; None: no executor can call back."""
    images: model.ImageRule = model.label_image
    """Says what the image of a spawned command means."""
    variables: hub_variables.VariableSource | None = None
    """Reads the Secrets and ConfigMaps from which tasks take variables. None: such tasks get an
    error in place of the values.
    """
    drivers_prune: bool = False
    """Whether drivers may forget tasks: where every driver owns everything."""
    blobs_dir: Path | None = None
    """The directory that contains the directories of blobs, by namespace."""
    clock_file: Path | None = None
    on_failure: Callable[[BaseException], None] = lambda error: None
    """Called when the store cannot continue (another dispatcher took over, the file is broken), or
    after a bug in the machine: the process should end, and the next one start from the journal.
    """


class Hub:
    """The interface of the dispatcher. Create it, `start` it in a running event loop, then `stop`
    it.

    `logs_dir`: the directory for the output of tasks; None: output is not stored.
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
        """Returns the protocol for one more connection, wherever it comes from."""
        self.join_executor = self._peers.join_executor
        self.containers = self._peers.containers
        """Attempts that run in containers of their own in their workers' Pods."""
        self._clusters: feed.ThrottledFeed[records.ClusterKey] = feed.ThrottledFeed(
            every_s=CLUSTERS_EVERY_S
        )
        self._subscriptions = subscriptions.Subscriptions()
        self.call_back = callback_results.Callbacks(
            self._core, frames.links, self._subscriptions, self._peers.concluded
        ).call_back
        self.participation: commit_participation.Participation = commit_participation.Participation(
            self._core,
            self._subscriptions,
            self.logs,
            views=self._views,
            cluster=self.cluster,
        )
        """For code that stores rows and tasks of its own in the batches."""
        self.knows = self.participation.knows
        self._server: asyncio.Server | None = None
        self._socket: Path | None = None

    @property
    def epoch(self) -> int:
        """Return the epoch of this dispatcher's term as leader; 0 before `start`."""
        return self._core.store.epoch

    @property
    def trouble(self) -> str | None:
        """Return why nothing is accepted now (writes to the disk fail), or None."""
        return self._core.store.trouble

    async def start(self, where: Path | socket.socket) -> None:
        """Take over the store and listen on a path, or on a socket that already listens.

        Raises `JournalLocked` or `JournalUnreadable`.
        """
        try:
            # Before anything listens: the first peer may name attempts that only the journal knows.
            self._core.start()
            # Known only now, because opening the store raises the epoch.
            self._peers.start(self.epoch)
            self._tasks.begin(self.epoch)
            self._clusters.begin(self.epoch)
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
            # This releases the lock of the journal as well.
            self._core.close()
            raise

    async def stop(self, *, leaving: str = "") -> None:
        """Close all links and the store; everything that was accepted is stored.

        `leaving`: a message for peers when no dispatcher will follow soon, so that they do not wait
        for one.
        """
        if self._server is not None:
            self._server.close()
            self._server = None
        # A link that is closed without a message means that another dispatcher will follow.
        if leaving:
            self._peers.dismiss(leaving)
        self._disconnect(errors.HubStopped())
        await self._background.stop()
        # After the background work, which saves the time as well.
        await self._retention.save_time()
        # Last: this lets the store finish the batch that is being written.
        self._core.close()
        if self._socket is not None:
            _make_room(self._socket)

    async def submit(
        self, submission: model.Submission, *, force: bool = False, resume: bool = False
    ) -> model.TaskView:
        """Accept a run of a task; it is on disk when this returns.

        Submitting the same run again changes nothing. A higher run starts a finished task again. If
        the previous run has not finished, it is killed and *its* view is returned: submit again
        when it has ended. `resume`: keep the children of the previous run, and run only the failed
        ones again. Raises `RunRefused` for a new run after a success without `force`,
        `TaskTooLarge`, `HubStopped`.
        """
        self._core.check()
        task = submission.task
        # There is no await from here to `apply`: what was read is still true when the input is
        # applied.
        known = self._core.machine.task(task)
        past = self._past(task) if known is None else None
        earlier = self._retrying.earlier(task) if resume else None
        self._core.apply(inputs.Submit(submission, past, force, earlier))
        # Inputs are stored in the order in which they were applied, so this input is on disk as
        # well.
        await self._core.flush()
        view = self.view(task)
        if view is None:
            raise errors.HubStopped("the journal lost a task that it had accepted")
        return view

    def holds(self, ref: attempts.AttemptRef) -> bool:
        """Return whether the attempt has not ended: a worker has it, or will be asked about it."""
        task = self._core.machine.task(ref.task)
        return task is not None and task.held and task.ref == ref

    async def retry(self, task: ids.TaskId, *, force: bool = False) -> None:
        """Start a new run of a finished spawned task; it is on disk when this returns.

        Raises `RunRefused` if the task is unknown, unfinished or being deleted, or has succeeded
        and `force` is False, or if its job is deleted or its spec cannot be read.
        """
        await self._retrying.retry(task, force=force)

    async def retry_failed(self, task: ids.TaskId, *, objects: bool = False) -> model.Retried:
        """Run a failed task again, and with it all failed tasks that are connected to it.

        Either all new runs or none are on disk when this returns. Successes are reused: children of
        earlier runs become children of the new runs, and only the failed children run again, when
        they are requested. Raises `RunRefused` if the task is unknown, unfinished or has succeeded,
        or if one of the tasks belongs to a job or is being deleted. `objects`: the caller can raise
        the `spec.run` of Task objects; if False and Task objects are among the tasks, raises
        `RunRefused`.
        """
        return await self._retrying.retry_failed(task, objects=objects)

    async def kill(self, task: ids.TaskId, *, reason: str, message: str = "") -> None:
        """Kill a task and its unfinished children; this is on disk when the method returns.

        Does nothing if the task is unknown or finished.
        """
        self._core.apply(inputs.Kill(task, reason, message))
        await self._core.flush()

    async def suspend(self, task: ids.TaskId, *, suspended: bool) -> model.TaskView | None:
        """Suspend or resume a task; return its view once the change is on disk.

        A running attempt continues; the next attempt waits. Does nothing if the task is unknown or
        finished.
        """
        self._core.apply(inputs.Suspend(task, suspended))
        await self._core.flush()
        return self.view(task)

    async def release(self, tasks: Iterable[ids.TaskId]) -> None:
        """Record that the Task objects of these tasks are deleted; this is on disk when the method
        returns.

        Finished tasks are then no longer among the changes since 0, and may be forgotten.
        """
        released = tuple(tasks)
        self._core.apply(inputs.Release(released))
        await self._core.flush()
        self._tasks.drop(released)

    async def forget_old(self) -> None:
        """Forget all tasks that are old enough, and collect blobs, now: for tests, which cannot
        wait.
        """
        await self._retention.forget_all()
        await self._retention.collect()

    async def prune(self, asked: model.Pruning, *, dry_run: bool = False) -> model.Pruned:
        """Forget the finished tasks that `asked` selects, or only count them (`dry_run`)."""
        pruned = await self._retention.prune(asked, dry_run=dry_run)
        if dry_run:
            return pruned
        later_bytes = await self._retention.collect_released()
        return msgspec.structs.replace(pruned, later_bytes=later_bytes)

    async def _prune(self, asked: model.Pruning, dry_run: bool) -> model.Pruned:  # noqa: FBT001
        return await self.prune(asked, dry_run=dry_run)

    async def forget(self, task: ids.TaskId) -> None:
        """Forget a finished task, with all its runs and output; this is on disk when the method
        returns.

        Raises `RunRefused` if the task is unknown, unfinished or a Task object, if its parent or a
        task that takes its result is unfinished, or if it has an unfinished child.
        """
        row = self._core.reader.task_row(task)
        if row is None:
            raise errors.RunRefused("the journal does not know this task")
        if refusal := self._retention.refusal(row):
            raise errors.RunRefused(refusal)
        # There was no await since the checks, as `forget` demands.
        await self._retention.forget((task,))

    async def close_cluster(self, namespace: str, cluster: str, *, running: bool = True) -> None:
        """Fail all unfinished tasks of a deleted TaskCluster.

        `running`: False while the TaskCluster is still being deleted: fail only tasks that no
        worker has and that have not delegated to another task.
        """
        self._core.apply(inputs.CloseCluster(namespace, cluster, running))
        await self._core.flush()

    async def drain(self, namespace: str, cluster: str, pods: frozenset[str]) -> None:
        """Drain the workers in these Pods; stop draining all other workers of the cluster.

        A draining worker gets no new tasks. Running tasks continue; if one is lost with its worker,
        that does not count as a loss.
        """
        seen = self._core.machine.memory.clusters.get((namespace, cluster))
        # Controllers repeat this in every round, mostly without a change.
        if (frozenset() if seen is None else seen.draining) != pods:
            self._core.apply(inputs.Drain(namespace, cluster, pods))
            await self._core.flush()

    async def set_portions(
        self, namespace: str, cluster: str, portions: Mapping[str, frozenset[int]]
    ) -> None:
        """Set which portions of a SyncSet's data are on which nodes (`portions` by node), for a
        cluster.

        Tasks that need a portion go to workers on nodes that hold it. Running tasks continue.
        """
        seen = self._core.machine.memory.clusters.get((namespace, cluster))
        if ({} if seen is None else seen.portions) != portions:
            self._core.apply(inputs.SetPortions(namespace, cluster, dict(portions)))
            await self._core.flush()

    async def closing(self) -> None:
        """Start no more tasks and count no losses, since the node is about to end every worker.

        Until `stop`, ends of attempts are still received and stored. Cannot be undone.
        """
        self._core.apply(inputs.Close())
        await self._core.flush()

    async def worker_gone(self, pod_uid: str, *, why: str = "", ended: float | None = None) -> None:
        """Handle the end of a worker's Pod, or of its container: everything that ran in it has
        ended.

        `why`: the reason, if known. `ended`: the time at which the container ended; see
        `inputs.WorkerGone`.
        """
        self._core.apply(inputs.WorkerGone(pod_uid, why, ended))
        await self._core.flush()

    async def changes(self, since: int) -> tuple[int, list[model.TaskView]]:
        """Wait until declared tasks change after change number `since`; return the next number and
        their views.

        With `since` 0, or one from an earlier dispatcher process, returns the newest run of every
        declared task.
        """
        self._core.check()
        await self._tasks.newer(since)
        # Before the rows are read: a later change has a higher number and is shown again.
        last = self._tasks.last
        if not self._tasks.is_own(since):
            return last, [self._views.of_row(row) for row in self._core.reader.declared()]
        found = (self.view(task) for task in self._tasks.since(since))
        return last, [view for view in found if view is not None]

    async def clusters_changed(self, since: int) -> tuple[int, set[tuple[str, str]]]:
        """Wait until clusters change after change number `since`; return the next number and their
        names.

        With `since` 0, or one from an earlier dispatcher process, returns all clusters.
        """
        self._core.check()
        await self._clusters.newer(since)
        last = self._clusters.last
        if not self._clusters.is_own(since):
            every = self._core.machine.memory.clusters.values()
            own = (one for one in every if not one.is_executor and one.base is None)
            return last, {cluster.key for cluster in own}
        return last, set(self._clusters.since(since))

    def cluster(self, namespace: str, name: str) -> model.ClusterView | None:
        """Return the dispatcher's view of a TaskCluster, or None if the dispatcher does not know
        it.
        """
        seen = self._core.machine.memory.clusters.get((namespace, name))
        return None if seen is None else views.of_cluster(seen)

    def counts(self, namespace: str | None = None) -> list[model.TaskCount]:
        """Return how many tasks there are by function and state.

        `namespace`: the namespace whose tasks are counted; None: all namespaces.
        """
        return self._core.reader.counts(namespace)

    def log_file(self, task: ids.TaskId, *, run: int, attempt: int) -> Path:
        """Return the path of an attempt's current log file, which need not exist.

        The path of the older log file has `.1` appended. If only the journal has the output, this
        writes it to the file first.
        """
        ref = attempts.AttemptRef(task, run, attempt)
        path = attempt_logs.path(self.logs.logs_dir or Path(os.devnull), ref)
        # A file that is made while the task is being forgotten would stay behind.
        kept = not self._core.machine.memory.pins.is_retiring(task)
        if kept and not path.exists() and (data := self._core.reader.output(ref)):
            # The journal had the output; readers of output read files.
            self.logs.append(ref, 0, data)
            # The attempt is over: nothing more will be appended.
            self.logs.forget(ref)
        return path

    def tick(self) -> None:
        """Have the clock read now, for tests that set it by hand."""
        self._core.tick()

    @property
    def drivers(self) -> int:
        """Return how many drivers are connected."""
        return self._peers.drivers

    @property
    def greeted(self) -> int:
        """Return how many drivers have joined since the start of the dispatcher."""
        return self._peers.greeted

    @property
    def at_work(self) -> bool:
        """Return whether there are unfinished tasks, and a worker that can be given tasks."""
        mem = self._core.machine.memory
        return bool(mem.tasks) and any(worker.ready for worker in mem.workers.values())

    def committed(self, batch: instructions.Batch, written: port.Written) -> None:
        """Publish the changes of a stored batch (`commits.Observer`)."""
        # Views first: subscribers that are notified below read them at once.
        self._views.committed(batch, written)
        self._peers.committed(batch)
        if batch.dirty or batch.published:
            changed = [task.id for task in batch.dirty if task.declared]
            self._tasks.publish(changed)
            self._tasks.publish(batch.published.difference(changed))
            self._subscriptions.publish(batch)
        if batch.clusters:
            # Controllers know only the clusters that own workers, not the queues that share these
            # workers.
            own = {c.base or c for c in batch.clusters if not c.is_executor}
            self._clusters.publish(c.key for c in own)

    def failed(self, error: BaseException) -> None:
        """End all waits after the store or the machine has failed for good (`commits.Observer`)."""
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
    """Make a private directory for the socket, and remove a socket left by an earlier process."""
    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A socket file outlives its process, and `bind` refuses a path that exists.
    socket.unlink(missing_ok=True)


def _restrict(socket: Path) -> None:
    # Until here, the mode of its directory has kept other users out.
    socket.chmod(0o600)
