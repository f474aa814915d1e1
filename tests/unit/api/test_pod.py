"""What keeps a Pod from running, in one sentence."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import pod


def _pod(status: dict[str, Any]) -> pod.Pod:
    return msgspec.convert({"metadata": {"name": "w-0"}, "status": status}, pod.Pod)


def _container(**state: Any) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{"name": "worker", **state}]}


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ({}, ""),
        (_container(state={"running": {"startedAt": "2026-01-01T00:00:00Z"}}), ""),
        (_container(state={"waiting": {"reason": "ContainerCreating"}}), ""),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "disk is full"},
            "Pod w-0 failed: Evicted: disk is full",
        ),
        (
            _container(
                state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 2s"}},
                lastState={"terminated": {"exitCode": 1, "reason": "Error"}},
            ),
            "Pod w-0: CrashLoopBackOff: back-off 2s; it last ended with exit code 1 (Error)",
        ),
        (
            _container(state={"terminated": {"exitCode": 137, "signal": 9}}),
            "Pod w-0 ended with signal 9",
        ),
    ],
)
def test_trouble_names_what_is_wrong(status: dict[str, Any], sentence: str) -> None:
    assert pod.trouble(_pod(status)) == sentence


def test_pod_that_ended_is_over() -> None:
    assert _pod({"phase": "Succeeded"}).over
    assert not _pod({"phase": "Pending"}).over
