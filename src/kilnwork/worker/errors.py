"""What can go wrong in a worker: one class per reaction.

Used in this room only. What goes wrong with a task is no error here but an outcome.
"""

from kilnwork.api import reasons
from kilnwork.kit import errors


class WorkerError(errors.KilnError):
    """The worker failed."""


class NoZygote(WorkerError):
    """The process that slots are forked from does not start: this worker is of no use."""


class CannotStart(WorkerError):
    """The command cannot be started, and trying again here would not help; the attempt fails."""

    def __init__(self, reason: reasons.Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class CannotStartHere(WorkerError):
    """This worker cannot start anything now (no processes, no disk); the attempt is lost."""


class BadResult(WorkerError):
    """What the command wrote as its result is refused; the attempt fails."""

    def __init__(self, reason: reasons.Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
