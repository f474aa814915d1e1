"""Attempts that run as ephemeral containers of their worker's Pod: between worker and executor.

Used by `agents` (what workers ask for) and `peers` (the executor). The worker has the attempt as
any other, with its slot, lease, files and report; only what makes a process of it is elsewhere. So
nothing is kept: after a restart of the manager, or with a new link, workers ask again.
"""

from collections.abc import Callable

from kilnwork.api import attempts
from kilnwork.channel import messages
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import attempt_logs, commits, links
from kilnwork.dispatch.machine import inputs, instructions

Receive = Callable[[instructions.ForExecutor], None]


class Containers:
    """The end of the executor that adds containers to Pods, which gets its instructions by
    `receive`."""

    def __init__(
        self, core: commits.Core, by_number: dict[int, links.Link], logs: attempt_logs.AttemptLogs
    ) -> None:
        self._core = core
        self._by_number = by_number
        self._logs = logs
        self._links: dict[attempts.AttemptRef, int] = {}
        self._receive: Receive | None = None

    def join(self, receive: Receive) -> None:
        """From now on `receive` gets instructions; before, workers wait, and ask again with the
        next link."""
        self._receive = receive
        waiting, self._links = self._links, {}
        for number in set(waiting.values()):
            link = self._by_number.get(number)
            if link is not None:
                link.close()

    def start(self, link: links.Link, message: messages.StartContainer) -> None:
        """A worker asks for the container of an attempt."""
        task = self._core.machine.held_by(link.number, message.ref)
        if task is None or task.worker is None:
            return
        self._links[message.ref] = link.number
        if self._receive is not None:
            worker = task.worker
            self._receive(
                instructions.RunContainer(
                    link.number,
                    message.ref,
                    task,
                    worker.name,
                    worker.pod_uid,
                    message.environment,
                )
            )

    def stop(self, link: links.Link, message: messages.StopContainer) -> None:
        """A worker ends an attempt, and needs the proof."""
        if self._receive is not None and self._links.get(message.ref) == link.number:
            self._receive(
                instructions.StopAttempt(link.number, message.ref, message.grace_s, message.reason)
            )

    def forget(self, ref: attempts.AttemptRef) -> None:
        """Its worker has reported its end."""
        self._links.pop(ref, None)

    def gone(self, link: links.Link) -> None:
        """The connection is closed."""
        self._links = {ref: at for ref, at in self._links.items() if at != link.number}

    def kill(self, pod_uid: str, ref: attempts.AttemptRef, container: str) -> bool:
        """Have the worker of a Pod end a container in it; False when it is not connected."""
        for worker in self._core.machine.memory.workers.values():
            link = self._by_number.get(worker.link)
            if worker.pod_uid == pod_uid and link is not None:
                link.write_all([messages.KillContainer(ref, container)])
                return True
        return False

    # as `executor_links.ExecutorLink`

    def observed(self, ref: attempts.AttemptRef, observed: model.Observed) -> None:
        """Show why an attempt is where it is."""
        number = self._links.get(ref)
        if number is not None:
            self._core.apply(inputs.Observed(number, ref, observed))

    def started(self, ref: attempts.AttemptRef, *, at: float, container: str = "") -> None:
        """Its container has begun to run, at that wall time."""
        self._tell(messages.ContainerSeen(ref, container, at, None))

    async def finished(self, ref: attempts.AttemptRef, outcome: attempts.Outcome) -> None:
        """Its container is over; its worker reports that, with the result."""
        self._tell(messages.ContainerSeen(ref, "", outcome.started, outcome))

    def log(self, ref: attempts.AttemptRef, *, offset: int, data: bytes) -> None:
        """Keep output of an attempt that begins at `offset`; what is kept already is skipped."""
        self._logs.append(ref, offset, data)

    def discard_log(self, ref: attempts.AttemptRef) -> None:
        """Its output is copied again from the beginning: discard what is kept of it."""
        self._logs.discard(ref)

    def _tell(self, seen: messages.ContainerSeen) -> None:
        link = self._by_number.get(self._links.get(seen.ref, 0))
        if link is not None:
            link.write_all([seen])
