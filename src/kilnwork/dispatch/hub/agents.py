"""Turns messages of workers' agents, executor processes and sidecars into inputs of the machine.

Used by `peers`, and by `in_process_links` for `bounded`. An agent holds the lease of its worker,
runs commands, owns the slot processes, and passes on requests of commands from their sockets: for
children (`Spawn`) and for states of tasks (`GetTask`). The sidecar of an attempt in a Pod makes the
same requests, for that attempt alone.
"""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from kilnwork.api import attempts, reasons
from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import (
    attempt_logs,
    authentication,
    callback_results,
    child_request_rules,
    commits,
    container_requests,
    links,
)
from kilnwork.dispatch.machine import inputs
from kilnwork.kit import ids

MAX_MESSAGE_LENGTH = 4096
"""Maximum characters of a peer's message that are kept."""

MAX_ROW_OUTPUT = 8 * 1024
"""Maximum bytes of an executor's exchange that are kept in the journal; a longer exchange goes to a
file, like the output of commands.
"""

MAX_WAIT_S = 3600.0
"""Maximum seconds that one request waits; a command that waits longer sends another request."""

View = Callable[[ids.TaskId], model.TaskView | None]


@dataclass(slots=True, eq=False)
class _StatusRequest:
    """A request of a command for the state of `task`, open until the task ends or `timer` fires."""

    link: int
    serial: int
    task: ids.TaskId
    timer: asyncio.TimerHandle | None = None


class _StatusRequests:
    """The open requests for states of tasks, by task. `respond(request)` is called once for each
    request that is not dropped.

    After a restart of either end of the link, the worker sends its requests again.
    """

    def __init__(self, respond: Callable[[_StatusRequest], None]) -> None:
        self._respond = respond
        self._open: dict[ids.TaskId, set[_StatusRequest]] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def wait(self, request: _StatusRequest, wait_s: float) -> None:
        """Respond to the request when its task ends, or after `wait_s`."""
        loop = asyncio.get_running_loop()
        delay = min(max(wait_s, 0.0), MAX_WAIT_S)
        request.timer = loop.call_later(delay, self._settle, request)
        self._open.setdefault(request.task, set()).add(request)

    def ended(self, task: ids.TaskId) -> None:
        """Respond to the requests about a task whose final state is on disk."""
        for request in list(self._open.get(task, ())):
            self._settle(request)

    def drop_link(self, link: int) -> None:
        """Drop the requests that came over the closed link with this number."""
        for request in [
            q for open_requests in self._open.values() for q in open_requests if q.link == link
        ]:
            self._forget(request)

    def clear(self) -> None:
        """Drop all open requests; no response is sent."""
        for request in self._all():
            self._forget(request)

    def _all(self) -> list[_StatusRequest]:
        return [one for of_task in self._open.values() for one in of_task]

    def _settle(self, request: _StatusRequest) -> None:
        # First: a response must not find the request open a second time.
        self._forget(request)
        self._respond(request)

    def _forget(self, request: _StatusRequest) -> None:
        if request.timer is not None:
            request.timer.cancel()
        open_requests = self._open.get(request.task)
        if open_requests is not None:
            open_requests.discard(request)
            if not open_requests:
                del self._open[request.task]


class Agents:
    """Handles messages of agents that have joined. `view`: the function `hub.Hub.view`."""

    def __init__(  # noqa: PLR0913  made once, by `peers`
        self,
        core: commits.Core,
        authenticator: authentication.Authenticator,
        logs: attempt_logs.AttemptLogs,
        view: View,
        in_pods: container_requests.Containers,
        concluded: callback_results.Concluded,
        variables: Callable[[links.Link, messages.GetVariables], None],
    ) -> None:
        self._core = core
        self._authenticator = authenticator
        self._logs = logs
        self._view = view
        self._containers = in_pods
        self._concluded = concluded
        self._status_requests = _StatusRequests(self._respond)
        self._confirmations: dict[attempts.AttemptRef, int] = {}
        self._requesting: dict[int, links.Link] = {}
        self._handlers: dict[type, Callable[[links.Link, Any], None]] = {
            messages.Renew: self._renew,
            messages.Started: self._started,
            messages.Finished: self._finished,
            messages.Log: self._log,
            messages.Progress: self._progress,
            messages.Observed: self._observed,
            messages.Spawn: self._spawn,
            messages.GetTask: self._request_status,
            messages.GetVariables: variables,
            messages.SlotOpening: self._slot_opening,
            messages.SlotGone: self._slot_gone,
            messages.StartContainer: in_pods.start,
            messages.StopContainer: in_pods.stop,
            messages.Hello: _second_hello,
        }

    def join(self, link: links.Link, hello: messages.Hello) -> links.Receive:
        """Let an authenticated agent join; return the function that receives its messages.

        The machine decides which attempts the agent keeps.
        """
        self._core.apply(
            inputs.Join(
                link=link.number,
                session=hello.session,
                namespace=hello.namespace,
                cluster=hello.cluster,
                name=hello.worker,
                pod_uid=hello.pod_uid,
                node=hello.node,
                slots=hello.slots,
                running=tuple(running.ref for running in hello.running),
                processes=tuple(opening.slot for opening in hello.processes),
                labels=dict(hello.labels),
            )
        )
        # After the input, through which the machine knows these slots.
        for opening in hello.processes:
            self._announce(link, opening)
        return self.received

    def join_attempt(self, link: links.Link, hello: messages.AttemptHello) -> links.Receive:
        """Let the authenticated sidecar of an attempt join; return the function that receives its
        messages.
        """
        self._core.apply(inputs.JoinAttempt(link.number, hello.ref))
        return functools.partial(self._from_attempt, hello.ref)

    def received(self, link: links.Link, message: messages.FromWorker) -> None:
        """Handle a message of an agent that has joined."""
        self._handlers[type(message)](link, message)

    def batch_ended(self, link: links.Link) -> None:
        """Acknowledge the output that the last batch of frames from this link contained."""
        if self._confirmations:
            ends, self._confirmations = self._confirmations, {}
            link.write_all(messages.LogKept(ref, offset) for ref, offset in ends.items())

    def ended(self, task: ids.TaskId) -> None:
        """Respond to the open requests about a task whose final state is stored."""
        self._status_requests.ended(task)

    @property
    def has_waiters(self) -> bool:
        """Return whether any command waits for the end of a task."""
        return bool(self._status_requests)

    def link_closed(self, link: links.Link) -> None:
        """Drop the open requests of a link whose connection was closed."""
        self._requesting.pop(link.number, None)
        self._containers.link_closed(link)
        self._status_requests.drop_link(link.number)

    def clear(self) -> None:
        """Drop all open requests of commands; no response is sent."""
        self._status_requests.clear()

    def _from_attempt(
        self, ref: attempts.AttemptRef, link: links.Link, message: messages.FromAttempt
    ) -> None:
        """Handle a message of the sidecar of `ref`, which may speak for no other attempt.

        The sidecar has no lease that could end; its renewals only tell it that the dispatcher is
        there.
        """
        if isinstance(message, messages.Renew):
            link.write_all([messages.Renewed(message.number)])
            return
        if isinstance(message, messages.AttemptHello):
            link.refuse("Malformed", "a second Hello", retry=False)
            return
        if isinstance(message, messages.Progress):
            about = message.ref
        elif isinstance(message, messages.Spawn | messages.GetTask):
            about = message.parent
        else:
            kind = type(message).__name__
            link.refuse("Malformed", f"{kind} is not for the sidecar of an attempt", retry=False)
            return
        if about != ref:
            link.refuse("Malformed", f"this is the sidecar of {ref}, not of {about}", retry=False)
            return
        self._handlers[type(message)](link, message)

    def _renew(self, link: links.Link, message: messages.Renew) -> None:
        # The response does not wait for a commit: a slow disk must not cost a worker its lease.
        self._core.apply(inputs.Renew(link.number))
        # A fenced worker gets no response, so that its lease ends on its side as well.
        if self._core.machine.holds_lease(link.number):
            link.write_all([messages.Renewed(message.number)])

    def _started(self, link: links.Link, message: messages.Started) -> None:
        self._core.apply(inputs.Started(link.number, message.serial, message.ref, message.at))

    def _finished(self, link: links.Link, message: messages.Finished) -> None:
        outcome = bounded(message.outcome)
        # Before the input, after which no link holds the attempt.
        if message.callback and self._core.machine.held_by(link.number, message.ref):
            self._concluded.add(message.ref, message.callback)
        self._core.apply(inputs.Finished(link.number, message.serial, message.ref, outcome))
        # Output comes over the same link, so all of it was read before this report.
        self._logs.forget(message.ref)
        self._containers.forget(message.ref)

    def _log(self, link: links.Link, message: messages.Log) -> None:
        """Store output of a command, or of a slot or executor.

        The last output of a slot and the exchanges of an executor are stored but not acknowledged.
        """
        held = self._core.machine.held_by(link.number, message.ref)
        if held is None:
            return
        outside = held.spec.executor in api_task.OUTSIDE
        # Only the first piece: if there is more, the exchange is long, and goes to a file.
        if outside and not message.offset and len(message.data) <= MAX_ROW_OUTPUT:
            self._core.machine.memory.batch.outputs.append((held.row, held.attempt, message.data))
            self._core.schedule()
            return
        stored_end = self._logs.append(message.ref, message.offset, message.data)
        if held.slot is None and not outside:
            # `batch_ended` sends it in the same turn of the loop: all of these are of this link.
            self._confirmations[message.ref] = stored_end

    def _progress(self, link: links.Link, message: messages.Progress) -> None:
        progress = model.Progress(message.fraction, message.message[:MAX_MESSAGE_LENGTH])
        self._core.apply(inputs.AttemptProgress(link.number, message.ref, progress))

    def _observed(self, link: links.Link, message: messages.Observed) -> None:
        seen = model.Observed(message.reason, message.message[:MAX_MESSAGE_LENGTH])
        handover = message.handover[:MAX_ROW_OUTPUT]
        self._core.apply(
            inputs.AttemptObserved(link.number, message.ref, seen, message.parked, handover)
        )

    def _slot_opening(self, link: links.Link, message: messages.SlotOpening) -> None:
        self._core.apply(inputs.SlotOpening(link.number, message.slot))
        self._announce(link, message)

    def _announce(self, link: links.Link, opening: messages.SlotOpening) -> None:
        """Let a slot connect with the announced secret, if the machine knows the slot as this
        agent's.
        """
        slots = self._core.machine.memory.slots
        slot = slots.get(opening.slot)
        # An agent may announce slots of its own only, or it could let in a process of its choice.
        if slot is not None and slot.worker.link == link.number:
            self._authenticator.announce_slot(opening.slot, opening.digest, living=slots)

    def _slot_gone(self, link: links.Link, message: messages.SlotGone) -> None:
        self._core.apply(
            inputs.SlotGone(
                link.number,
                message.serial,
                message.slot,
                message.running,
                message.code,
                message.asked,
                message.message[:MAX_MESSAGE_LENGTH],
                message.proof,
                message.reason,
            )
        )
        # A slot whose link is still being read stays known.
        if message.slot not in self._core.machine.memory.slots:
            self._authenticator.forget_slot(message.slot)

    def _spawn(self, link: links.Link, message: messages.Spawn) -> None:
        refusal = child_request_rules.refusal(message, executors=self._core.limits.executors)
        if refusal:
            link.respond(message.serial, 422, child_request_rules.error_response(refusal))
            return
        parent, key = message.parent, child_request_rules.child_key(message)
        task = self._core.machine.task(parent.task)
        namespace = "" if task is None else task.namespace
        use = child_request_rules.with_image(message, namespace, self._core.limits.images)
        if use.refusal:
            link.respond(
                message.serial, use.status, child_request_rules.error_response(use.refusal)
            )
            return
        found = None
        if self._core.machine.may_have_child(parent, key):
            # There is no await between reading and applying: a task leaves memory only when its end
            # is on disk, so memory or journal knows it.
            found = self._core.reader.child(parent.task, parent.run, key)
        new_id = ids.new_task_id()
        self._core.apply(
            child_request_rules.spawn(link.number, message, use=use, new_id=new_id, found=found)
        )

    def _request_status(self, link: links.Link, message: messages.GetTask) -> None:
        parent_task = self._core.machine.held_by(link.number, message.parent)
        if parent_task is None:
            refusal = f"attempt {message.parent} is over"
            link.respond(message.serial, 409, child_request_rules.error_response(refusal))
            return
        view = self._view(message.task)
        if view is None or view.namespace != parent_task.namespace:
            refusal = f"there is no task {ids.task_text(message.task)} in this namespace"
            link.respond(message.serial, 404, child_request_rules.error_response(refusal))
            return
        # There is no await between reading the view and this line: no end is missed.
        self._requesting[link.number] = link
        request = _StatusRequest(link.number, message.serial, message.task)
        if view.state.final or message.wait_s <= 0:
            self._respond(request)
        else:
            self._status_requests.wait(request, message.wait_s)

    def _respond(self, request: _StatusRequest) -> None:
        link, view = self._requesting.get(request.link), self._view(request.task)
        if link is not None and view is not None:
            link.respond(
                request.serial,
                200 if view.state.final else 202,
                child_request_rules.status_response(view),
            )


def _second_hello(link: links.Link, _: messages.Hello) -> None:
    link.refuse("Malformed", "a second Hello", retry=False)


def bounded(outcome: attempts.Outcome) -> attempts.Outcome:
    """Return an outcome that may be stored: with its message truncated.

    If the result is too large, the attempt has failed with RESULT_TOO_LARGE.
    """
    result = outcome.result
    if result is not None and len(result.data) > attempts.MAX_INLINE_BYTES:
        return msgspec.structs.replace(
            outcome,
            ending=attempts.Ending.FAILED,
            reason=reasons.Reason.RESULT_TOO_LARGE,
            message=f"{len(result.data)} bytes; at most {attempts.MAX_INLINE_BYTES} are kept",
            result=None,
        )
    if len(outcome.message) > MAX_MESSAGE_LENGTH:
        message = outcome.message[:MAX_MESSAGE_LENGTH]
        return msgspec.structs.replace(outcome, message=message)
    return outcome
