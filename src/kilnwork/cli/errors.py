"""Errors of the command line, each with its exit code.

Raised by commands and the modules below them; `main` prints them.
"""

from kilnwork.cli import exits
from kilnwork.kit import errors
from kilnwork.kube import errors as kube_errors


class CommandError(errors.KilnError):
    """The command failed."""

    code: int = exits.Exit.FAILED


class InvalidInput(CommandError):
    """A value on the command line or in a file is invalid."""

    code = exits.Exit.USAGE


class Unreachable(CommandError):
    """The server cannot be reached."""

    code = exits.Exit.UNREACHABLE


class Missing(CommandError):
    """A named object, task or file job does not exist."""

    code = exits.Exit.NOT_FOUND


class TimedOut(CommandError):
    """A wait timed out."""

    code = exits.Exit.TIMED_OUT


class AccessRefused(CommandError):
    """The server denied access: the right is missing, or it could not authenticate the client."""

    code = exits.Exit.FORBIDDEN


SERVER_ERRORS = (kube_errors.KubeError, CommandError)
"""Errors of a request: one below `/v1` has to find the manager first, which can fail with a
CommandError."""


class TaskFailed(CommandError):
    """A task, Job, SyncSet or file job did not succeed, or a task was deleted before its end.

    `code`: the exit code of the command of the task, if known.
    """

    code: int = exits.Exit.TASK_FAILED

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        if code:
            self.code = code
