"""A failed attempt carries its reason, and whether the task is to blame."""

from kilnwork.api import reasons
from kilnwork.executors.http import errors
from kilnwork.kit import errors as kit_errors


def test_a_failure_is_the_fault_of_the_task_and_its_message_whole() -> None:
    error = errors.AttemptFailed(reasons.Reason.REQUEST_FAILED, "refused")
    assert (error.reason, str(error)) == (reasons.Reason.REQUEST_FAILED, "refused")
    assert (error.is_loss, error.max_length) == (False, None)


def test_a_loss_and_a_bound_are_kept() -> None:
    error = errors.AttemptFailed(reasons.Reason.REQUEST_FAILED, "m", is_loss=True, max_length=3)
    assert (error.is_loss, error.max_length) == (True, 3)


def test_attempt_failed_is_a_kiln_error() -> None:
    assert issubclass(errors.AttemptFailed, kit_errors.KilnError)
