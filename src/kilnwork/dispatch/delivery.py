"""Carrying out what a committed batch says: instructions become frames, one write for each link.

Used by the hub, after the commit. A link that has gone meanwhile is passed over: its peer resumes.
"""

from collections.abc import Iterable, Mapping

from kilnwork.channel import frames, messages
from kilnwork.dispatch import answers, attempt_logs, instructions, links

_Worded = (
    instructions.RunAttempt | instructions.StopAttempt | instructions.Welcome | instructions.Answer
)


class Delivery:
    """Knows the links, and what a Welcome must say."""

    def __init__(
        self,
        by_number: Mapping[int, links.Link],
        logs: attempt_logs.AttemptLogs,
        *,
        lease_s: float,
        renew_s: float,
    ) -> None:
        self.epoch = 0
        self._links = by_number
        self._logs = logs
        self._lease_s = lease_s
        self._renew_s = renew_s

    def carry_out(self, sends: Iterable[instructions.Send]) -> None:
        """Send everything, in order for each link; acknowledgements last, one for each link."""
        outgoing: dict[int, list[bytes]] = {}
        acknowledged: dict[int, int] = {}
        opened: list[links.Link] = []
        closing: list[instructions.CloseLink] = []
        for send in sends:
            link = self._links.get(send.link)
            if link is None:
                continue
            if isinstance(send, instructions.Acknowledge):
                acknowledged[send.link] = max(send.serial, acknowledged.get(send.link, 0))
            elif isinstance(send, instructions.CloseLink):
                closing.append(send)
            elif isinstance(send, _Worded):
                if isinstance(send, instructions.Welcome):
                    opened.append(link)
                outgoing.setdefault(send.link, []).append(frames.encode(self._message(send)))
        for number, serial in acknowledged.items():
            frame = frames.encode(messages.Acknowledged(serial))
            outgoing.setdefault(number, []).append(frame)
        for number, written in outgoing.items():
            self._links[number].write(b"".join(written))
        for gone in closing:
            self._links[gone.link].refuse(gone.reason, gone.message, retry=True)
        for link in opened:
            link.open()

    def _message(
        self,
        send: instructions.RunAttempt
        | instructions.StopAttempt
        | instructions.Welcome
        | instructions.Answer,
    ) -> messages.ToWorker:
        if isinstance(send, instructions.RunAttempt):
            task = send.task
            return messages.Run(send.ref, task.namespace, task.name, task.spec, task.inputs)
        if isinstance(send, instructions.StopAttempt):
            return messages.Stop(send.ref, send.grace_s, send.reason)
        if isinstance(send, instructions.Answer):
            body = answers.refused(send.message) if send.task is None else answers.made(send.task)
            return messages.Answer(send.serial, send.status, body)
        return self._welcome(send)

    def _welcome(self, send: instructions.Welcome) -> messages.Welcome:
        verdicts = messages.Verdict
        keep = [messages.Decision(ref, verdicts.KEEP, self._logs.kept(ref)) for ref in send.keep]
        unknown = [messages.Decision(ref, verdicts.UNKNOWN, 0) for ref in send.unknown]
        return messages.Welcome(self.epoch, self._lease_s, self._renew_s, (*keep, *unknown))
