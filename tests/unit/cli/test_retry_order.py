"""Tasks and Jobs that run again together."""

from typing import Any

from kilnwork.cli import retry_order
from kilnwork.cli.retry_order import JOB, TASK


def a_task(state: str, *inputs: str, run: int = 1, asked: int = 1) -> dict[str, Any]:
    spec = {"run": asked, "inputs": [{"name": "x", "task": one} for one in inputs]}
    return {"spec": spec, "status": {"state": state, "run": run}}


def a_job(phase: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {}, "spec": spec, "status": {"phase": phase, "run": 1}}


ITEMS = {
    (TASK, "z"): a_task("Failed"),
    (TASK, "a"): a_task("Failed", "z", "well"),
    (TASK, "well"): a_task("Success"),
    (TASK, "after"): a_task("Failed", "well"),
    (TASK, "again"): a_task("Failed", "z", asked=2),
    (JOB, "j"): a_job("Failed", dependsOn=[{"kind": "Task", "name": "a"}]),
    (JOB, "k"): a_job(
        "Failed", template={"parallelism": {"withResultOf": {"job": "j"}}},
    ),
    (JOB, "l"): a_job("Succeeded", dependsOn=[{"name": "j"}]),
}  # fmt: skip


def test_connected_failures_are_in_dependency_order() -> None:
    whole = [(TASK, "z"), (TASK, "a"), (JOB, "j"), (JOB, "k")]
    for start in whole:
        assert retry_order.connected(ITEMS, [start]) == whole


def test_succeeded_and_restarted_objects_connect_nothing() -> None:
    assert retry_order.connected(ITEMS, [(TASK, "after")]) == [(TASK, "after")]
    assert retry_order.connected(ITEMS, [(TASK, "again"), (TASK, "well")]) == []
