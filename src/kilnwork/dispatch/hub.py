"""The hub: where controllers, server and workers meet the dispatcher.

Controllers submit, kill and follow changes; workers connect over a Unix socket. The hub does the
I/O and decides nothing: `machine` does, and `core` keeps machine and journal in step. Everything a
caller is told is on disk.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kilnwork.api import attempts, reasons
from kilnwork.channel import messages, ports
from kilnwork.dispatch import (
    answers,
    asking,
    attempt_logs,
    core,
    delivery,
    errors,
    feed,
    gate,
    inputs,
    instructions,
    journal,
    links,
    model,
    records,
    requests,
    retention,
    rows,
    waits,
)
from kilnwork.kit import clock as clocks
from kilnwork.kit import coroutines, ids

log = logging.getLogger(__name__)

CLUSTERS_EVERY_S = 0.1
"""Shortest time between two changes of clusters that readers are told of."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a hub may be told beyond what it needs.

    `lease_s`: how long a worker may be silent; `renew_s`: how often it renews (three tries fit one
    lease). `keep_s`: how long tasks that are over and have no object are kept, with their output
    (7 days: over a weekend and some). `on_failure` is called when the journal cannot go on (another
    dispatcher took over, the file is broken): the process should end, and the next one start from
    the journal.
    """

    lease_s: float = 10.0
    renew_s: float = 3.0
    keep_s: float = retention.KEEP_S
    on_failure: Callable[[BaseException], None] = lambda error: None


class Hub:
    """The dispatcher as others see it. Make it, `start` it in a running loop, `stop` it."""

    def __init__(
        self,
        store: journal.Journal,
        *,
        clock: clocks.Clock,
        verifier: ports.TokenVerifier,
        logs_dir: Path,
        entropy: ids.Entropy,
        options: Options = Options(),
    ) -> None:
        self.logs = attempt_logs.AttemptLogs(logs_dir)
        self._core = core.Core(
            store,
            clock=clock,
            entropy=entropy,
            lease_s=options.lease_s,
            release=self._release,
            on_failure=self._failed,
        )
        self._on_failure = options.on_failure
        self._links: dict[int, links.Link] = {}
        self._link_numbers = 0
        self._delivery = delivery.Delivery(
            self._links, self.logs, lease_s=options.lease_s, renew_s=options.renew_s
        )
        self._questions = asking.Questions(self._answer_question)
        self._crew = coroutines.Crew("hub")
        self._retention = retention.Retention(self._core, self.logs, keep_s=options.keep_s)
        self._gate = gate.Gate(verifier, self._crew)
        self._tasks: feed.Feed[ids.TaskId] = feed.Feed()
        self._clusters: feed.Feed[records.ClusterKey] = feed.Feed()
        self._crowds: set[records.ClusterKey] = set()
        self._crowd_timer: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._socket: Path | None = None
        self._log_confirmations: dict[attempts.AttemptRef, int] = {}

    @property
    def epoch(self) -> int:
        """Of this leadership; 0 before `start`."""
        return self._core.journal.epoch

    @property
    def trouble(self) -> str | None:
        """Why nothing is accepted at the moment (the disk refuses), None when all is well."""
        return self._core.journal.trouble

    async def start(self, socket_path: Path) -> None:
        """Take over the journal and listen; raises `JournalLocked` or `JournalUnreadable`."""
        try:
            self._core.start()
            self._delivery.epoch = self._gate.epoch = self.epoch
            _make_room(socket_path)
            loop = asyncio.get_running_loop()
            self._server = await loop.create_unix_server(self._new_link, str(socket_path))
            _seal(socket_path)
            self._socket = socket_path
            self._crew.start("retention", self._retention.run())
        except BaseException:
            self._core.close()
            raise

    async def stop(self) -> None:
        """Hear nobody any more, let go of the journal; what was accepted stays there."""
        if self._server is not None:
            self._server.close()
            self._server = None
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
        past = self._core.queries.past(task) if known is None else None
        self._core.tell(inputs.Submit(submission, past, force))
        await self._core.settled()
        view = self.view(task)
        if view is None:
            raise errors.HubStopped("the journal lost a task that it had accepted")
        return view

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
        """Forget now whatever is old enough, as happens by itself now and then."""
        await self._retention.forget_all()

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

    async def worker_gone(self, pod_uid: str) -> None:
        """The Pod is gone, and so is everything that ran in it."""
        self._core.tell(inputs.WorkerGone(pod_uid))
        await self._core.settled()

    async def changes(self, since: int) -> tuple[int, list[model.TaskView]]:
        """Declared tasks that changed after `since`, once there are any, and the number to go on.

        `since` 0, or of another dispatcher's life: the newest run of every declared task.
        """
        self._core.check()
        await self._tasks.newer(since)
        last = self._tasks.last
        if not 0 < since <= last:
            return last, [self._view(row) for row in self._core.queries.declared()]
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
        row = self._core.queries.task_row(task)
        return None if row is None else self._view(row)

    def _view(self, row: rows.TaskRow) -> model.TaskView:
        """What is on disk, and the facts of the moment if memory has the same state."""
        view = self._core.queries.view(row, seq=self._tasks.number(row.task))
        record = self._core.machine.task(row.task)
        if record is None or record.run != view.run or record.state is not view.state:
            return view
        reason, message = view.reason, view.message
        if record.place is not None:
            reason, message = waits.explain(record)
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
        return attempt_logs.path(self.logs.logs_dir, attempts.AttemptRef(task, run, attempt))

    def tick(self) -> None:
        """Look at the clock now: for tests that move it by hand."""
        self._core.tick()

    def hello(self, link: links.Link, message: messages.Hello) -> None:
        """`links.Owner`: check who it is, then let the machine decide what it keeps."""
        self._gate.check(link, message, self._believed)

    def received(self, link: links.Link, message: messages.FromWorker) -> None:
        """`links.Owner`: a message of a worker that has joined."""
        try:
            self._take_in(link, message)
        except errors.IllegalTransition as error:
            log.exception("the machine refused a move", extra={"link": link.number})
            link.refuse("Internal", str(error).split("\n", 1)[0], retry=True)
        except errors.HubStopped:
            link.close()

    def batch_ended(self, link: links.Link) -> None:
        """`links.Owner`: confirm output, and read no more while too much waits for the disk."""
        if self._log_confirmations:
            kept, self._log_confirmations = self._log_confirmations, {}
            link.write_all(messages.LogKept(ref, offset) for ref, offset in kept.items())
        if self._core.crowded:
            link.hold_back("crowded")

    def closed(self, link: links.Link) -> None:
        """`links.Owner`: the worker may come back; until then it keeps what it has."""
        self._links.pop(link.number, None)
        self._questions.drop_link(link.number)
        try:
            self._core.tell(inputs.LinkClosed(link.number))
        except errors.HubStopped:
            return

    def _new_link(self) -> links.Link:
        self._link_numbers += 1
        link = links.Link(self, self._link_numbers)
        self._links[link.number] = link
        return link

    def _believed(self, link: links.Link, message: messages.Hello) -> None:
        self._core.tell(
            inputs.Join(
                link=link.number,
                session=message.session,
                namespace=message.namespace,
                cluster=message.cluster,
                name=message.worker,
                pod_uid=message.pod_uid,
                node=message.node,
                slots=message.slots,
                running=tuple(running.ref for running in message.running),
            )
        )

    def _take_in(self, link: links.Link, message: messages.FromWorker) -> None:
        number = link.number
        match message:
            case messages.Renew():
                self._core.tell(inputs.Renew(number))
                if self._core.machine.knows(number):
                    link.write_all([messages.Renewed(message.number)])
            case messages.Started():
                started = inputs.Started(number, message.serial, message.ref, message.at)
                self._core.tell(started)
            case messages.Finished():
                outcome = _bounded(message.outcome)
                finished = inputs.Finished(number, message.serial, message.ref, outcome)
                self._core.tell(finished)
                self.logs.forget(message.ref)
            case messages.Log():
                if self._core.machine.held_by(number, message.ref) is not None:
                    kept = self.logs.append(message.ref, message.offset, message.data)
                    self._log_confirmations[message.ref] = kept
            case messages.Progress():
                progress = model.Progress(message.fraction, message.message)
                self._core.tell(inputs.Progress(number, message.ref, progress))
            case messages.Spawn():
                self._spawn(link, message)
            case messages.Ask():
                self._ask(link, message)
            case messages.Hello():
                link.refuse("Malformed", "a second Hello", retry=False)

    def _spawn(self, link: links.Link, message: messages.Spawn) -> None:
        refusal = requests.refusal(message)
        if refusal:
            link.answer(message.serial, 422, answers.refused(refusal))
            return
        parent, key = message.parent, requests.child_key(message)
        found = None
        if self._core.machine.may_have_child(parent, key):
            found = self._core.queries.child(parent.task, parent.run, key)
        new_id = ids.new_task_id()
        self._core.tell(requests.spawn(link.number, message, new_id=new_id, found=found))

    def _ask(self, link: links.Link, message: messages.Ask) -> None:
        asker = self._core.machine.held_by(link.number, message.parent)
        if asker is None:
            refusal = f"attempt {message.parent} is over"
            link.answer(message.serial, 409, answers.refused(refusal))
            return
        view = self.view(message.task)
        if view is None or view.namespace != asker.namespace:
            refusal = f"there is no task {ids.task_text(message.task)} in this namespace"
            link.answer(message.serial, 404, answers.refused(refusal))
            return
        question = asking.Question(link.number, message.serial, message.task)
        if view.state.final or message.wait_s <= 0:
            self._answer_question(question)
        else:
            self._questions.wait(question, message.wait_s)

    def _answer_question(self, question: asking.Question) -> None:
        link, view = self._links.get(question.link), self.view(question.task)
        if link is not None and view is not None:
            link.answer(question.serial, 200 if view.state.final else 202, answers.status(view))

    def _release(self, batch: instructions.Batch) -> None:
        """A batch is on disk: tell everybody whom it concerns."""
        changed = [task.id for task in batch.dirty if task.declared]
        self._tasks.publish(changed)
        self._tasks.publish(batch.published.difference(changed))
        self._delivery.carry_out(batch.sends)
        for task in batch.finals:
            self._questions.ended(task.id)
        self._crowds.update(cluster.key for cluster in batch.clusters)
        if self._crowds and self._crowd_timer is None:
            self._publish_clusters()
        for link in self._links.values():
            link.let_go("crowded")

    def _publish_clusters(self) -> None:
        """Tell at once, then not again for a moment: a busy cluster changes with every task."""
        self._crowd_timer = None
        if self._crowds:
            self._clusters.publish(self._crowds)
            self._crowds = set()
            loop = asyncio.get_running_loop()
            self._crowd_timer = loop.call_later(CLUSTERS_EVERY_S, self._publish_clusters)

    def _failed(self, error: BaseException) -> None:
        self._disconnect(errors.HubStopped(f"the journal failed: {error}"))
        self._on_failure(error)

    def _disconnect(self, error: errors.HubStopped) -> None:
        self._questions.clear()
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


MAX_MESSAGE_LENGTH = 4096
"""Characters of a worker's message that are kept."""


def _bounded(outcome: attempts.Outcome) -> attempts.Outcome:
    """What a worker may make the journal keep."""
    result = outcome.result
    if result is not None and len(result.data) > attempts.MAX_INLINE_BYTES:
        return attempts.Outcome(
            attempts.Ending.FAILED,
            reasons.Reason.RESULT_TOO_LARGE,
            f"{len(result.data)} bytes; at most {attempts.MAX_INLINE_BYTES} are kept",
            outcome.exit_code,
            proof=outcome.proof,
        )
    if len(outcome.message) > MAX_MESSAGE_LENGTH:
        message = outcome.message[:MAX_MESSAGE_LENGTH]
        return msgspec.structs.replace(outcome, message=message)
    return outcome
