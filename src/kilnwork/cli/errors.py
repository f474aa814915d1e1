"""Errors of the command line, each with the exit code that a script sees.

Raised by commands and what they stand on; `main` prints them.
"""

from kilnwork.cli import exits
from kilnwork.kit import errors
from kilnwork.kube import errors as kube_errors


class CommandError(errors.KilnError):
    """The command failed."""

    code: int = exits.Exit.FAILED


class Unusable(CommandError):
    """What was given on the command line or in a file cannot be used."""

    code = exits.Exit.USAGE


class Unreachable(CommandError):
    """The server cannot be reached."""

    code = exits.Exit.UNREACHABLE


class Missing(CommandError):
    """What was named does not exist."""

    code = exits.Exit.NOT_FOUND


class TimedOut(CommandError):
    """What was waited for did not happen in time."""

    code = exits.Exit.TIMED_OUT


class Refused(CommandError):
    """The server refuses: the right is missing, or it does not know who asks."""

    code = exits.Exit.FORBIDDEN


SERVER_ERRORS = (kube_errors.KubeError, CommandError)
"""What a request may end with: one below `/v1` has to find the manager first, which may be refused
in words of our own."""


class TaskFailed(CommandError):
    """The task ended Failed or Killed. `code` is its own exit code when it has one."""

    code: int = exits.Exit.TASK_FAILED

    def __init__(self, message: str, *, code: int | None = None) -> None:
        super().__init__(message)
        if code:
            self.code = code
