"""From an exit code to what is said of the attempt."""

import pytest

from kilnwork.api import attempts, reasons
from kilnwork.worker import errors, outcome_rules

R, E = reasons.Reason, attempts.Ending
RESULT = attempts.Payload("application/json", b"1")


def seen(code: int, *, proof: bool = True) -> outcome_rules.CommandEnd:
    return outcome_rules.CommandEnd(code=code, proof=proof, started=1.0, finished=2.0)


@pytest.mark.parametrize(
    ("code", "ending", "reason", "shell"),
    [
        (0, E.SUCCEEDED, R.SUCCEEDED, 0),
        (1, E.FAILED, R.NON_ZERO_EXIT, 1),
        (75, E.FAILED, R.RETRY_REQUESTED, 75),
        (137, E.FAILED, R.NON_ZERO_EXIT, 137),
        (-15, E.FAILED, R.NON_ZERO_EXIT, 143),
        (-11, E.FAILED, R.NON_ZERO_EXIT, 139),
        (-9, E.LOST, R.PROCESS_KILLED, 137),
        (-40, E.FAILED, R.NON_ZERO_EXIT, 168),
    ],
)
def test_outcome_of_each_exit_code(
    code: int, ending: attempts.Ending, reason: reasons.Reason, shell: int
) -> None:
    found = outcome_rules.command_outcome(seen(code), halt=None, result=None)
    assert (found.ending, found.reason, found.exit_code) == (ending, reason.value, shell)
    assert found.requested_retry == (code == 75)
    assert (found.started, found.finished) == (1.0, 2.0)
    assert bool(found.message) == (code != 0)


def test_success_carries_the_result() -> None:
    assert outcome_rules.command_outcome(seen(0), halt=None, result=RESULT).result == RESULT


def test_refused_result_is_a_failure() -> None:
    refused = errors.BadResult(R.INVALID_RESULT, "no JSON")
    found = outcome_rules.command_outcome(seen(0), halt=None, result=refused)
    assert (found.ending, found.reason, found.message) == (E.FAILED, "InvalidResult", "no JSON")
    assert found.result is None


@pytest.mark.parametrize("code", [0, 1, 75, -9, -15])
def test_halt_decides_the_ending_whatever_the_command_did(code: int) -> None:
    halt = outcome_rules.Halt(E.STOPPED, "TimedOut", "")
    found = outcome_rules.command_outcome(seen(code), halt=halt, result=None)
    assert (found.ending, found.reason, found.requested_retry) == (E.STOPPED, "TimedOut", False)


def test_missing_proof_is_reported() -> None:
    assert not outcome_rules.command_outcome(seen(0, proof=False), halt=None, result=None).proof


def test_command_not_started_is_a_fault_of_the_task_or_the_worker() -> None:
    theirs = outcome_rules.not_started_outcome(
        errors.CannotStart(R.COMMAND_NOT_FOUND, "x" * 5000), at=3.0
    )
    assert (theirs.ending, theirs.reason) == (E.FAILED, "CommandNotFound")
    assert len(theirs.message) == outcome_rules.MAX_MESSAGE
    ours = outcome_rules.not_started_outcome(errors.CannotStartHere("no processes"), at=3.0)
    assert (ours.ending, ours.reason, ours.started) == (E.LOST, "WorkerLost", None)
