"""Refusals carry Kubernetes' reasons and texts."""

import json

import pytest

from kilnwork.api import api_resources, kinds
from kilnwork.controlplane.apiserver import statuses


def test_message_lists_several_causes_in_brackets() -> None:
    missing = statuses.Cause("spec.a", "FieldValueRequired", "Required value")
    wrong = statuses.Cause("spec.b", "FieldValueInvalid", 'Invalid value: "x": no')
    one = statuses.invalid(kinds.TASKS, "t", [missing])
    assert one.message == 'Task.kilnwork.dev "t" is invalid: spec.a: Required value'
    two = statuses.invalid(api_resources.PODS, "p", [missing, wrong])
    assert two.message == (
        'Pod "p" is invalid: [spec.a: Required value, spec.b: Invalid value: "x": no]'
    )
    assert two.details["causes"][1] == {
        "reason": "FieldValueInvalid",
        "message": 'Invalid value: "x": no',
        "field": "spec.b",
    }


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (statuses.unauthorized(), 401, "Unauthorized"),
        (statuses.too_large(), 413, "RequestEntityTooLarge"),
        (statuses.expired("x"), 410, "Expired"),
        (statuses.method_not_allowed(), 405, "MethodNotAllowed"),
        (statuses.not_acceptable("x"), 406, "NotAcceptable"),
        (statuses.internal("x"), 500, "InternalError"),
        (statuses.unavailable("x"), 503, "ServiceUnavailable"),
    ],
)
def test_errors_become_status_documents(
    error: statuses.StatusError, code: int, reason: str
) -> None:
    document = json.loads(error.body())
    assert (document["kind"], document["apiVersion"]) == ("Status", "v1")
    assert (document["status"], document["code"], document["reason"]) == ("Failure", code, reason)
    assert document["message"] == error.message


def test_retry_time_is_in_header_and_body() -> None:
    error = statuses.unavailable("busy", retry_after_s=3)
    assert error.headers["Retry-After"] == "3"
    assert error.details["retryAfterSeconds"] == 3


def test_refused_error_names_its_object() -> None:
    error = statuses.refused(api_resources.PODS, "p", "not today")
    assert error.message == 'pods "p" is forbidden: not today'
    assert error.details == {"name": "p", "kind": "pods"}
