"""Errors of a worker, one class for each way in which the worker reacts.

Used in this package only. A failure of a task is not an error here but an outcome.
"""

from kilnwork.api import reasons
from kilnwork.kit import errors


class WorkerError(errors.KilnError):
    """The worker failed."""


class NoZygote(WorkerError):
    """The zygote does not start, so this worker cannot run calls."""


class CannotStart(WorkerError):
    """The command cannot be started on any worker (for example: no such program); the attempt
    fails.
    """

    def __init__(self, reason: reasons.Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class CannotStartHere(WorkerError):
    """This worker cannot start anything now (no processes or disk space left); the attempt is
    lost.
    """


class BadResult(WorkerError):
    """The file that the command wrote as its result is refused; the attempt fails."""

    def __init__(self, reason: reasons.Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
