"""The rules that decide the outcome of an attempt which has ended. Does no I/O and reads no clock.

Used by `attempt`, `ephemeral_containers` and `agent`, and for texts and exit codes by the modules
of slots. The rules are those of docs/reference/worker-contract.md.
"""

import signal
from dataclasses import dataclass

from kilnwork.api import attempts, reasons
from kilnwork.worker import errors

RETRY = 75
"""Exit code by which a command requests a retry: EX_TEMPFAIL of sysexits.h."""

SHELL_SIGKILLED = 137
"""Exit code of a shell whose child was killed: 128 + SIGKILL."""

MAX_MESSAGE = 1024
"""Maximum characters of a message; longer ones are cut, since they contain paths and names that
users choose.
"""


@dataclass(frozen=True, slots=True)
class Halt:
    """A request to end an attempt, and the ending to report."""

    ending: attempts.Ending
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """The end of a command that was started.

    `code`: exit code 0 to 255, or minus the signal. `oom`: a message if the kernel's OOM killer
    ended the command, otherwise "".
    """

    code: int
    proof: bool
    started: float
    finished: float
    oom: str = ""
    usage: attempts.Usage | None = None


def command_outcome(
    seen: CommandEnd, *, halt: Halt | None, result: attempts.Payload | errors.BadResult | None
) -> attempts.Outcome:
    """Return the outcome of a command that ran.

    If a halt was requested before the command's end, the halt decides, whatever the exit code.
    """
    if halt is not None:
        return _outcome(seen, halt.ending, reason=halt.reason, message=halt.message)
    if seen.oom:
        return _failed(seen, reasons.Reason.OUT_OF_MEMORY, seen.oom)
    if seen.code == -signal.SIGKILL:
        return _outcome(
            seen,
            attempts.Ending.LOST,
            reason=reasons.Reason.PROCESS_KILLED,
            message="ended by SIGKILL, which kilnwork did not send, nor the kernel because memory "
            "ran out, as far as it says",
        )
    if seen.code < 0:
        message = f"ended by signal {-seen.code} ({signal_name(-seen.code)})"
        return _failed(seen, reasons.Reason.NON_ZERO_EXIT, message)
    if seen.code == RETRY:
        message = "exit code 75 asks for a retry"
        return _failed(seen, reasons.Reason.RETRY_REQUESTED, message)
    if seen.code:
        return _failed(seen, reasons.Reason.NON_ZERO_EXIT, f"exit code {seen.code}")
    if isinstance(result, errors.BadResult):
        return _failed(seen, result.reason, str(result))
    return _outcome(seen, attempts.Ending.SUCCEEDED, reason=reasons.Reason.SUCCEEDED, result=result)


def not_started_outcome(
    error: errors.CannotStart | errors.CannotStartHere, *, at: float
) -> attempts.Outcome:
    """Return the outcome of an attempt whose command could not be started."""
    if isinstance(error, errors.CannotStart):
        ending, reason = attempts.Ending.FAILED, str(error.reason)
    else:
        ending, reason = attempts.Ending.LOST, str(reasons.Reason.WORKER_LOST)
    return attempts.Outcome(
        ending=ending, reason=reason, message=str(error)[:MAX_MESSAGE], finished=at
    )


def halted_outcome(halt: Halt, *, at: float) -> attempts.Outcome:
    """Return the outcome of an attempt that was halted before its command started."""
    return attempts.Outcome(
        ending=halt.ending, reason=halt.reason, message=halt.message, finished=at
    )


def describe_slot_end(code: int | None) -> str:
    """Return a sentence about the end of a slot's process.

    `code`: as in `CommandEnd`.
    """
    if code is None:
        return "the slot's process was not started"
    if code < 0:
        return f"the slot's process was ended by signal {-code} ({signal_name(-code)})"
    return f"the slot's process exited with code {code}"


def shell_code(code: int) -> int:
    """Return the exit code as a shell reports it: 128 + N for signal N."""
    return 128 - code if code < 0 else code


def _failed(seen: CommandEnd, reason: str, message: str) -> attempts.Outcome:
    return _outcome(seen, attempts.Ending.FAILED, reason=reason, message=message)


def _outcome(
    seen: CommandEnd,
    ending: attempts.Ending,
    *,
    reason: str,
    message: str = "",
    result: attempts.Payload | None = None,
) -> attempts.Outcome:
    return attempts.Outcome(
        ending=ending,
        reason=str(reason),
        message=message,
        exit_code=shell_code(seen.code),
        result=result,
        proof=seen.proof,
        requested_retry=seen.code == RETRY and ending is attempts.Ending.FAILED,
        started=seen.started,
        finished=seen.finished,
        usage=seen.usage,
    )


def signal_name(number: int) -> str:
    """Return the name of a signal, such as SIGKILL for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "real-time"
