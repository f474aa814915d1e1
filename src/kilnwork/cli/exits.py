"""Exit codes of the `kiln` commands. Scripts may rely on them.

Printed by `kiln help exit-codes`; used by `errors` and the commands.
"""

from enum import IntEnum


class Exit(IntEnum):
    """Exit code of a command; `MEANINGS` describes each."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    TIMED_OUT = 5
    TASK_FAILED = 6
    FORBIDDEN = 7
    INTERRUPTED = 130


MEANINGS: dict[Exit, str] = {
    Exit.OK: "success",
    Exit.FAILED: "an operation failed or was refused; of several operations, at least one",
    Exit.USAGE: "the command line, or a file named on it, is invalid",
    Exit.UNREACHABLE: "the server cannot be reached",
    Exit.NOT_FOUND: "a named object, task or file job does not exist",
    Exit.TIMED_OUT: "a wait timed out",
    Exit.TASK_FAILED: "a task, Job or file job that the command waited for did not succeed",
    Exit.FORBIDDEN: "the server denied access (403) or could not authenticate the client (401)",
    Exit.INTERRUPTED: "interrupted by Ctrl-C",
}

RUN_NOTE = (
    "`kiln run --watch` exits with the exit code of the task's command if there is one\n"
    "(128 + N after signal N), otherwise with 6; `kiln wait` uses the codes above."
)
