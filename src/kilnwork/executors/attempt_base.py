"""One attempt of an executor that is a process of its own: runs and halts the attempt, and reports
its end.

Base of `executors.http.attempt` and `executors.external`; `service` creates an object for each
order `Run`.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import Any, Protocol

from kilnwork.api import attempts, reasons, substitution
from kilnwork.channel import messages
from kilnwork.kit import clock, ids

log = logging.getLogger(__name__)

MAX_MESSAGE = 1024
_E = attempts.Ending
_R = reasons.Reason


class Link(Protocol):
    """Port of the link to the dispatcher (`channel.worker_side.Peer`)."""

    def send(self, message: messages.Observed | messages.Log | messages.Progress) -> None: ...

    def report(self, make: Callable[[int], messages.Started | messages.Finished]) -> None: ...

    async def store(self, make: Callable[[int], messages.Started | messages.Finished]) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Halt:
    """A request to end an attempt, and the ending to report."""

    ending: attempts.Ending
    reason: str
    message: str = ""


class ProcessAttempt:
    """One attempt that this process carries out. Call `live` once.

    `finished` is set when the attempt has ended, whether or not its end is reported.
    """

    def __init__(self, run: messages.Run, link: Link, time: clock.Clock) -> None:
        self.ref = run.ref
        self.finished = asyncio.Event()
        self.silent = False
        self.log = b""
        self.seen: messages.Observed | None = None
        """The last report of the attempt's state, which is sent again on a new link."""
        self._run = run
        self._link = link
        self._clock = time
        self._started: float | None = None
        self._halt: Halt | None = None
        self._work: asyncio.Task[Any] | None = None
        self._callback: messages.Callback | None = None
        """The callback that says how the attempt ended."""

    async def live(self) -> None:
        """Run the attempt and report its end."""
        self._work = asyncio.current_task()
        try:
            outcome = await self._outcome()
            self._work = None
            self._report(outcome)
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise  # the process is stopping
            self._work = None
            self._report_defect(error, proof=await self._cut())
        finally:
            self.finished.set()

    def _report_defect(self, error: BaseException, *, proof: bool) -> None:
        """End the attempt after an unexpected error. The error is only logged, not reported: it may
        contain secrets.
        """
        log.error("attempt failed", exc_info=error, extra={"attempt": str(self.ref)})
        message = (
            f"the executor has a defect: {type(error).__name__} ended this attempt; its log has"
            f" the traceback under {self.ref}: please report it"
        )
        outcome = self._ended(_E.FAILED, _R.INTERNAL_ERROR, message, proof=proof)
        if not self.silent:
            self._link.report(lambda serial: messages.Finished(serial, self.ref, outcome))

    async def _outcome(self) -> attempts.Outcome:
        try:
            if self._halt is not None:
                raise asyncio.CancelledError
            return await self._carry_out()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._halt is None or task is None:
                raise
            task.uncancel()
            return await self._halted(self._halt)

    async def _carry_out(self) -> attempts.Outcome:
        raise NotImplementedError

    async def _cut(self) -> bool:
        """Abort the work in progress; return whether it is certain that the work has ended."""
        return True

    async def _halted(self, halt: Halt) -> attempts.Outcome:
        """End the work of a halted attempt, and return the outcome."""
        return self._ended(halt.ending, halt.reason, halt.message)

    def _report(self, outcome: attempts.Outcome) -> None:
        if not self.silent:
            ended = outcome.ending in (_E.SUCCEEDED, _E.FAILED)
            digest = self._callback.digest() if ended and self._callback is not None else b""
            self._link.report(lambda serial: messages.Finished(serial, self.ref, outcome, digest))

    def halt(self, halt: Halt) -> None:
        """End the attempt. Only the first halt has an effect, and only before the attempt's end is
        known.
        """
        if self._halt is None and self._work is not None:
            self._halt = halt
            self._work.cancel()
        elif self._work is None and not self.finished.is_set():
            self._halt = self._halt or halt  # the attempt has not begun yet

    def abandon(self) -> None:
        """End the attempt without a report, because the dispatcher does not know it."""
        self.silent = True
        self.halt(Halt(_E.STOPPED, _R.REPLACED, "the dispatcher does not know it"))

    def called_back(self, callback: messages.Callback) -> None:
        """Accept the result from a callback, if the attempt waits for one."""

    def send_log(self, offset: int) -> None:
        """Send the log of the attempt to the dispatcher, from the byte `offset` on."""
        if len(self.log) > offset:
            self._link.send(messages.Log(self.ref, offset, self.log[offset:]))

    def _see(
        self,
        reason: reasons.Reason,
        message: str = "",
        *,
        parked: bool = False,
        handover: bytes = b"",
    ) -> None:
        self.seen = messages.Observed(self.ref, reason.value, message, parked, handover)
        self._link.send(self.seen)

    def _ended(
        self,
        ending: attempts.Ending,
        reason: str,
        message: str = "",
        *,
        proof: bool = True,
        result: attempts.Payload | None = None,
    ) -> attempts.Outcome:
        return attempts.Outcome(
            ending,
            _text(str(reason)),
            _text(message),
            result=result,
            proof=proof,
            started=self._started,
            finished=self._clock.wall(),
        )

    def _variables(self) -> dict[str, Any]:
        run, ref = self._run, self.ref
        facts = substitution.TaskFacts(
            name=run.name or ids.task_text(ref.task),
            namespace=run.namespace,
            id=ids.task_text(ref.task),
            run=ref.run,
            attempt=ref.attempt,
            cluster_name=run.spec.cluster_name,
        )
        inputs = substitution.input_variables(run.inputs)
        return {**substitution.task_variables(facts), **inputs}


def _is_cancelled() -> bool:
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


def _text(given: str) -> str:
    """Return a text in a form that can be encoded, since a user's function may raise anything."""
    return given[:MAX_MESSAGE].encode(errors="replace").decode()
