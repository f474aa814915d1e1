"""What refused creations mean: wait, fail at once, or try again later."""

from typing import Any

import pytest

from kilnwork.api import attempts, reasons, task
from kilnwork.executors import creation_failures, port
from kilnwork.kit import ids
from kilnwork.kube import errors

R = reasons.Reason
ATTEMPT = port.Attempt(
    ref=attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 1),
    namespace="ns",
    name="t",
    owner_uid="",
    spec=task.TaskSpec(),
)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ('pods "t" is forbidden: exceeded quota: q, requested: pods=1', R.QUOTA_EXCEEDED),
        (
            'pods "t" is forbidden: error looking up service account ns/a: not found',
            R.WAITING_FOR_SERVICE_ACCOUNT,
        ),
    ],
)
def test_temporary_refusal_is_waited_for(message: str, reason: R) -> None:
    seen = creation_failures.refusal(errors.Forbidden(403, "Forbidden", message))
    assert (seen.phase, seen.reason, seen.message) == (port.Phase.STAGING, reason, message)
    assert seen.check_s == creation_failures.CREATE_AGAIN_S
    assert not seen.exists
    assert seen.outcome is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.Invalid(422, "Invalid", "spec.x: Required"), R.ADMISSION_ERROR),
        (errors.Forbidden(403, "Forbidden", "denied by policy p"), R.ADMISSION_ERROR),
        (
            errors.Forbidden(
                403,
                "Forbidden",
                "ns ends",
                details={"causes": [{"reason": "NamespaceTerminating"}]},
            ),
            R.NAMESPACE_ENDING,
        ),
    ],
)
def test_permanent_refusal_fails_without_a_retry(error: Any, reason: R) -> None:
    seen = creation_failures.refusal(error)
    assert (seen.phase, seen.reason, seen.message) == (port.Phase.OVER, reason, str(error))
    assert seen.outcome is not None
    assert seen.outcome.ending is attempts.Ending.FAILED
    assert not seen.outcome.may_retry


def test_a_missing_right_of_the_manager_is_no_fault_of_the_task() -> None:
    error = errors.Forbidden(403, "Forbidden", 'pods is forbidden: User "m" cannot create pods')
    with pytest.raises(errors.Forbidden) as caught:
        creation_failures.refusal(error)
    assert caught.value is error


def test_the_time_until_the_next_try_may_be_given() -> None:
    assert creation_failures.waits("X", "why", check_s=0.5).check_s == 0.5


def test_a_taken_name_says_how_to_go_on() -> None:
    seen = creation_failures.name_taken("Pod", "t-1-1", ATTEMPT)
    assert seen.reason == R.NAME_TAKEN
    assert "Pod t-1-1 in namespace ns" in seen.message
    assert seen.message.endswith("(kiln retry t -n ns)")
