"""The hub: where controllers, server, workers and drivers meet the dispatcher.

Controllers submit, kill and follow changes; agents, slots and drivers connect over a Unix socket,
or by whatever else listens and gives each connection a `new_link`.
The hub does the I/O and decides nothing: `machine` does, and `core` keeps machine and store in
step. Everything a caller is told is kept: on disk, if the store is a journal.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.channel import messages, ports
from kilnwork.dispatch import (
    agents,
    attempt_logs,
    core,
    delivery,
    errors,
    feed,
    gate,
    inputs,
    instructions,
    links,
    model,
    records,
    requests,
    rerunning,
    retention,
    store,
    submitters,
    task_rows,
    waits,
)
from kilnwork.kit import clock as clocks
from kilnwork.kit import coroutines, ids

log = logging.getLogger(__name__)

CLUSTERS_EVERY_S = 0.1
"""Shortest time between two changes of clusters that readers are told of."""

CROWD = 1_000_000
"""Calls that wait for a slot of one cluster before no more are accepted: half a gigabyte."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a hub may be told beyond what it needs.

    `lease_s`: how long a worker may be silent; `renew_s`: how often it renews (three tries fit one
    lease). `keep_s`: how long tasks that are over and have no object are kept, with their output
    (7 days: over a weekend and some). `crowd`: see `CROWD`. `blobs_dir`: where the folders of blobs
    are, by namespace. `on_failure` is called when the store cannot go on (another dispatcher took
    over, the file is broken): the process should end, and the next one start from the journal.
    """

    lease_s: float = 10.0
    renew_s: float = 3.0
    keep_s: float = retention.KEEP_S
    crowd: int = CROWD
    blobs_dir: Path | None = None
    on_failure: Callable[[BaseException], None] = lambda error: None


class Hub:
    """The dispatcher as others see it. Make it, `start` it in a running loop, `stop` it.

    `logs_dir`: where output of tasks is kept; None: nowhere.
    """

    def __init__(
        self,
        kept: store.Store,
        *,
        clock: clocks.Clock,
        verifier: ports.TokenVerifier,
        logs_dir: Path | None,
        entropy: ids.Entropy,
        options: Options = Options(),
    ) -> None:
        self.logs = attempt_logs.AttemptLogs(logs_dir)
        limits = core.Limits(options.lease_s, options.crowd)
        self._core = core.Core(kept, self, clock=clock, entropy=entropy, limits=limits)
        self._on_failure = options.on_failure
        self.greeted = 0
        """Drivers that were let in since the start."""
        self._links: dict[int, links.Link] = {}
        self._link_numbers = 0
        terms = delivery.Terms(
            lease_s=options.lease_s, renew_s=options.renew_s, blobs=options.blobs_dir
        )
        self._delivery = delivery.Delivery(self._links, self.logs, terms)
        self._crew = coroutines.Crew("hub")
        self._retention = retention.Retention(
            self._core, self.logs, blobs=options.blobs_dir, keep_s=options.keep_s
        )
        self._gate = gate.Gate(verifier, self._crew, self._believed)
        self._agents = agents.Agents(self._core, self._gate, self.logs, self.view)
        self._submitters = submitters.Submitters(self._core, self.logs)
        self._takers: dict[type, Callable[[links.Link, Any], None]] = {
            messages.Hello: self._agents.received,
            messages.DriverHello: self._submitters.from_driver,
            messages.SlotHello: self._submitters.from_slot,
        }
        self._joins: dict[type, Callable[[links.Link, Any], None]] = {
            messages.Hello: self._agents.join,
            messages.DriverHello: self._submitters.attach,
            messages.SlotHello: self._submitters.join,
        }
        self._tasks: feed.Feed[ids.TaskId] = feed.Feed()
        self._clusters: feed.Feed[records.ClusterKey] = feed.Feed()
        self._crowds: set[records.ClusterKey] = set()
        self._crowd_timer: asyncio.TimerHandle | None = None
        self._held_back: list[links.Link] = []
        self._server: asyncio.Server | None = None
        self._socket: Path | None = None

    @property
    def epoch(self) -> int:
        """Of this leadership; 0 before `start`."""
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
            self._delivery.epoch = self._gate.epoch = self.epoch
            loop = asyncio.get_running_loop()
            if isinstance(where, Path):
                _make_room(where)
                self._server = await loop.create_unix_server(self.new_link, str(where))
                _seal(where)
                self._socket = where
            else:
                self._server = await loop.create_unix_server(self.new_link, sock=where)
            self._crew.start("retention", self._retention.run())
        except BaseException:
            self._core.close()
            raise

    async def stop(self, *, leaving: str = "") -> None:
        """Hear nobody any more, let go of the store; what was accepted stays there.

        `leaving`: no dispatcher will follow soon; peers are told so, and need not wait for one.
        """
        if self._server is not None:
            self._server.close()
            self._server = None
        if leaving:
            for link in list(self._links.values()):
                link.refuse(messages.LEAVING, leaving, retry=False)
        self._disconnect(errors.HubStopped())
        await self._crew.stop()
        self._core.close()
        if self._socket is not None:
            _make_room(self._socket)

    async def submit(self, submission: model.Submission, *, force: bool = False) -> model.TaskView:
        """Accept a run; on disk when this returns. The same run again changes nothing.

        A higher run starts a finished task anew; while the run before goes on it is killed, and the
        view of *that* is returned: submit again when it is over. Raises `RunRefused` for a new run
        after a success without `force`, `TaskTooLarge`, `HubStopped`.
        """
        self._core.check()
        refusal = requests.too_large(submission.spec, submission.inputs)
        if refusal:
            raise errors.TaskTooLarge(refusal)
        task = submission.task
        known = self._core.machine.task(task)
        past = self._past(task) if known is None else None
        self._core.tell(inputs.Submit(submission, past, force))
        await self._core.settled()
        view = self.view(task)
        if view is None:
            raise errors.HubStopped("the journal lost a task that it had accepted")
        return view

    async def retry(self, task: ids.TaskId, *, force: bool = False) -> None:
        """Start a new run of a spawned task that is over; on disk when this returns.

        Raises `RunRefused` when it is unknown, not over, or has succeeded and `force` is False.
        """
        self._core.check()
        row = self._core.reader.task_row(task)
        refusal = rerunning.refusal(row, force=force)
        if row is None or refusal:
            raise errors.RunRefused(refusal)
        values = self._core.reader.values(row.namespace, row.needed)
        self._core.tell(rerunning.of_row(row, values))
        await self._core.settled()

    async def kill(self, task: ids.TaskId, *, reason: str, message: str = "") -> None:
        """Kill a task and its unfinished children; on disk when this returns.

        Unknown or over: nothing happens.
        """
        self._core.tell(inputs.Kill(task, reason, message))
        await self._core.settled()

    async def suspend(self, task: ids.TaskId, *, suspended: bool) -> model.TaskView | None:
        """Hold a task back, or let it go; on disk when this returns. Gives its view.

        An attempt that runs goes on, the next one waits. Unknown or over: nothing happens.
        """
        self._core.tell(inputs.Suspend(task, suspended))
        await self._core.settled()
        return self.view(task)

    async def release(self, tasks: Iterable[ids.TaskId]) -> None:
        """The objects of these tasks are gone; on disk when this returns.

        Those that are over are no longer among the changes since 0, and need not be kept for ever.
        """
        released = tuple(tasks)
        self._core.tell(inputs.Release(released))
        await self._core.settled()
        self._tasks.drop(released)

    async def forget_old(self) -> None:
        """Forget now whatever is old enough, as happens by itself now and then, and collect."""
        await self._retention.forget_all()
        await self._retention.collect()

    async def close_cluster(self, namespace: str, cluster: str) -> None:
        """Fail all unfinished tasks of a TaskCluster that is gone."""
        self._core.tell(inputs.CloseCluster(namespace, cluster))
        await self._core.settled()

    async def closing(self) -> None:
        """The node is about to end every worker: start nothing more, count no loss against a task.

        Until `stop`, ends are still heard and kept; there is no way back.
        """
        self._core.tell(inputs.Close())
        await self._core.settled()

    async def worker_gone(self, pod_uid: str, *, why: str = "") -> None:
        """The Pod is gone, and so is everything that ran in it. `why`: if that is known."""
        self._core.tell(inputs.WorkerGone(pod_uid, why))
        await self._core.settled()

    async def changes(self, since: int) -> tuple[int, list[model.TaskView]]:
        """Declared tasks that changed after `since`, once there are any, and the number to go on.

        `since` 0, or of another dispatcher's life: the newest run of every declared task.
        """
        self._core.check()
        await self._tasks.newer(since)
        last = self._tasks.last
        if not 0 < since <= last:
            return last, [self._view(row) for row in self._core.reader.declared()]
        found = (self.view(task) for task in self._tasks.since(since))
        return last, [view for view in found if view is not None]

    async def clusters_changed(self, since: int) -> tuple[int, set[tuple[str, str]]]:
        """Namespace and name of clusters whose view changed after `since`, once there are any."""
        self._core.check()
        await self._clusters.newer(since)
        last = self._clusters.last
        if not 0 < since <= last:
            return last, set(self._core.machine.memory.clusters)
        return last, set(self._clusters.since(since))

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        """The newest run of a task as it is on disk, None when there is no such task."""
        row = self._core.reader.task_row(task)
        return None if row is None else self._view(row)

    def _view(self, row: task_rows.TaskRow) -> model.TaskView:
        """What is on disk, and the facts of the moment if memory has the same state."""
        view = self._core.reader.view(row, seq=self._tasks.number(row.task))
        record = self._core.machine.task(row.task)
        if record is None or record.run != view.run or record.state is not view.state:
            return view
        reason, message = view.reason, view.message
        shown = waits.shown(record)
        if shown is not None:
            reason, message = shown
        return msgspec.structs.replace(
            view, reason=reason, message=message, progress=record.progress
        )

    def cluster(self, namespace: str, name: str) -> model.ClusterView | None:
        """A TaskCluster as the dispatcher sees it; None when nothing of it was ever seen."""
        cluster = self._core.machine.memory.clusters.get((namespace, name))
        if cluster is None:
            return None
        workers = tuple(
            model.WorkerView(
                name=worker.name,
                pod_uid=worker.pod_uid,
                node=worker.node,
                slots=worker.slots,
                busy=worker.busy,
                ready=worker.ready,
            )
            for worker in cluster.workers.values()
        )
        queued = len(cluster.queue)
        return model.ClusterView(namespace=namespace, cluster=name, workers=workers, queued=queued)

    def log_file(self, task: ids.TaskId, *, run: int, attempt: int) -> Path:
        """Where the output of an attempt is kept (older part: `.1` appended); need not exist."""
        folder = self.logs.logs_dir or Path(os.devnull)
        return attempt_logs.path(folder, attempts.AttemptRef(task, run, attempt))

    def tick(self) -> None:
        """Look at the clock now: for tests that move it by hand."""
        self._core.tick()

    @property
    def drivers(self) -> int:
        """How many are connected."""
        return sum(isinstance(link.hello, messages.DriverHello) for link in self._links.values())

    @property
    def at_work(self) -> bool:
        """Something runs, or will as soon as a connected worker has a slot for it."""
        mem = self._core.machine.memory
        return bool(mem.tasks) and any(worker.ready for worker in mem.workers.values())

    def new_link(self) -> links.Link:
        """The protocol of one more connection, from wherever it comes."""
        self._link_numbers += 1
        link = links.Link(self, self._link_numbers)
        self._links[link.number] = link
        return link

    def hello(self, link: links.Link, message: messages.AnyHello) -> None:
        """`links.Owner`: check who it is, then let the machine decide what it keeps."""
        self._gate.check(link, message)

    def received(self, link: links.Link, message: messages.FromPeer) -> None:
        """`links.Owner`: a message of a peer that was let in."""
        try:
            self._takers[type(link.hello)](link, message)
        except errors.IllegalTransition as error:
            log.exception("the machine refused a move", extra={"link": link.number})
            link.refuse("Internal", str(error).split("\n", 1)[0], retry=True)
        except errors.HubStopped:
            link.close()

    def batch_ended(self, link: links.Link) -> None:
        """`links.Owner`: confirm output, and read no more while too much waits for the disk."""
        self._agents.batch_ended(link)
        if self._core.crowded:
            link.hold_back("crowded")
            self._held_back.append(link)

    def closed(self, link: links.Link) -> None:
        """`links.Owner`: the peer may come back; until then it keeps what it has."""
        self._links.pop(link.number, None)
        self._agents.gone(link)
        try:
            self._core.tell(inputs.LinkClosed(link.number))
        except errors.HubStopped:
            return

    def prepare(self, batch: instructions.Batch) -> delivery.Outgoing:
        """`core.Carrier`: frames, made while the store is busy."""
        return self._delivery.prepare(batch)

    def carry_out(self, batch: instructions.Batch, prepared: delivery.Outgoing) -> None:
        """`core.Carrier`: a batch is kept; tell everybody whom it concerns."""
        self._delivery.release(prepared)
        changed = [task.id for task in batch.dirty if task.declared]
        self._tasks.publish(changed)
        self._tasks.publish(batch.published.difference(changed))
        if self._agents.asked:
            for task in batch.finals:
                self._agents.ended(task.id)
        self._crowds.update(cluster.key for cluster in batch.clusters)
        if self._crowds and self._crowd_timer is None:
            self._publish_clusters()
        if self._held_back:
            held_back, self._held_back = self._held_back, []
            for link in held_back:
                link.let_go("crowded")

    def failed(self, error: BaseException) -> None:
        """`core.Carrier`: the store cannot go on."""
        self._disconnect(errors.HubStopped(f"the dispatcher failed: {error}"))
        self._on_failure(error)

    def _believed(self, link: links.Link, message: messages.AnyHello) -> None:
        if link.number in self._links:
            self.greeted += isinstance(message, messages.DriverHello)
            self._joins[type(message)](link, message)

    def _past(self, task: ids.TaskId) -> inputs.Past | None:
        row = self._core.reader.task_row(task)
        return None if row is None else inputs.Past(row.run, api_task.State(row.state))

    def _publish_clusters(self) -> None:
        """Tell at once, then not again for a moment: a busy cluster changes with every task."""
        self._crowd_timer = None
        if self._crowds:
            self._clusters.publish(self._crowds)
            self._crowds = set()
            loop = asyncio.get_running_loop()
            self._crowd_timer = loop.call_later(CLUSTERS_EVERY_S, self._publish_clusters)

    def _disconnect(self, error: errors.HubStopped) -> None:
        self._agents.clear()
        if self._crowd_timer is not None:
            self._crowd_timer.cancel()
        self._tasks.fail(error)
        self._clusters.fail(error)
        for link in list(self._links.values()):
            link.close()


def _make_room(socket: Path) -> None:
    """A folder that only we can enter, and no socket of an earlier life in it."""
    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)


def _seal(socket: Path) -> None:
    socket.chmod(0o600)
