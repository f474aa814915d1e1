"""Carrying out what a batch says: instructions become frames, one write for each link.

Used by the hub. Frames are made as the batch is handed to the store, and written when it is kept.
A link that has gone meanwhile is passed over: its peer resumes.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kilnwork.channel import errors, frames, messages
from kilnwork.dispatch import answers, attempt_logs, instructions, links, records

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What newcomers are told. `blobs`: root of the folders of blobs by namespace."""

    lease_s: float
    renew_s: float
    blobs: Path | None


@dataclass(slots=True)
class Outgoing:
    """What a batch sends: frames by link in order; links to close, and those that stand now."""

    frames: dict[int, list[bytes]] = field(default_factory=dict)
    closing: list[instructions.CloseLink] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)


class Delivery:
    """Knows the links, and what a Welcome must say."""

    def __init__(
        self, by_number: Mapping[int, links.Link], logs: attempt_logs.AttemptLogs, terms: Terms
    ) -> None:
        self.epoch = 0
        self._links = by_number
        self._logs = logs
        self._terms = terms
        self._words: dict[type, Callable[[Any], frames.Sent]] = {
            instructions.Welcome: self._welcome,
            instructions.AttachPeer: self._attached,
            instructions.RunAttempt: _run,
            instructions.StopAttempt: lambda s: messages.Stop(s.ref, s.grace_s, s.reason),
            instructions.Answer: _answer,
            instructions.OpenSlot: lambda s: messages.OpenSlot(s.slot),
            instructions.KillSlot: lambda s: messages.KillSlot(s.slot),
            instructions.TakeBack: lambda s: messages.TakeBack(s.count),
            instructions.StopCall: lambda s: messages.StopCall(s.ref, s.reason),
            instructions.Found: lambda s: messages.FoundCall(s.number, s.task),
            instructions.Stream: lambda s: messages.Streamed(s.number, s.index, s.payload),
        }

    def prepare(self, batch: instructions.Batch) -> Outgoing:
        """Frames of a batch; for each link greetings first, acknowledgements last."""
        out = Outgoing()
        acknowledged = dict(batch.acknowledged)
        later: list[instructions.Send] = []
        for send in batch.sends:
            if isinstance(send, instructions.Welcome | instructions.AttachPeer):
                out.opened.append(send.link)
                self._say(out, send)
            elif isinstance(send, instructions.Acknowledge):
                acknowledged[send.link] = max(send.serial, acknowledged.get(send.link, 0))
            elif isinstance(send, instructions.CloseLink):
                out.closing.append(send)
            else:
                later.append(send)
        for number, runs in batch.runs.items():
            self._add_runs(out, number, runs)
        for send in later:
            self._say(out, send)
        for number, results in batch.results.items():
            self._add(out, number, frames.encode_batch(messages.Results, results))
        for number, call in batch.accepted.items():
            self._add(out, number, (frames.encode(messages.Accepted(call)),))
        for number, serial in acknowledged.items():
            self._add(out, number, (frames.encode(messages.Acknowledged(serial)),))
        return out

    def release(self, out: Outgoing) -> None:
        """Write everything, one write for each link."""
        for number, written in out.frames.items():
            link = self._links.get(number)
            if link is not None:
                link.write(written[0] if len(written) == 1 else b"".join(written))
        for gone in out.closing:
            link = self._links.get(gone.link)
            if link is not None:
                link.refuse(gone.reason, gone.message, retry=True)
        for number in out.opened:
            link = self._links.get(number)
            if link is not None:
                link.open()

    def _say(self, out: Outgoing, send: instructions.Send) -> None:
        if send.link in self._links:
            self._add(out, send.link, map(frames.encode, (self._words[type(send)](send),)))

    def _add(self, out: Outgoing, number: int, made: Iterable[bytes]) -> None:
        """Queue frames for a link; one that cannot be made costs that link, nobody else."""
        if number not in self._links:
            return
        try:
            out.frames.setdefault(number, []).extend(made)
        except errors.FrameTooLarge as error:
            log.warning("a frame is too large", extra={"link": number, "why": str(error)})
            out.closing.append(instructions.CloseLink(number, "Internal", str(error)))

    def _add_runs(self, out: Outgoing, number: int, runs: list[tuple[records.Task, int]]) -> None:
        """Calls for a slot, after the templates that it has not been told of."""
        link = self._links.get(number)
        if link is None:
            return
        told = link.templates
        items: list[tuple[object, ...]] = []
        for task, attempt in runs:
            template = task.template
            if template is None or task.attempt != attempt or not task.held:
                continue  # what had it is gone already
            if template.row not in told:
                told.add(template.row)
                spoken = messages.Template(template.row, template.spec)
                self._add(out, number, map(frames.encode, (spoken,)))
            # As `calls.CallRun`, whose last fields are mostly left out.
            ref = (task.id, task.run, attempt)
            if task.values or task.in_place:
                values = tuple(task.values.values()) if task.values else ()
                items.append((ref, template.row, task.arguments, task.name, values, task.in_place))
            else:
                items.append((ref, template.row, task.arguments, task.name))
        self._add(out, number, frames.encode_batch(messages.Calls, items))

    def _welcome(self, send: instructions.Welcome) -> messages.Welcome:
        verdicts = messages.Verdict
        keep = [messages.Decision(ref, verdicts.KEEP, self._logs.kept(ref)) for ref in send.keep]
        unknown = [messages.Decision(ref, verdicts.UNKNOWN, 0) for ref in send.unknown]
        terms = self._terms
        return messages.Welcome(self.epoch, terms.lease_s, terms.renew_s, (*keep, *unknown))

    def _attached(self, send: instructions.AttachPeer) -> messages.Attached:
        blobs = self._terms.blobs
        return messages.Attached(
            self.epoch,
            send.unknown,
            "" if blobs is None else str(blobs / send.namespace),
            send.namespace,
            send.cluster,
        )


def _run(send: instructions.RunAttempt) -> messages.Run:
    task = send.task
    return messages.Run(send.ref, task.namespace, task.name, task.spec, task.inputs)


def _answer(send: instructions.Answer) -> messages.Answer:
    body = answers.refused(send.message) if send.task is None else answers.made(send.task)
    return messages.Answer(send.serial, send.status, body)
