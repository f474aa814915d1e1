"""Executors of this process: instructions go to them as they are, observations come back.

Used by the hub, one `ExecutorLink` for each executor. Nothing is sent before it is on disk, as over
a connection; what an executor reports is applied at once, and `finished` returns when it is stored.
"""

from collections.abc import Callable

from kilnwork.api import attempts
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import agents, attempt_logs, commits
from kilnwork.dispatch.machine import inputs, instructions

Receive = Callable[[instructions.ForExecutor], None]


class ExecutorLink:
    """The end of one executor. `number` is that of its link."""

    def __init__(self, number: int, core: commits.Core, logs: attempt_logs.AttemptLogs) -> None:
        self.number = number
        self._core = core
        self._logs = logs

    def observed(self, ref: attempts.AttemptRef, observed: model.Observed) -> None:
        """Show why an attempt is where it is."""
        self._core.apply(inputs.Observed(self.number, ref, observed))

    def started(self, ref: attempts.AttemptRef, *, at: float, container: str = "") -> None:
        """An attempt has begun to run, at that wall time."""
        self._core.apply(inputs.Started(self.number, 0, ref, at))

    async def finished(self, ref: attempts.AttemptRef, outcome: attempts.Outcome) -> None:
        """An attempt is over; stored when this returns. One that is abandoned by now is proved."""
        outcome = agents.bounded(outcome)
        self._core.apply(inputs.Finished(self.number, 0, ref, outcome))
        await self._core.flush()
        self._logs.forget(ref)

    def log(self, ref: attempts.AttemptRef, *, offset: int, data: bytes) -> None:
        """Keep output of an attempt that begins at `offset`; what is kept already is skipped."""
        self._logs.append(ref, offset, data)

    def discard_log(self, ref: attempts.AttemptRef) -> None:
        """Its output is copied again from the beginning: discard what is kept of it."""
        self._logs.discard(ref)
