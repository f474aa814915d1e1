"""Tasks as JSON documents."""

import msgspec
import pytest

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.kit import ids
from kilnwork.server import task_documents
from support import view_samples

ERROR = attempts.ErrorInfo(
    "builtins.ValueError",
    "no",
    "Traceback",
    pickled=b"x",
    notes=("a note",),
    cause=attempts.ErrorInfo("KeyError", "'a'", ""),
)


def _payload(error: attempts.ErrorInfo = ERROR) -> attempts.Payload:
    return attempts.Payload(attempts.ERROR, msgspec.msgpack.encode(error))


def test_members_without_a_value_are_left_out() -> None:
    assert task_documents.task(view_samples.waiting()) == {
        "id": view_samples.UID,
        "namespace": "default",
        "name": "a",
        "clusterName": "default",
        "declared": True,
        "run": 1,
        "state": "Pending",
        "reason": "NoWorker",
        "message": "",
        "attempts": 0,
        "failures": 0,
        "losses": 0,
        "creationTime": "1970-01-01T00:00:00.000000Z",
    }


@pytest.mark.parametrize(
    ("facts", "member", "value"),
    [
        ({"cluster": api_task.executor_queue("pod")}, "clusterName", None),
        ({"suspended": True}, "suspended", True),
        ({"suspended": True, "state": api_task.State.SUCCESS}, "suspended", None),
        ({"attempt": 3, "unstarted": 1}, "attempts", 2),
        ({"exit_code": 0}, "exitCode", 0),
        ({"stopped": False}, "stopped", False),
        ({"usage": attempts.Usage(0.12345678, 7)}, "cpuSeconds", 0.123457),
        ({"usage": attempts.Usage(0.1, 7)}, "peakMemoryBytes", 7),
        ({"children": api_task.ChildCounts(running=1)}, "children", None),
        ({"finished": 1.5}, "finishTime", "1970-01-01T00:00:01.500000Z"),
    ],
)
def test_each_fact_of_task_is_a_member(
    facts: dict[str, object], member: str, value: object
) -> None:
    assert task_documents.task(view_samples.waiting(**facts)).get(member) == value


def test_parent_is_shown_by_name_and_function() -> None:
    parent = view_samples.running(name="p", function="m:f")
    found = task_documents.task(view_samples.waiting(), parent=parent)
    assert (found["parentName"], found["parentFunction"]) == ("p", "m:f")


@pytest.mark.parametrize(
    ("payload", "result"),
    [
        (
            attempts.Payload(attempts.JSON, b"[1]"),
            {"mediaType": attempts.JSON, "sizeBytes": 3, "value": msgspec.Raw(b"[1]")},
        ),
        (
            attempts.Payload(attempts.JSON, b"", digest=b"\1" * 32, size=9),
            {"mediaType": attempts.JSON, "sizeBytes": 9, "digest": "sha256:" + "01" * 32},
        ),
        (attempts.Payload("text/plain", b"ab"), {"mediaType": "text/plain", "sizeBytes": 2}),
        (_payload(), None),
    ],
)
def test_only_json_is_shown_as_a_value(
    payload: attempts.Payload, result: dict[str, object] | None
) -> None:
    assert task_documents.task(view_samples.waiting(result=payload)).get("result") == result


def test_error_is_shown_with_cause_and_without_pickle() -> None:
    assert task_documents.error(view_samples.waiting(result=_payload())) == {
        "type": "builtins.ValueError",
        "text": "no",
        "notes": ["a note"],
        "traceback": "Traceback",
        "cause": {"type": "KeyError", "text": "'a'"},
    }


@pytest.mark.parametrize(
    "payload",
    [
        None,
        attempts.Payload(attempts.JSON, _payload().data),
        attempts.Payload(attempts.ERROR, _payload().data, digest=b"\1" * 32, size=9),
        attempts.Payload(attempts.ERROR, b"\xc1"),
    ],
)
def test_undecodable_error_is_none(payload: attempts.Payload | None) -> None:
    assert task_documents.error(view_samples.waiting(result=payload)) is None


def test_counts_are_summed_by_state_in_the_order_of_states() -> None:
    success, pending = api_task.State.SUCCESS, api_task.State.PENDING
    found = task_documents.counts(
        [
            model.TaskCount("a", declared=False, function="m:f", state=success, number=2),
            model.TaskCount("a", declared=True, function="", state=pending, number=1),
            model.TaskCount("b", declared=True, function="", state=success, number=3),
        ]
    )
    assert list(found["states"].items()) == [("Pending", 1), ("Success", 5)]
    assert found["items"][0] == {
        "namespace": "a",
        "function": "m:f",
        "declared": False,
        "state": "Success",
        "number": 2,
    }


def test_retried_tasks_are_listed() -> None:
    value = model.Retried(tasks=(ids.task_id(view_samples.UID),), declared=("a",), left=2)
    assert task_documents.retried(value) == {
        "tasks": [view_samples.UID],
        "objects": ["a"],
        "waiting": 2,
    }


@pytest.mark.parametrize(
    ("queue", "own_pod", "of_executor"),
    [
        ("default", False, False),
        (api_task.executor_queue("pod"), True, False),
        (api_task.executor_queue("http"), False, True),
        (api_task.executor_queue("external/x"), False, True),
    ],
)
def test_queue_tells_own_pod_and_executor_apart(
    queue: str, *, own_pod: bool, of_executor: bool
) -> None:
    found = task_documents.facts(view_samples.waiting(cluster=queue))
    assert (found.own_pod, found.of_executor) == (own_pod, of_executor)


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (None, ""),
        (model.Progress(fraction=0.4, message="page 3"), "40 %, page 3"),
        (model.Progress(fraction=None, message="page 3"), "page 3"),
        (model.Progress(fraction=0.0, message=""), "0 %"),
    ],
)
def test_progress_is_a_percentage_and_a_message(progress: model.Progress | None, text: str) -> None:
    assert task_documents.facts(view_samples.waiting(progress=progress)).progress == text
