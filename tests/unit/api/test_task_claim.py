"""Fields of a TaskClaim: defaults, bounds, and what an outcome may say."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import task_claim


def test_claim_has_the_documented_defaults() -> None:
    spec = msgspec.convert({"executor": "gpu"}, task_claim.TaskClaimSpec)
    assert (spec.holder, spec.lease_seconds, spec.ttl_seconds_after_finished) == ("", 60, 300)


@pytest.mark.parametrize(
    ("field", "usable", "unusable"),
    [
        ("leaseSeconds", [1, 86_400], [0, 86_401]),
        ("ttlSecondsAfterFinished", [0, 1], [-1]),
        ("holder", ["a" * 128], ["a" * 129]),
        ("executor", ["a"], ["", "a" * 254]),
        ("holders", [], ["a"]),
    ],
)
def test_fields_of_a_claim_have_bounds(
    field: str, usable: list[object], unusable: list[object]
) -> None:
    for value in usable:
        msgspec.convert({"executor": "gpu", field: value}, task_claim.TaskClaimSpec)
    for value in unusable:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"executor": "gpu", field: value}, task_claim.TaskClaimSpec)


@pytest.mark.parametrize("state", ["Succeeded", "Failed", "Killed"])
def test_an_outcome_has_one_of_three_states_and_may_be_retried(state: str) -> None:
    found = msgspec.convert({"state": state}, task_claim.ClaimOutcome)
    assert (found.retry, found.reason, found.result) == (True, "", msgspec.UNSET)


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "Running"},
        {"state": "Failed", "reason": "disk full"},
        {"state": "Failed", "reason": "1Disk"},
        {"state": "Failed", "reason": "D" * 64},
    ],
)
def test_invalid_outcome_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fields, task_claim.ClaimOutcome)


def test_a_result_of_null_is_a_result() -> None:
    found = msgspec.convert({"state": "Succeeded", "result": None}, task_claim.ClaimOutcome)
    assert found.result is None


@pytest.mark.parametrize("fraction", [-0.1, 1.1])
def test_progress_is_from_zero_to_one(fraction: float) -> None:
    for usable in (0, 1):
        msgspec.convert({"fraction": usable}, task_claim.ClaimProgress)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"fraction": fraction}, task_claim.ClaimProgress)


def test_phases_are_those_of_the_status() -> None:
    phases = [phase.value for phase in task_claim.Phase]
    assert phases == ["Waiting", "Claimed", "Killing", "Finished"]
