"""Links of executors in this process: instructions go to them unencoded, observations come back.

Used by `peers`, one `ExecutorLink` for each executor. As over a connection, nothing is sent before
it is on disk; reports are applied at once, and `finished` returns when its report is stored.
"""

from collections.abc import Callable

from kilnwork.api import attempts
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import agents, attempt_logs, commits
from kilnwork.dispatch.machine import inputs, instructions

Receive = Callable[[instructions.ForExecutor], None]


class ExecutorLink:
    """The link of one executor in this process. `number`: the number of the link."""

    def __init__(self, number: int, core: commits.Core, logs: attempt_logs.AttemptLogs) -> None:
        self.number = number
        self._core = core
        self._logs = logs

    def observed(self, ref: attempts.AttemptRef, observed: model.Observed) -> None:
        """Publish the executor's observation of an attempt: the reason for its state."""
        self._core.apply(inputs.AttemptObserved(self.number, ref, observed))

    def started(self, ref: attempts.AttemptRef, *, at: float, container: str = "") -> None:
        """Report that an attempt has started, at that wall time."""
        self._core.apply(inputs.Started(self.number, 0, ref, at))

    async def finished(self, ref: attempts.AttemptRef, outcome: attempts.Outcome) -> None:
        """Report that an attempt has ended; the report is stored when this returns.

        For an attempt that was abandoned meanwhile, the report is the proof of its end.
        """
        outcome = agents.bounded(outcome)
        self._core.apply(inputs.Finished(self.number, 0, ref, outcome))
        await self._core.flush()
        self._logs.forget(ref)

    def log(self, ref: attempts.AttemptRef, *, offset: int, data: bytes) -> None:
        """Store new output of an attempt, which begins at `offset`.

        The part that is stored already is not stored again.
        """
        self._logs.append(ref, offset, data)

    def discard_log(self, ref: attempts.AttemptRef) -> None:
        """Discard the stored output of an attempt, since it is copied again from its beginning."""
        self._logs.discard(ref)
