"""Relays between workers and the executor that runs attempts as containers of their Pods.

Used by `agents` for requests of workers, and by the executor in `controllers` as `Hub.containers`.
The worker holds such an attempt like any other, with its slot, lease, files and report; only its
process is started elsewhere. So nothing is stored: after a restart of the manager, and on each new
link, workers ask again.
"""

from collections.abc import Callable

from kilnwork.api import attempts
from kilnwork.channel import messages
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import attempt_logs, commits, links
from kilnwork.dispatch.machine import inputs, instructions

Receive = Callable[[instructions.ForExecutor], None]


class Containers:
    """The link between workers and the executor that adds containers to their Pods.

    The executor gets its instructions through `receive`.
    """

    def __init__(
        self, core: commits.Core, by_number: dict[int, links.Link], logs: attempt_logs.AttemptLogs
    ) -> None:
        self._core = core
        self._by_number = by_number
        self._logs = logs
        self._links: dict[attempts.AttemptRef, int] = {}
        self._receive: Receive | None = None

    def join(self, receive: Receive) -> None:
        """Let the executor join: send instructions to `receive` from now on.

        Until then workers wait; on a new link they ask again.
        """
        self._receive = receive
        waiting, self._links = self._links, {}
        for number in set(waiting.values()):
            link = self._by_number.get(number)
            if link is not None:
                link.close()

    def start(self, link: links.Link, message: messages.StartContainer) -> None:
        """Request the container of an attempt from the executor, for a worker."""
        task = self._core.machine.held_by(link.number, message.ref)
        if task is None or task.worker is None:
            return
        # This also happens without an executor: `join` closes these links, so that their workers
        # ask again.
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
        """Have the executor end the container of an attempt, for a worker that needs proof of its
        end.
        """
        # Only for the link that asked last: the request of an older link is void.
        if self._receive is not None and self._links.get(message.ref) == link.number:
            self._receive(
                instructions.StopAttempt(link.number, message.ref, message.grace_s, message.reason)
            )

    def forget(self, ref: attempts.AttemptRef) -> None:
        """Forget the request for an attempt whose end its worker has reported."""
        self._links.pop(ref, None)

    def link_closed(self, link: links.Link) -> None:
        """Forget the requests of a link that was closed."""
        self._links = {ref: at for ref, at in self._links.items() if at != link.number}

    def kill(self, pod_uid: str, ref: attempts.AttemptRef, container: str) -> bool:
        """Have the worker of a Pod kill a container in that Pod.

        Returns False if the worker is not connected.
        """
        for worker in self._core.machine.memory.workers.values():
            link = self._by_number.get(worker.link)
            if worker.pod_uid == pod_uid and link is not None:
                link.write_all([messages.KillContainer(ref, container)])
                return True
        return False

    # These have the names and meanings of the methods of `in_process_links.ExecutorLink`.

    def observed(self, ref: attempts.AttemptRef, observed: model.Observed) -> None:
        """Publish the executor's observation of an attempt: the reason for its state."""
        number = self._links.get(ref)
        if number is not None:
            self._core.apply(inputs.AttemptObserved(number, ref, observed))

    def started(self, ref: attempts.AttemptRef, *, at: float, container: str = "") -> None:
        """Tell the worker that the attempt's container has started, at that wall time."""
        self._tell(messages.ContainerSeen(ref, container, at, None))

    async def finished(self, ref: attempts.AttemptRef, outcome: attempts.Outcome) -> None:
        """Tell the worker that the attempt's container has ended.

        The worker then reports the end of the attempt, with the result.
        """
        self._tell(messages.ContainerSeen(ref, "", outcome.started, outcome))

    def log(self, ref: attempts.AttemptRef, *, offset: int, data: bytes) -> None:
        """Store new output of an attempt, which begins at `offset`.

        The part that is stored already is not stored again.
        """
        self._logs.append(ref, offset, data)

    def discard_log(self, ref: attempts.AttemptRef) -> None:
        """Discard the stored output of an attempt, since it is copied again from its beginning."""
        self._logs.discard(ref)

    def _tell(self, seen: messages.ContainerSeen) -> None:
        link = self._by_number.get(self._links.get(seen.ref, 0))
        if link is not None:
            link.write_all([seen])
