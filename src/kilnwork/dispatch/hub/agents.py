"""What agents of workers say, put in the machine's terms.

Used by the hub. An agent holds the lease of its worker, runs commands, owns the slot processes, and
passes on what commands ask on their sockets: children (`Spawn`) and how tasks fare (`Ask`).
"""

from collections.abc import Callable
from typing import Any

import msgspec

from kilnwork.api import attempts, reasons
from kilnwork.channel import messages
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import (
    attempt_logs,
    authentication,
    child_requests,
    commits,
    links,
    responses,
    task_waiters,
)
from kilnwork.dispatch.machine import inputs
from kilnwork.kit import ids

MAX_MESSAGE_LENGTH = 4096
"""Characters of a peer's message that are kept."""

View = Callable[[ids.TaskId], model.TaskView | None]


class Agents:
    """Takes in messages of agents that have joined. `view`: as `hub.Hub.view`."""

    def __init__(
        self,
        engine: commits.Core,
        door: authentication.Gate,
        logs: attempt_logs.AttemptLogs,
        view: View,
    ) -> None:
        self._core = engine
        self._gate = door
        self._logs = logs
        self._view = view
        self._questions = task_waiters.Questions(self._answer)
        self._confirmations: dict[attempts.AttemptRef, int] = {}
        self._asking: dict[int, links.Link] = {}
        self._takers: dict[type, Callable[[links.Link, Any], None]] = {
            messages.Renew: self._renew,
            messages.Started: self._started,
            messages.Finished: self._finished,
            messages.Log: self._log,
            messages.Progress: self._progress,
            messages.Spawn: self._spawn,
            messages.Ask: self._ask,
            messages.SlotOpening: self._slot_opening,
            messages.SlotGone: self._slot_gone,
            messages.Hello: _second_hello,
        }

    def join(self, link: links.Link, hello: messages.Hello) -> links.Receive:
        """An authenticated agent joins; the machine decides what it keeps. Its messages go to what
        is returned."""
        self._core.tell(
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
            )
        )
        for opening in hello.processes:
            self._announce(link, opening)
        return self.received

    def received(self, link: links.Link, message: messages.FromWorker) -> None:
        """A message of an agent that has joined."""
        self._takers[type(message)](link, message)

    def batch_ended(self, link: links.Link) -> None:
        """Confirm output."""
        if self._confirmations:
            kept, self._confirmations = self._confirmations, {}
            link.write_all(messages.LogKept(ref, offset) for ref, offset in kept.items())

    def ended(self, task: ids.TaskId) -> None:
        """A task is final, and that is kept."""
        self._questions.ended(task)

    @property
    def asked(self) -> bool:
        """Somebody waits for the end of some task."""
        return bool(self._questions)

    def gone(self, link: links.Link) -> None:
        """Its connection is gone."""
        self._asking.pop(link.number, None)
        self._questions.drop_link(link.number)

    def clear(self) -> None:
        """Nobody will be answered any more."""
        self._questions.clear()

    def _renew(self, link: links.Link, message: messages.Renew) -> None:
        self._core.tell(inputs.Renew(link.number))
        if self._core.machine.knows(link.number):
            link.write_all([messages.Renewed(message.number)])

    def _started(self, link: links.Link, message: messages.Started) -> None:
        self._core.tell(inputs.Started(link.number, message.serial, message.ref, message.at))

    def _finished(self, link: links.Link, message: messages.Finished) -> None:
        outcome = _bounded(message.outcome)
        self._core.tell(inputs.Finished(link.number, message.serial, message.ref, outcome))
        self._logs.forget(message.ref)

    def _log(self, link: links.Link, message: messages.Log) -> None:
        """Output of a command; or the last words of a slot, which nobody waits to be confirmed."""
        held = self._core.machine.held_by(link.number, message.ref)
        if held is not None:
            kept = self._logs.append(message.ref, message.offset, message.data)
            if held.slot is None:
                self._confirmations[message.ref] = kept

    def _progress(self, link: links.Link, message: messages.Progress) -> None:
        progress = model.Progress(message.fraction, message.message)
        self._core.tell(inputs.Progress(link.number, message.ref, progress))

    def _slot_opening(self, link: links.Link, message: messages.SlotOpening) -> None:
        self._core.tell(inputs.SlotOpening(link.number, message.slot))
        self._announce(link, message)

    def _announce(self, link: links.Link, opening: messages.SlotOpening) -> None:
        """Only a slot that the machine knows as this agent's may connect with that secret."""
        slots = self._core.machine.memory.slots
        slot = slots.get(opening.slot)
        if slot is not None and slot.worker.link == link.number:
            self._gate.announce(opening.slot, opening.digest, living=slots)

    def _slot_gone(self, link: links.Link, message: messages.SlotGone) -> None:
        self._core.tell(
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
        if message.slot not in self._core.machine.memory.slots:
            self._gate.forget_slot(message.slot)

    def _spawn(self, link: links.Link, message: messages.Spawn) -> None:
        refusal = child_requests.refusal(message)
        if refusal:
            link.answer(message.serial, 422, responses.refused(refusal))
            return
        parent, key = message.parent, child_requests.child_key(message)
        found = None
        if self._core.machine.may_have_child(parent, key):
            found = self._core.reader.child(parent.task, parent.run, key)
        new_id = ids.new_task_id()
        self._core.tell(child_requests.spawn(link.number, message, new_id=new_id, found=found))

    def _ask(self, link: links.Link, message: messages.Ask) -> None:
        asker = self._core.machine.held_by(link.number, message.parent)
        if asker is None:
            refusal = f"attempt {message.parent} is over"
            link.answer(message.serial, 409, responses.refused(refusal))
            return
        view = self._view(message.task)
        if view is None or view.namespace != asker.namespace:
            refusal = f"there is no task {ids.task_text(message.task)} in this namespace"
            link.answer(message.serial, 404, responses.refused(refusal))
            return
        self._asking[link.number] = link
        question = task_waiters.Question(link.number, message.serial, message.task)
        if view.state.final or message.wait_s <= 0:
            self._answer(question)
        else:
            self._questions.wait(question, message.wait_s)

    def _answer(self, question: task_waiters.Question) -> None:
        link, view = self._asking.get(question.link), self._view(question.task)
        if link is not None and view is not None:
            link.answer(question.serial, 200 if view.state.final else 202, responses.status(view))


def _second_hello(link: links.Link, _: messages.Hello) -> None:
    link.refuse("Malformed", "a second Hello", retry=False)


def _bounded(outcome: attempts.Outcome) -> attempts.Outcome:
    """What a worker may make the store keep."""
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
