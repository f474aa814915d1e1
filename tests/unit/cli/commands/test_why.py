"""`kiln why` for objects that are not tasks: one sentence from the status."""

from typing import Any

import pytest

from kilnwork.api import api_resources, kinds
from kilnwork.cli.commands import why


def condition(kind: str, status: str, **facts: str) -> dict[str, str]:
    return {"type": kind, "status": status, **facts}


PENDING = {"phase": "Pending", "conditions": [condition("PodScheduled", "True")]}
PULL = {"waiting": {"reason": "CrashLoopBackOff", "message": "exit code 1, again in 4 s"}}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            {**PENDING, "phase": "Failed", "reason": "Refused", "message": "two containers"},
            "Pod a is Failed (Refused): two containers.",
        ),
        (
            {"phase": "Running", "conditions": [condition("Ready", "True")]},
            "Pod a is Running.",
        ),
        (
            {"phase": "Running", "containerStatuses": [{"name": "c", "state": PULL}]},
            "Pod a is Running (CrashLoopBackOff): exit code 1, again in 4 s.",
        ),
        (
            {
                "phase": "Running",
                "containerStatuses": [
                    {"name": "c", "state": PULL, "lastState": {"terminated": {"exitCode": 3}}}
                ],
            },
            (
                "Pod a is Running (CrashLoopBackOff): exit code 1, again in 4 s; "
                "it ended with exit code 3."
            ),
        ),
        (
            {
                "phase": "Pending",
                "conditions": [
                    condition("PodScheduled", "False", reason="NoNode", message="no node is ready")
                ],
            },
            "Pod a: PodScheduled is False (NoNode): no node is ready.",
        ),
        ({}, "Pod a: it has no status yet."),
    ],
)
def test_pod_sentence_names_its_state(status: dict[str, Any], expected: str) -> None:
    assert (
        why.sentence(api_resources.PODS, {"metadata": {"name": "a"}, "status": status}) == expected
    )


def test_common_reason_of_several_conditions_is_printed_once() -> None:
    facts = {"reason": "ImageNotPulled", "message": "Pod c-0: ErrImagePull: no such host"}
    away = [condition("Available", "False", **facts), condition("Ready", "False", **facts)]
    found = {"metadata": {"name": "c"}, "status": {"conditions": away}}
    assert why.sentence(kinds.TASK_CLUSTERS, found) == (
        "TaskCluster c: Available and Ready are False (ImageNotPulled): "
        "Pod c-0: ErrImagePull: no such host."
    )
