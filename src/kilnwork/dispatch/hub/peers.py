"""The connections of all peers: each is authenticated, and joins as its Hello says.

Used by the hub. Each connection is a `links.Link`. An authenticated link hands its messages
directly to `submitters` (from drivers, slots and call processes) or to `agents` (from workers,
executor processes and sidecars).
"""

from collections.abc import Callable
from typing import Any

from kilnwork.channel import messages, ports
from kilnwork.dispatch import errors
from kilnwork.dispatch.hub import (
    agents,
    attempt_logs,
    authentication,
    callback_results,
    commits,
    container_requests,
    delivery,
    in_process_links,
    links,
    retry_requests,
    submitters,
)
from kilnwork.dispatch.hub import environment_variables as values
from kilnwork.dispatch.machine import inputs, instructions
from kilnwork.kit import coroutines, ids

Join = Callable[[links.Link, Any], links.Receive]


class Peers:
    """All peers of the dispatcher and their links (implements `links.LinkOwner`).

    `greeted`: how many drivers have joined since the start. `view`: the function `hub.Hub.view`.
    """

    def __init__(  # noqa: PLR0913  made once, by the hub
        self,
        core: commits.Core,
        frames: delivery.Delivery,
        *,
        logs: attempt_logs.AttemptLogs,
        verifier: ports.TokenVerifier,
        background: coroutines.BackgroundWork,
        view: agents.View,
        variables: values.VariableSource | None,
        prune: submitters.Pruner | None,
    ) -> None:
        self.greeted = 0
        self._core = core
        self._delivery = frames
        self._logs = logs
        self._links = frames.links
        self._numbers = 0
        self._authenticator = authentication.Authenticator(
            verifier, background, self._authenticated
        )
        self.containers = container_requests.Containers(core, frames.links, logs)
        self.concluded = callback_results.Concluded()
        handle_variables = values.Variables(core, variables, background).handle
        self._agents = agents.Agents(
            core, self._authenticator, logs, view, self.containers, self.concluded, handle_variables
        )
        self.retries = retry_requests.RetryRequests(core)
        self._submitters = submitters.Submitters(
            core,
            logs,
            retries=self.retries,
            background=background,
            variables=handle_variables,
            prune=prune,
        )
        self._joins: dict[type, Join] = {
            messages.Hello: self._agents.join,
            messages.DriverHello: self._submitters.attach,
            messages.SlotHello: self._submitters.join,
            messages.AttemptHello: self._join_attempt,
        }
        self._paused: list[links.Link] = []
        self._disconnected = False

    @property
    def drivers(self) -> int:
        """Return how many drivers are connected."""
        return sum(isinstance(link.hello, messages.DriverHello) for link in self._links.values())

    def start(self, epoch: int) -> None:
        """Begin to accept peers; the store is open, in this epoch."""
        self._delivery.epoch = self._authenticator.epoch = epoch

    def new_link(self) -> links.Link:
        """Return the asyncio protocol for a new connection, which any listener may have
        accepted.
        """
        # A number is never used twice: messages queued for a closed link reach no other peer.
        self._numbers += 1
        link = links.Link(self, self._numbers)
        self._links[link.number] = link
        # The connection was accepted before the listener was closed.
        if self._disconnected:
            link.close()
        return link

    async def join_executor(
        self, executor: str, *, capacity: int, receive: in_process_links.Receive
    ) -> in_process_links.ExecutorLink:
        """Let an executor in this process take up to `capacity` attempts at a time.

        When this returns, `receive` was given all attempts that the executor had before.
        """
        self._numbers += 1
        link = in_process_links.ExecutorLink(self._numbers, self._core, self._logs)
        # Before the input: its batch has the first instructions for this link.
        self._delivery.executors[link.number] = receive
        self._core.apply(inputs.JoinExecutor(link.number, executor, capacity))
        await self._core.flush()
        return link

    def hello(self, link: links.Link, message: messages.AnyHello) -> None:
        """Authenticate the peer; the machine then decides which attempts the peer keeps."""
        self._authenticator.check(link, message)

    def batch_ended(self, link: links.Link) -> None:
        """Acknowledge output, and pause reading while too much waits to be written to the store."""
        self._agents.batch_ended(link)
        # After the whole read: what was read is in memory anyway.
        if self._core.overloaded:
            link.pause_reading("overloaded")
            self._paused.append(link)

    def closed(self, link: links.Link) -> None:
        """Handle a closed connection. Its peer may come back; until then the peer's attempts
        stay.
        """
        # Before the input, so that no batch of it is encoded for this link.
        self._links.pop(link.number, None)
        self._agents.link_closed(link)
        try:
            self._core.apply(inputs.LinkClosed(link.number))
        except errors.HubStopped:
            return

    def committed(self, batch: instructions.Batch) -> None:
        """Respond to requests about tasks that ended in a stored batch, and resume reading."""
        if self._agents.has_waiters:
            for task in batch.finals:
                self._agents.ended(task.id)
        # Any commit makes room; a link that is still too fast is paused again after its next read.
        if self._paused:
            paused, self._paused = self._paused, []
            for link in paused:
                link.resume_reading("overloaded")

    def dismiss(self, why: str) -> None:
        """Tell all peers that no dispatcher will follow soon, so that they do not wait for one."""
        # Stored calls are confirmed, so that a peer does not report them as lost.
        self._delivery.confirm()
        for link in list(self._links.values()):
            link.refuse(messages.LEAVING, why, retry=False)

    def disconnect(self) -> None:
        """Close all links, also those that connect later, and respond to no more requests."""
        self._disconnected = True
        # Their timers would respond on links that are closed.
        self._agents.clear()
        self._delivery.confirm()
        for link in list(self._links.values()):
            link.close()

    def _join_attempt(self, link: links.Link, hello: messages.AttemptHello) -> links.Receive:
        """Let the sidecar or call process of an attempt join, if the task is in the namespace of
        its Hello.
        """
        # The token was checked for the namespace of the Hello, which the sender chose.
        task = self._core.machine.task(hello.ref.task)
        if task is not None and task.namespace != hello.namespace:
            message = f"task {ids.task_text(task.id)} is not of namespace {hello.namespace}"
            link.refuse("Credential", message, retry=False)
            return lambda *_: None
        if hello.runs_call:
            return self._submitters.join_call(link, hello)
        return self._agents.join_attempt(link, hello)

    def _authenticated(self, link: links.Link, message: messages.AnyHello) -> None:
        # The peer may have disconnected while its token was checked.
        if link.number in self._links:
            self.greeted += isinstance(message, messages.DriverHello)
            # Set before the machine's batch opens the link, which delivers at once.
            link.receive = self._joins[type(message)](link, message)
