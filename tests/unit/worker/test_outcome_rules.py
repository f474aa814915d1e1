"""From an exit code to what is said of the attempt."""

import dataclasses
import subprocess

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


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (1, "exit code 1"),
        (75, "exit code 75 asks for a retry"),
        (-15, "ended by signal 15 (SIGTERM)"),
        (-40, "ended by signal 40 (real-time)"),
    ],
)
def test_message_names_the_exit_code_or_the_signal(code: int, message: str) -> None:
    found = outcome_rules.command_outcome(seen(code), halt=None, result=None)
    assert found.message == message


@pytest.mark.parametrize("code", [0, 1, 137, -9])
def test_command_without_memory_has_failed_whatever_its_exit_code(code: int) -> None:
    end = dataclasses.replace(seen(code), oom="used more than 1 GiB")
    found = outcome_rules.command_outcome(end, halt=None, result=RESULT)
    assert (found.ending, found.reason) == (E.FAILED, "OutOfMemory")
    assert (found.message, found.result) == ("used more than 1 GiB", None)


@pytest.mark.parametrize("code", [0, 1, -9])
def test_usage_of_a_command_is_reported(code: int) -> None:
    usage = attempts.Usage(cpu_s=1.5, peak_bytes=4096)
    end = dataclasses.replace(seen(code), usage=usage)
    assert outcome_rules.command_outcome(end, halt=None, result=None).usage == usage


def test_retry_is_requested_by_a_failed_command_only() -> None:
    lost = outcome_rules.Halt(E.LOST, "WorkerStopping", "the worker stops")
    failed = outcome_rules.Halt(E.FAILED, "OutOfDisk", "no space is left")
    halts = [None, lost, failed]
    found = [outcome_rules.command_outcome(seen(75), halt=halt, result=None) for halt in halts]
    assert [one.requested_retry for one in found] == [True, False, True]


def test_success_carries_the_result() -> None:
    assert outcome_rules.command_outcome(seen(0), halt=None, result=RESULT).result == RESULT


def test_refused_result_is_a_failure() -> None:
    refused = errors.BadResult(R.INVALID_RESULT, "no JSON")
    found = outcome_rules.command_outcome(seen(0), halt=None, result=refused)
    assert (found.ending, found.reason, found.message) == (E.FAILED, "InvalidResult", "no JSON")
    assert found.result is None


@pytest.mark.parametrize("code", [0, 1, 75, -9, -15])
def test_halt_decides_the_ending_whatever_the_command_did(code: int) -> None:
    halt = outcome_rules.Halt(E.STOPPED, "TimedOut", "after 5 s")
    found = outcome_rules.command_outcome(seen(code), halt=halt, result=None)
    assert (found.ending, found.reason, found.requested_retry) == (E.STOPPED, "TimedOut", False)
    assert (found.message, found.exit_code) == ("after 5 s", outcome_rules.shell_code(code))


def test_halt_before_the_start_has_neither_start_nor_exit_code() -> None:
    halt = outcome_rules.Halt(E.STOPPED, "Killed", "by ann")
    found = outcome_rules.halted_outcome(halt, at=3.0)
    assert (found.ending, found.reason, found.message) == (E.STOPPED, "Killed", "by ann")
    assert (found.started, found.finished, found.exit_code) == (None, 3.0, None)


def test_missing_proof_is_reported() -> None:
    assert not outcome_rules.command_outcome(seen(0, proof=False), halt=None, result=None).proof


def test_command_not_started_is_a_fault_of_the_task_or_the_worker() -> None:
    theirs = outcome_rules.not_started_outcome(
        errors.CannotStart(R.COMMAND_NOT_FOUND, "x" * 5000), at=3.0
    )
    assert (theirs.ending, theirs.reason) == (E.FAILED, "CommandNotFound")
    assert theirs.message == "x" * 1024
    assert theirs.finished == 3.0
    ours = outcome_rules.not_started_outcome(errors.CannotStartHere("no processes"), at=3.0)
    assert (ours.ending, ours.reason, ours.started) == (E.LOST, "WorkerLost", None)
    assert (ours.message, ours.finished) == ("no processes", 3.0)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (None, "the slot's process was not started"),
        (0, "the slot's process exited with code 0"),
        (3, "the slot's process exited with code 3"),
        (-9, "the slot's process was ended by signal 9 (SIGKILL)"),
        (-40, "the slot's process was ended by signal 40 (real-time)"),
    ],
)
def test_end_of_a_slot_is_described(code: int | None, sentence: str) -> None:
    assert outcome_rules.describe_slot_end(code) == sentence


def test_sigkill_of_a_child_is_seen_in_the_exit_code_of_a_shell() -> None:
    code = subprocess.run(["sh", "-c", "kill -KILL $$"], check=False).returncode
    assert outcome_rules.shell_code(code) == outcome_rules.SHELL_SIGKILLED == 137
