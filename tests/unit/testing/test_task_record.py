"""What is known of one task of an inline session."""

import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.kit import ids
from kilnwork.testing import task_record


def record(spec: api_task.TaskSpec | None = None) -> task_record.Record:
    return task_record.Record(
        task=ids.TaskId(bytes(16)),
        spec=spec or api_task.TaskSpec(call=api_task.Call(function="m:f")),
        held=None,
        arguments=attempts.Payload(attempts.JSON, b"[]"),
        name=None,
        key=None,
        parent=None,
    )


def test_a_new_task_is_pending_and_has_no_attempt() -> None:
    found = record()
    assert (found.state, found.final, found.attempts) == (api_task.State.PENDING, False, 0)
    assert found.id == ids.task_text(ids.TaskId(bytes(16)))


def test_the_function_is_that_of_a_call() -> None:
    assert record().function == "m:f"
    assert record(api_task.TaskSpec(command=("true",))).function == ""


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (api_task.State.KILLED, "kilnwork.Cancelled"),
        (api_task.State.FAILED, "kilnwork.TaskFailed"),
    ],
)
def test_the_error_of_a_task_is_that_of_its_state(state: api_task.State, kind: str) -> None:
    found = record()
    found.state, found.message = state, "why"
    assert found.final
    error = found.error_info()
    assert (error.type, error.text) == (kind, "why")


def test_a_result_is_given_under_the_number_of_its_future() -> None:
    found = record()
    found.state, found.reason = api_task.State.SUCCESS, "Succeeded"
    found.payload = attempts.Payload(attempts.JSON, b"1")
    result = found.result(7)
    assert (result.number, result.state, result.payload) == (7, found.state, found.payload)


def test_a_record_is_shown_by_its_name_or_its_function() -> None:
    found = record()
    assert repr(found) == "<Record m:f Pending >"
    found.name = "a"
    assert repr(found) == "<Record a Pending >"
