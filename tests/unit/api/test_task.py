"""Names of queues, and which executor a task has."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import task


def template(**given: Any) -> task.TaskTemplate:
    return msgspec.convert(given, task.TaskTemplate)


def test_executor_queue_name_round_trips() -> None:
    name = task.executor_queue("http", {"zone": "b", "net": "a"})
    assert name == "executor/http?net=a,zone=b"
    assert task.queue_labels(name) == ("executor/http", {"net": "a", "zone": "b"})
    assert task.queue_labels("executor/http") == ("executor/http", {})


def test_portion_queue_name_round_trips() -> None:
    name = task.portion_queue("c", 7)
    assert task.queue_portion(name) == ("c", 7)
    assert task.queue_cluster(name) == "c"
    assert task.queue_portion("c") is None
    assert task.queue_cluster("c") == "c"


@pytest.mark.parametrize(
    ("name", "is_executor", "is_external"),
    [("c", False, False), ("executor/pod", True, False), ("executor/external/x", True, True)],
)
def test_kinds_of_queues_are_distinguished(
    name: str, *, is_executor: bool, is_external: bool
) -> None:
    assert task.is_executor_queue(name) is is_executor
    assert task.is_external_queue(name) is is_external


REQUEST = {"request": {"method": "POST", "url": "http://a/"}}


@pytest.mark.parametrize(
    ("given", "executor"),
    [
        ({"command": ["x"]}, "worker"),
        ({"call": {"function": "m:f"}}, "worker"),
        ({"pod": {"spec": {}}}, "pod"),
        ({"http": REQUEST}, "http"),
        ({"workflow": {"spec": {}}}, "workflow"),
    ],
)
def test_executor_of_a_task(given: dict[str, Any], executor: str) -> None:
    assert template(**given).executor == executor


def test_request_is_repeated_only_if_idempotent() -> None:
    assert template(command=["x"]).may_repeat
    assert not template(http=REQUEST).may_repeat
    assert template(http={**REQUEST, "idempotent": True}).may_repeat
    get = {"request": {"method": "GET", "url": "http://a/"}}
    assert template(http=get).may_repeat


def test_final_states() -> None:
    assert {s for s in task.State if s.final} == {"Success", "Failed", "Killed"}
