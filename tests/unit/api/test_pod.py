"""What keeps a Pod from running, in one sentence."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import pod


def _pod(status: dict[str, Any]) -> pod.Pod:
    return msgspec.convert({"metadata": {"name": "w-0"}, "status": status}, pod.Pod)


def _container(**state: Any) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{"name": "worker", **state}]}


ENDED = {"terminated": {"exitCode": 1, "reason": "Error"}}
UNSCHEDULED = {
    "phase": "Pending",
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available",
        }
    ],
}


@pytest.mark.parametrize(
    "status",
    [
        {},
        _container(state={"running": {"startedAt": "2026-01-01T00:00:00Z"}}),
        _container(state={"waiting": {"reason": "ContainerCreating"}}),
        {"initContainerStatuses": [{"name": "i", "state": {"waiting": {"reason": ""}}}]},
        _container(state={"terminated": {"exitCode": 0, "reason": "Completed"}}),
    ],
)
def test_starting_pod_has_no_trouble(status: dict[str, Any]) -> None:
    assert pod.trouble(_pod(status)) is None


@pytest.mark.parametrize(
    ("status", "kind", "sentence"),
    [
        (
            {"phase": "Failed", "reason": "Evicted", "message": "disk is full"},
            pod.TroubleKind.FAILING,
            "Pod w-0 failed: Evicted: disk is full",
        ),
        (
            UNSCHEDULED,
            pod.TroubleKind.UNSCHEDULABLE,
            "Pod w-0 has no node: Unschedulable: 0/3 nodes are available",
        ),
        (
            _container(state={"waiting": {"reason": "ErrImagePull", "message": "no such image"}}),
            pod.TroubleKind.NO_IMAGE,
            "Pod w-0: ErrImagePull: no such image",
        ),
        (
            _container(
                state={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 2s"}},
                lastState=ENDED,
            ),
            pod.TroubleKind.FAILING,
            "Pod w-0: CrashLoopBackOff: back-off 2s; it last ended with exit code 1 (Error)",
        ),
        (
            _container(state={"running": {}}, lastState=ENDED, restartCount=3),
            pod.TroubleKind.FAILING,
            "Pod w-0 was started again 3 times; it last ended with exit code 1 (Error)",
        ),
        (
            _container(state={"terminated": {"exitCode": 137, "signal": 9}}),
            pod.TroubleKind.FAILING,
            "Pod w-0 ended with signal 9",
        ),
        (
            {
                "containerStatuses": [
                    {"name": "fine", "state": {"running": {}}},
                    {"name": "bad", "state": {"waiting": {"reason": "ErrImagePull"}}},
                ]
            },
            pod.TroubleKind.NO_IMAGE,
            "container bad of Pod w-0: ErrImagePull",
        ),
    ],
)
def test_trouble_describes_the_problem(
    status: dict[str, Any], kind: pod.TroubleKind, sentence: str
) -> None:
    assert pod.trouble(_pod(status)) == (kind, sentence)


def test_ended_pod_is_over() -> None:
    assert _pod({"phase": "Succeeded"}).over
    assert not _pod({"phase": "Pending"}).over
