"""What the status of an object says by the rules of its task."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import attempts, object_task, reasons, task
from kilnwork.executors import port
from kilnwork.executors.custom_resource import status_reader, template

R = reasons.Reason
S = status_reader.State
READER = status_reader.RuleReader()
CREATED = "2026-11-23T20:00:00Z"


def spec(**result: Any) -> task.TaskSpec:
    given = {
        "success_condition": '.status.phase == "Done"',
        "failure_condition": '.status.phase == "Bad"',
        **result,
    }
    rules = object_task.ObjectResult(**given)
    return task.TaskSpec(custom_resource=object_task.CustomResource(manifest={}, result=rules))


def book(**status: Any) -> dict[str, Any]:
    metadata = {"name": "b", "creationTimestamp": CREATED}
    return {"kind": "Book", "metadata": metadata, "status": status}


@pytest.mark.parametrize(
    ("status", "state", "reason", "message"),
    [
        ({"phase": "Done"}, S.SUCCEEDED, R.SUCCEEDED, "Book b"),
        ({"phase": "Bad"}, S.FAILED, R.OBJECT_FAILED, "Book b has failed"),
        ({"phase": "Bad", "message": "no ink"}, S.FAILED, R.OBJECT_FAILED, "Book b: no ink"),
        ({"phase": "Bad", "message": 7}, S.FAILED, R.OBJECT_FAILED, "Book b has failed"),
    ],
)
def test_rules_decide_about_the_end(
    status: dict[str, Any], state: S, reason: R, message: str
) -> None:
    read = READER.read(spec(), book(**status))
    assert (read.state, read.reason, read.message) == (state, reason, message)
    assert read.has_ended
    assert read.started == 1795464000.0


def test_until_a_rule_holds_the_message_says_what_is_waited_for() -> None:
    read = READER.read(
        spec(running_condition='.status.phase == "Busy"'), {"kind": "Book", **book(phase="New")}
    )
    assert (read.state, read.reason, read.has_ended) == (S.STAGING, R.STARTING, False)
    assert read.message.startswith("Book b: waiting for .status.phase")


def test_with_a_running_condition_its_creation_is_no_start() -> None:
    rules = spec(running_condition='.status.phase == "Busy"')
    read = READER.read(rules, book(phase="Busy"))
    assert (read.state, read.reason) == (S.RUNNING, R.STARTED)
    assert read.started is None


@pytest.mark.parametrize(
    ("path", "result"),
    [("", msgspec.UNSET), (".status.pages", 3), (".status.parts[*].n", [1, 2])],
)
def test_the_result_is_what_is_at_its_path(path: str, result: Any) -> None:
    seen = book(phase="Done", pages=3, parts=[{"n": 1}, {"n": 2}])
    found = READER.result(spec(json_path=path), seen)
    assert found is result if result is msgspec.UNSET else found == result


def test_a_missing_result_says_where_it_should_be() -> None:
    with pytest.raises(
        port.ResultError, match=r"jsonPath \.status\.nope is nowhere in Book b"
    ) as e:
        READER.result(spec(json_path=".status.nope"), book(phase="Done"))
    assert e.value.reason == R.INVALID_RESULT
    assert not e.value.is_loss


def test_objects_are_ended_by_deleting_them() -> None:
    how = port.Stop(5.0, "Killed")
    assert READER.stop(book(), how, now=0.0) is None
    assert READER.stop_again_s(book(), how, now=0.0) is None
    assert READER.pods_of(book()) == ""


def test_the_rules_of_an_object_are_in_its_annotation() -> None:
    given = spec(json_path=".status.pages")
    assert given.custom_resource is not None
    rules = msgspec.json.encode(given.custom_resource.result).decode()
    seen = book(phase="Done", pages=3)
    seen["metadata"]["annotations"] = {template.RESULT_ANNOTATION: rules}
    assert READER.result(READER.spec_of({}, seen), seen) == 3


@pytest.mark.parametrize(
    ("value", "as_bytes", "payload"),
    [
        ({"a": 1}, False, attempts.Payload("application/json", b'{"a":1}')),
        ("x", False, attempts.Payload("application/json", b'"x"')),
        ("x", True, attempts.Payload("application/octet-stream", b"x")),
    ],
)
def test_a_result_is_json_or_bytes(
    value: Any, payload: attempts.Payload, *, as_bytes: bool
) -> None:
    assert status_reader.payload(value, as_bytes=as_bytes) == payload


def test_bytes_must_be_text() -> None:
    with pytest.raises(port.ResultError, match="the result is no text: 3"):
        status_reader.payload(3, as_bytes=True)
