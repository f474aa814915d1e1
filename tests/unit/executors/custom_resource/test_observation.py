"""What is seen of an object, and of a Workflow, means for the attempt that it is."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import attempts, object_task, reasons, task
from kilnwork.executors import port
from kilnwork.executors.custom_resource import observation, status_reader, template
from kilnwork.executors.workflow import reader as workflow

R = reasons.Reason
E = attempts.Ending
STOP = port.Stop(5.0, "Killed")
CREATED = "2026-11-23T20:00:00Z"
RESULT = object_task.ObjectResult(
    success_condition='.status.phase == "Succeeded"',
    failure_condition='.status.phase == "Failed"',
    running_condition='.status.phase == "Running"',
    json_path=".status.pages",
)
SPEC = task.TaskSpec(custom_resource=object_task.CustomResource(manifest={}, result=RESULT))
RULES, ARGO = status_reader.RuleReader(), workflow.WorkflowReader()


def book(status: Any = None, **metadata: Any) -> dict[str, Any]:
    finalizers = [template.FINALIZER, *metadata.pop("others", ())]
    given = {"name": "b", "generation": 2, "creationTimestamp": CREATED, "finalizers": finalizers}
    made: dict[str, Any] = {"kind": "Book", "metadata": {**given, **metadata}}
    return made if status is None else {**made, "status": status}


def flow(phase: str = "", *, stopped: str | None = None, **status: Any) -> dict[str, Any]:
    annotations = {} if stopped is None else {workflow.STOPPED_AT: stopped}
    metadata = {"name": "w", "finalizers": [template.FINALIZER], "annotations": annotations}
    spec = status.pop("spec", {})
    given = {"phase": phase, **status} if phase else status
    return {"kind": "Workflow", "metadata": metadata, "spec": spec, "status": given}


DELETED = {"deletionTimestamp": CREATED}
WAITS = {**DELETED, "others": ["x/y"]}


def seen(
    obj: dict[str, Any], stop: port.Stop | None = None, *, pods: tuple[str, ...] = ()
) -> port.Observation:
    reads: status_reader.Reader = ARGO if obj["kind"] == "Workflow" else RULES
    return observation.observe(obj, reads.read(SPEC, obj), stop, pods=pods)


@pytest.mark.parametrize(
    ("obj", "phase", "reason"),
    [
        (book(), "Staging", R.STARTING),
        (book({"phase": "Running", "observedGeneration": 1}), "Staging", R.STARTING),
        (book({"phase": "Running", "observedGeneration": 2}), "Running", R.STARTED),
        (book({"phase": "Running"}, **WAITS), "Running", R.STARTED),
        (book({"phase": "Failed"}, **WAITS), "Running", R.STARTED),
        (flow(), "Staging", R.STARTING),
        (flow("Pending"), "Staging", R.STARTING),
        (flow("Running"), "Running", R.STARTED),
        (flow("Running", spec={"suspend": True}), "Running", R.SUSPENDED),
        (
            flow("Running", nodes={"n": {"type": "Suspend", "phase": "Running", "name": "n"}}),
            "Running",
            R.SUSPENDED,
        ),
    ],
)
def test_unfinished_object_has_no_outcome(obj: dict[str, Any], phase: str, reason: str) -> None:
    found = seen(obj)
    assert (found.phase, found.reason, found.outcome) == (phase, reason, None)


@pytest.mark.parametrize(
    ("obj", "stop", "ending", "reason"),
    [
        (book({"phase": "Succeeded"}), None, E.SUCCEEDED, R.SUCCEEDED),
        (book({"phase": "Succeeded"}, **WAITS), None, E.SUCCEEDED, R.SUCCEEDED),
        (book({"phase": "Failed"}), None, E.FAILED, R.OBJECT_FAILED),
        (book({"phase": "Running"}, **DELETED), None, E.LOST, R.OBJECT_LOST),
        (book({"phase": "Failed"}, **DELETED), None, E.LOST, R.OBJECT_LOST),
        # what it was before its end was asked for counts
        (book({"phase": "Succeeded"}), STOP, E.SUCCEEDED, R.SUCCEEDED),
        (book({"phase": "Failed"}), STOP, E.FAILED, R.OBJECT_FAILED),
        (book({"phase": "Succeeded"}, **DELETED), STOP, E.STOPPED, "Killed"),
        (book({"phase": "Running"}, **DELETED), STOP, E.STOPPED, "Killed"),
        (flow("Succeeded"), None, E.SUCCEEDED, R.SUCCEEDED),
        (flow("Failed", message="no"), None, E.FAILED, R.WORKFLOW_FAILED),
        (flow("Error", message="no"), None, E.FAILED, R.EXECUTOR_ERROR),
        (flow("Failed"), STOP, E.FAILED, R.WORKFLOW_FAILED),
        (flow("Failed", stopped="1.0"), STOP, E.STOPPED, "Killed"),
        (flow("Succeeded", stopped="1.0"), STOP, E.STOPPED, "Killed"),
        (flow("Failed", stopped="by hand"), STOP, E.STOPPED, "Killed"),
    ],
)
def test_how_it_ends(
    obj: dict[str, Any], stop: port.Stop | None, ending: attempts.Ending, reason: str
) -> None:
    outcome = seen(obj, stop).outcome
    assert outcome is not None
    assert (outcome.ending, outcome.reason, outcome.proof) == (ending, reason, True)


@pytest.mark.parametrize(
    "obj",
    [
        book({"phase": "Running"}),
        book({"phase": "Running"}, **WAITS),
        book({"phase": "Succeeded"}, **WAITS),
        flow("Running", stopped="1.0"),
        flow(),
    ],
)
def test_a_kill_needs_proof(obj: dict[str, Any]) -> None:
    assert seen(obj, STOP).outcome is None


def test_a_workflow_is_not_over_while_one_of_its_pods_is_not() -> None:
    found = seen(flow("Failed", stopped="1.0"), STOP, pods=("p1", "p2"))
    assert found.outcome is None
    assert (found.reason, found.message) == (R.STARTED, "waiting for the end of Pod p1 and 1 more")


def test_nothing_there_is_proof_after_a_kill_and_else_a_loss() -> None:
    killed, lost = (
        observation.gone("Book b", STOP).outcome,
        observation.gone("Book b", None).outcome,
    )
    assert killed is not None
    assert lost is not None
    assert (killed.ending, killed.proof) == (E.STOPPED, True)
    assert (lost.ending, lost.reason) == (E.LOST, R.OBJECT_LOST)


def test_without_a_running_rule_it_runs_since_it_was_created() -> None:
    result = msgspec.structs.replace(RESULT, running_condition=None)
    spec = task.TaskSpec(custom_resource=object_task.CustomResource(manifest={}, result=result))
    read = RULES.read(spec, book())
    assert (read.state, read.started) == (status_reader.State.RUNNING, 1795464000.0)


def test_an_object_that_is_too_large_to_be_judged_goes_on_and_says_so() -> None:
    found = seen(book({"phase": "x" * (1 << 20)}))
    assert found.outcome is None
    assert "cannot be judged: it has more than" in found.message


def test_a_failure_says_what_is_in_its_message() -> None:
    assert RULES.read(SPEC, book({"phase": "Failed", "message": "no ink"})).message == (
        "Book b: no ink"
    )
    assert RULES.read(SPEC, book({"phase": "Failed", "message": 3})).message == "Book b has failed"


@pytest.mark.parametrize(
    ("pages", "path", "found"),
    [
        (3, ".status.pages", 3),
        ([1, 2], ".status.pages", [1, 2]),
        ([1, 2], ".status.pages[*]", [1, 2]),
    ],
)
def test_a_result_is_what_is_at_its_path(pages: Any, path: str, found: Any) -> None:
    result = msgspec.structs.replace(RESULT, json_path=path)
    spec = task.TaskSpec(custom_resource=object_task.CustomResource(manifest={}, result=result))
    assert RULES.result(spec, book({"pages": pages})) == found


def test_a_result_as_bytes_must_be_a_text() -> None:
    made = status_reader.payload("é", as_bytes=True)
    assert (made.media_type, made.data) == ("application/octet-stream", "é".encode())
    with pytest.raises(port.ResultError, match="the result is no text: 3"):
        status_reader.payload(3, as_bytes=True)


def test_the_result_of_a_workflow_is_its_global_outputs() -> None:
    parameters = [{"name": "a", "value": "1"}, {"name": "b", "value": "x"}]
    assert ARGO.result(SPEC, flow("Succeeded", outputs={"parameters": parameters})) == {
        "a": "1",
        "b": "x",
    }
    assert ARGO.result(SPEC, flow("Succeeded", outputs={"artifacts": []})) is msgspec.UNSET


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ("nonsense", 'status.outputs is "nonsense"; it must be an object'),
        ({"parameters": {}}, "status.outputs.parameters is an object with 0 members"),
        ({"parameters": [{"name": "a"}, None]}, r"parameters\[1\] is null; it must be an object"),
        ({"parameters": ["a"]}, r'parameters\[0\] is "a"'),
        ({"parameters": [{"value": "1"}]}, "it must be an object with a name"),
    ],
)
def test_outputs_that_are_none_of_argos_are_refused(outputs: Any, message: str) -> None:
    with pytest.raises(port.ResultError, match=message) as refused:
        ARGO.result(SPEC, flow("Succeeded", outputs=outputs))
    assert refused.value.reason == R.INVALID_RESULT


def test_a_failed_step_gives_the_exit_code() -> None:
    def node(code: str, finished: str, **more: Any) -> dict[str, Any]:
        made = {"type": "Pod", "phase": "Failed", "finishedAt": finished}
        return {**made, "outputs": {"exitCode": code}, **more}

    nodes = {
        "a": node("4", "2026-11-23T20:00:09Z"),
        "b": node("3", "2026-11-23T20:00:01Z"),
        "c": node("0", "2026-11-23T20:00:00Z", phase="Succeeded"),
    }
    assert ARGO.read(SPEC, flow("Failed", nodes=nodes)).exit_code == 3
    assert ARGO.read(SPEC, flow("Failed", compressedNodes="H4sI")).exit_code is None


def test_a_workflow_is_stopped_then_terminated_and_one_that_no_controller_has_seen_deleted() -> (
    None
):
    assert ARGO.stop(flow(), STOP, now=100.0) is None
    patch = ARGO.stop(flow("Running", spec={"suspend": True}), STOP, now=100.0)
    assert patch == {
        "metadata": {"annotations": {workflow.STOPPED_AT: "100.000"}},
        "spec": {"shutdown": "Stop", "suspend": None},
    }
    stopped = flow("Running", stopped="100.000", spec={"shutdown": "Stop"})
    assert ARGO.stop(stopped, STOP, now=104.9) == {}
    assert ARGO.stop_again_s(stopped, STOP, now=104.0) == pytest.approx(1.0)
    assert ARGO.stop(stopped, STOP, now=105.0) == {"spec": {"shutdown": "Terminate"}}
    ended = flow("Running", stopped="100.000", spec={"shutdown": "Terminate"})
    assert ARGO.stop(ended, STOP, now=200.0) == {}
    assert ARGO.stop_again_s(ended, STOP, now=200.0) is None


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({}, "w: no workflow-controller has seen it yet"),
        ({"phase": "", "startedAt": CREATED}, "w: its status has no phase"),
        ({"phase": "Weird"}, 'w: status.phase is "Weird", which is no phase of Argo'),
        (
            {"phase": "Running", "nodes": {"n": {"type": "Suspend", "phase": "Running"}}},
            "w: a step waits to be resumed",
        ),
    ],
)
def test_a_workflow_says_what_it_waits_for(status: Any, said: str) -> None:
    obj = flow(**status)
    assert ARGO.read(SPEC, obj).message == f"Workflow {said}"
    assert (ARGO.stop(obj, STOP, now=100.0) is None) == (not status)


def test_times_that_are_none_are_ignored() -> None:
    odds: list[Any] = ["yesterday", 7, ["x"], {}, "99999-01-01T00:00:00Z"]
    for odd in odds:
        read = ARGO.read(SPEC, flow("Succeeded", startedAt=odd, finishedAt=odd))
        assert (read.state, read.started, read.finished) == (
            status_reader.State.SUCCEEDED,
            None,
            None,
        )


@pytest.mark.parametrize(
    "odd", [None, 3, "x", [], {"nodes": 3}, {"outputs": "x"}, {"phase": "Odd"}, {"phase": ["x"]}]
)
def test_whatever_a_status_is_it_is_read(odd: Any) -> None:
    read = ARGO.read(SPEC, {"kind": "Workflow", "metadata": {"name": "w"}, "status": odd})
    assert read.state is status_reader.State.STAGING
