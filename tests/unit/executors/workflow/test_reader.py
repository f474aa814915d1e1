"""What a Workflow of Argo says, and how it is asked to end."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import reasons, task
from kilnwork.executors import port
from kilnwork.executors.custom_resource.status_reader import State
from kilnwork.executors.workflow import reader

R = reasons.Reason
READER = reader.WorkflowReader()
STOP = port.Stop(5.0, "Killed")


def flow(status: Any = None, *, stopped: str | None = None, **spec: Any) -> dict[str, Any]:
    annotations = {} if stopped is None else {reader.STOPPED_AT: stopped}
    metadata = {"name": "w", "annotations": annotations}
    return {"kind": "Workflow", "metadata": metadata, "spec": spec, "status": status}


def read(status: Any = None, **spec: Any) -> Any:
    return READER.read(task.TaskSpec(), flow(status, **spec))


@pytest.mark.parametrize(
    ("phase", "state", "reason"),
    [
        ("", State.STAGING, R.STARTING),
        ("Pending", State.STAGING, R.STARTING),
        ("Running", State.RUNNING, R.STARTED),
        ("Succeeded", State.SUCCEEDED, R.SUCCEEDED),
        ("Failed", State.FAILED, R.WORKFLOW_FAILED),
        ("Error", State.FAILED, R.EXECUTOR_ERROR),
        ("Odd", State.STAGING, R.STARTING),
        (7, State.STAGING, R.STARTING),
    ],
)
def test_the_phase_decides(phase: Any, state: State, reason: R) -> None:
    seen = read({"phase": phase})
    assert (seen.state, seen.reason) == (state, reason)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (None, "Workflow w: no workflow-controller has seen it yet"),
        ({"phase": ""}, "Workflow w: no workflow-controller has seen it yet"),
        ({"conditions": [1]}, "Workflow w: its status has no phase"),
        ({"phase": "Pending"}, "Workflow w waits to be started"),
        ({"phase": "Odd"}, 'Workflow w: status.phase is "Odd", which is no phase of Argo'),
        ({"phase": "Failed", "message": "child failed"}, "Workflow w: child failed"),
        ({"phase": "Running"}, "Workflow w"),
    ],
)
def test_the_message_says_what_is_known(status: Any, message: str) -> None:
    assert read(status).message == message


def test_a_running_one_that_is_suspended_says_so() -> None:
    seen = read({"phase": "Running"}, suspend=True)
    assert (seen.reason, seen.message) == (R.SUSPENDED, "Workflow w: spec.suspend is true")
    step = {"type": "Suspend", "phase": "Running", "displayName": "approve"}
    seen = read({"phase": "Running", "nodes": {"a": {"type": "Pod"}, "b": step}})
    assert seen.message == "Workflow w: step approve waits to be resumed"
    over = {**step, "phase": "Succeeded"}
    assert read({"phase": "Running", "nodes": {"b": over}}).reason == R.STARTED


def test_times_that_are_none_are_unknown() -> None:
    seen = read({"phase": "Running", "startedAt": "2026-11-23T20:00:00Z", "finishedAt": 7})
    assert (seen.started, seen.finished) == (1795464000.0, None)


def test_the_exit_code_is_that_of_the_first_step_that_failed() -> None:
    nodes = {
        "ok": {"type": "Pod", "phase": "Succeeded", "outputs": {"exitCode": "0"}},
        "late": {
            "type": "Pod", "phase": "Failed", "finishedAt": "2", "outputs": {"exitCode": "9"},
        },
        "first": {
            "type": "Pod", "phase": "Error", "finishedAt": "1", "outputs": {"exitCode": "3"},
        },
    }  # fmt: skip
    assert read({"phase": "Failed", "nodes": nodes}).exit_code == 3
    assert read({"phase": "Running", "nodes": nodes}).exit_code is None


def test_the_result_is_its_output_parameters() -> None:
    outputs = {"parameters": [{"name": "a", "value": "1"}, {"name": "b"}]}
    found = READER.result(task.TaskSpec(), flow({"outputs": outputs}))
    assert found == {"a": "1", "b": None}
    assert READER.result(task.TaskSpec(), flow({})) is msgspec.UNSET


@pytest.mark.parametrize(
    ("outputs", "field"),
    [
        (7, "status.outputs"),
        ({"parameters": {}}, "status.outputs.parameters"),
        ({"parameters": [{"name": 1}]}, r"status.outputs.parameters\[0\]"),
    ],
)
def test_outputs_that_are_none_name_their_field(outputs: Any, field: str) -> None:
    with pytest.raises(port.ResultError, match=f"Workflow w: {field} is ") as caught:
        READER.result(task.TaskSpec(), flow({"outputs": outputs}))
    assert caught.value.reason == R.INVALID_RESULT


RUNNING = {"phase": "Running"}


def test_workflow_is_stopped_and_after_the_grace_terminated() -> None:
    first = READER.stop(flow(RUNNING), STOP, now=100.0)
    assert first == {
        "metadata": {"annotations": {reader.STOPPED_AT: "100.000"}},
        "spec": {"shutdown": "Stop", "suspend": None},
    }
    asked = flow(RUNNING, stopped="100.000", shutdown="Stop")
    assert READER.stop(asked, STOP, now=104.9) == {}
    assert READER.stop(asked, STOP, now=105.0) == {"spec": {"shutdown": "Terminate"}}
    done = flow(RUNNING, stopped="100.000", shutdown="Terminate")
    assert READER.stop(done, STOP, now=200.0) == {}


def test_workflow_is_observed_again_after_the_grace() -> None:
    assert READER.stop_again_s(flow(RUNNING), STOP, now=100.0) == 5.0
    asked = flow(RUNNING, stopped="100.000", shutdown="Stop")
    assert READER.stop_again_s(asked, STOP, now=103.0) == 2.0
    assert READER.stop_again_s(asked, STOP, now=110.0) == 0.05
    done = flow(RUNNING, stopped="100.000", shutdown="Terminate")
    assert READER.stop_again_s(done, STOP, now=110.0) is None


def test_a_time_that_is_not_ours_was_long_ago() -> None:
    seen = flow(RUNNING, stopped="yesterday")
    assert READER.stop(seen, STOP, now=6.0) == {"spec": {"shutdown": "Terminate"}}
    assert READER.read(task.TaskSpec(), seen).stopping


def test_workflow_that_no_controller_has_seen_is_deleted() -> None:
    assert READER.stop(flow(), STOP, now=0.0) is None


def test_its_pods_are_found_by_argos_label() -> None:
    assert READER.pods_of(flow()) == "workflows.argoproj.io/workflow=w"
