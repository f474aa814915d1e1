"""Sends the messages of a batch: encodes instructions as frames, with one write for each link.

Used by the hub. Frames are encoded while the batch is handed to the store, and written when it is
stored. A link that has closed meanwhile is skipped: its peer resumes. Acknowledgements wait a
moment for other frames to be sent with, so that a peer is woken once per call instead of twice.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kilnwork.api import attempts, http_task
from kilnwork.channel import errors, frames, messages
from kilnwork.dispatch.hub import attempt_logs, child_request_rules, links
from kilnwork.dispatch.machine import instructions, records

log = logging.getLogger(__name__)

MAX_KNOWN_TEMPLATES = 1024
"""Maximum number of templates that one slot holds; with more it forgets all of them, and gets again
those that it needs.
"""

CALLBACK_GRACE_S = 60.0
"""Seconds for which a callback URL stays valid after its attempt has ended."""

LINGER_S = 0.005
"""Seconds for which `Accepted` or `Acknowledged` waits for other frames of its link; it may
wait twice as long. Most calls for which a driver waits take less time, so the acknowledgement is
written together with their results. To send unacknowledged calls again would take far longer.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The settings of the dispatcher that messages to peers contain.

    `lease_s` and `renew_s` are for workers (Welcome). `blobs`: the directory in which each
    namespace has its directory of blobs, for drivers, slots and call processes (Attached).
    """

    lease_s: float
    renew_s: float
    blobs: Path | None
    callback_url: Callable[[attempts.AttemptRef, float], str] | None = None
    """Returns the URL for the result of an attempt, valid for a number of seconds."""


class Outgoing(msgspec.Struct):
    """The encoded messages of a batch, and the links to open and close.

    `frames`: by link, in order. `accepted`, `acknowledged`: acknowledgements by link, which may be
    sent later. `closing`: links to close. `opened`: links to open once their frames are written.
    """

    frames: dict[int, list[bytes]] = {}
    for_executors: list[instructions.ForExecutor] = []
    accepted: dict[int, int] = {}
    acknowledged: dict[int, int] = {}
    closing: list[instructions.CloseLink] = []
    opened: list[int] = []


class Delivery:
    """Writes frames to the links, which it finds by number."""

    def __init__(
        self, by_number: dict[int, links.Link], logs: attempt_logs.AttemptLogs, terms: Terms
    ) -> None:
        self.epoch = 0
        self.links = by_number
        """All connections by number; `peers` adds and removes them."""
        self.executors: dict[int, Callable[[instructions.ForExecutor], None]] = {}
        """The receiver of instructions in this process, by the number of its link."""
        self._logs = logs
        self._terms = terms
        self._accepted: dict[int, int] = {}
        self._acknowledged: dict[int, int] = {}
        self._lingered: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._encoders: dict[type, Callable[[Any], frames.Sent]] = {
            instructions.Welcome: self._welcome,
            instructions.AttachPeer: self._attached,
            instructions.RunAttempt: self._run,
            instructions.StopAttempt: lambda s: messages.Stop(s.ref, s.grace_s, s.reason),
            instructions.Respond: _response,
            instructions.OpenSlot: lambda s: messages.OpenSlot(s.slot),
            instructions.KillSlot: lambda s: messages.KillSlot(s.slot),
            instructions.TakeBack: lambda s: messages.TakeBack(s.count),
            instructions.StopCall: lambda s: messages.StopCall(s.ref, s.reason),
            instructions.FoundCall: lambda s: messages.FoundCall(s.number, s.task),
            instructions.Stream: lambda s: messages.Streamed(s.number, s.index, s.payload),
        }

    def prepare(self, batch: instructions.Batch) -> Outgoing:
        """Encode the frames of a batch; for each link the greeting is first, acknowledgements are
        last.
        """
        out = Outgoing(acknowledged=batch.acknowledged)
        acknowledged: dict[int, int] = {}
        rest: list[instructions.Send] = []
        for send in batch.sends:
            if isinstance(send, instructions.Welcome | instructions.AttachPeer):
                out.opened.append(send.link)
                self._queue_message(out, send)
            elif isinstance(send, instructions.Acknowledge):
                acknowledged[send.link] = max(send.serial, acknowledged.get(send.link, 0))
            elif isinstance(send, instructions.CloseLink):
                out.closing.append(send)
            else:
                rest.append(send)
        # Before the rest: a StopCall or TakeBack of the same batch may be about one of these.
        for number, runs in batch.runs.items():
            self._add_runs(out, number, runs)
        for send in rest:
            self._queue_message(out, send)
        for number, results in batch.results.items():
            self._queue_frames(out, number, frames.encode_batch(messages.Results, results))
        for number, call in batch.accepted.items():
            # The peer waits for this one, so it does not linger.
            if number in batch.awaited:
                self._queue_frames(out, number, (frames.encode(messages.Accepted(call)),))
            else:
                out.accepted[number] = call
        # Last: a peer that reads it has read everything that goes with it.
        for number, serial in acknowledged.items():
            self._queue_frames(out, number, (frames.encode(messages.Acknowledged(serial)),))
        return out

    def release(self, out: Outgoing) -> None:
        """Write all frames, with one write for each link.

        Acknowledgements for links without other frames are written later (see `LINGER_S`).
        """
        # Merged with older ones that still linger: each number confirms all below it.
        self._accepted.update(out.accepted)
        self._acknowledged.update(out.acknowledged)
        for number, written in out.frames.items():
            link = self.links.get(number)
            if link is not None:
                written.extend(self._confirmations(number))
                # Copied only if there are several: a single frame is the usual case.
                link.write(written[0] if len(written) == 1 else b"".join(written))
        for instruction in out.for_executors:
            self.executors[instruction.link](instruction)
        for closing in out.closing:
            link = self.links.get(closing.link)
            if link is not None:
                # After the frames, so that the peer reads these before the refusal.
                link.refuse(closing.reason, closing.message, retry=True)
        # Last, after the greeting was written: opening a link delivers messages that its peer sent
        # before.
        for number in out.opened:
            link = self.links.get(number)
            if link is not None:
                link.open()
        if self._timer is None and (self._accepted or self._acknowledged):
            self._lingered = self._unconfirmed()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LINGER_S, self._confirm_aged)

    def confirm(self) -> None:
        """Write all delayed acknowledgements, whatever their age."""
        if self._timer is not None:
            self._timer.cancel()
        self._lingered = self._unconfirmed()
        self._confirm_aged()

    def _confirm_aged(self) -> None:
        """Write the acknowledgements that were already delayed at the last call.

        Schedules another call while there are more.
        """
        # Confirmations newer than the timer wait for another round, so none goes too early.
        for number in self._lingered:
            written = self._confirmations(number)
            link = self.links.get(number)
            if link is not None and written:
                link.write(b"".join(written))
        self._timer = None
        self._lingered = self._unconfirmed()
        if self._lingered:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LINGER_S, self._confirm_aged)

    def _unconfirmed(self) -> set[int]:
        return {*self._accepted, *self._acknowledged}

    def _confirmations(self, number: int) -> list[bytes]:
        """Remove and return the delayed acknowledgements of a link."""
        confirmations: list[bytes] = []
        if (call := self._accepted.pop(number, None)) is not None:
            confirmations.append(frames.encode(messages.Accepted(call)))
        if (serial := self._acknowledged.pop(number, None)) is not None:
            confirmations.append(frames.encode(messages.Acknowledged(serial)))
        return confirmations

    def _queue_message(self, out: Outgoing, send: instructions.Send) -> None:
        if send.link in self.executors:
            if isinstance(send, instructions.ForExecutor):
                out.for_executors.append(send)
        # A lazy `map`: `_queue_frames` handles messages that cannot be encoded.
        elif send.link in self.links:
            self._queue_frames(
                out, send.link, map(frames.encode, (self._encoders[type(send)](send),))
            )

    def _queue_frames(self, out: Outgoing, number: int, made: Iterable[bytes]) -> None:
        """Queue frames for a link; if a frame cannot be encoded, close only that link."""
        if number not in self.links:
            return
        try:
            # Frames encoded before the failure stay, which does no harm: the link is closed.
            out.frames.setdefault(number, []).extend(made)
        except errors.FrameTooLarge as error:
            log.warning("a frame is too large", extra={"link": number, "why": str(error)})
            out.closing.append(instructions.CloseLink(number, "Internal", str(error)))

    def _add_runs(self, out: Outgoing, number: int, runs: list[tuple[records.Task, int]]) -> None:
        """Queue calls for a slot, after the templates that it does not know yet."""
        link = self.links.get(number)
        if link is None:
            return
        known = link.templates
        # Before the batch, not within it: its calls are sent after all of its templates.
        if len(known) >= MAX_KNOWN_TEMPLATES:
            self._queue_frames(out, number, map(frames.encode, (messages.Forget(tuple(known)),)))
            known.clear()
        items: list[tuple[object, ...]] = []
        for task, attempt in runs:
            template = task.template
            if template is None or task.attempt != attempt or not task.held:
                continue  # the peer for which it was is gone already
            if template.row not in known:
                known.add(template.row)
                message = messages.Template(template.row, template.spec)
                self._queue_frames(out, number, map(frames.encode, (message,)))
            # The fields of `calls.CallRun`, whose last ones are mostly omitted.
            ref = (task.id, task.run, attempt)
            if task.values or task.in_place:
                values = tuple(task.values.values()) if task.values else ()
                items.append((ref, template.row, task.arguments, task.name, values, task.in_place))
            else:
                items.append((ref, template.row, task.arguments, task.name))
        self._queue_frames(out, number, frames.encode_batch(messages.Calls, items))

    def _welcome(self, send: instructions.Welcome) -> messages.Welcome:
        verdicts = messages.Verdict
        # The worker sends the output of each attempt again, from the offset that is sent along.
        keep = [
            messages.Decision(ref, verdicts.KEEP, self._logs.stored_end(ref)) for ref in send.keep
        ]
        unknown = [messages.Decision(ref, verdicts.UNKNOWN, 0) for ref in send.unknown]
        terms = self._terms
        return messages.Welcome(self.epoch, terms.lease_s, terms.renew_s, (*keep, *unknown))

    def _run(self, send: instructions.RunAttempt) -> messages.Run:
        task, callback = send.task, ""
        sent, make = task.spec.sent, self._terms.callback_url
        awaited = None if sent is None else sent.callback_settings
        if sent is not None and awaited is not None and make is not None:
            # The URL contains its end, so it must outlast the longest time that the attempt may
            # take.
            lasts_s = sent.timeout.total_timeout + awaited.timeout_seconds
            if task.spec.function is not None:  # the attempt may wait before it is sent
                lasts_s += task.spec.timeouts.pending_seconds or http_task.MAX_S
            callback = make(send.ref, lasts_s + CALLBACK_GRACE_S)
        return messages.Run(
            send.ref,
            task.namespace,
            task.name,
            task.spec,
            task.input_document,
            callback,
            task.handover or b"",
        )

    def _attached(self, send: instructions.AttachPeer) -> messages.Attached:
        blobs = self._terms.blobs
        return messages.Attached(
            self.epoch,
            send.unknown,
            "" if blobs is None else str(blobs / send.namespace),
            send.namespace,
            send.cluster,
        )


def _response(send: instructions.Respond) -> messages.Response:
    if send.task is None:
        body = child_request_rules.error_response(send.message)
    else:
        body = child_request_rules.created_response(send.task, warning=send.message)
    return messages.Response(send.serial, send.status, body)
