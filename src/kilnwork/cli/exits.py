"""Exit codes of every `kiln` command, in one place: what scripts may rely on.

Printed by `kiln help exit-codes`; used by `errors` and the commands.
"""

from enum import IntEnum


class Exit(IntEnum):
    """What the number means to a script."""

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
    Exit.OK: "done",
    Exit.FAILED: "something was refused or failed; with several objects, at least one of them",
    Exit.USAGE: "the command line or a file given to it cannot be used",
    Exit.UNREACHABLE: "the server cannot be reached",
    Exit.NOT_FOUND: "what was named does not exist",
    Exit.TIMED_OUT: "what was waited for did not happen in time",
    Exit.TASK_FAILED: "what was waited for, a task, a Job or a file job, did not succeed",
    Exit.FORBIDDEN: "the server knows you but refuses (403), or does not know you (401)",
    Exit.INTERRUPTED: "interrupted by Ctrl-C",
}

RUN_NOTE = (
    "`kiln run --watch` exits with the exit code of the task's command when it has one\n"
    "(128 + N after signal N), else with 6; `kiln wait` always uses the codes above."
)
