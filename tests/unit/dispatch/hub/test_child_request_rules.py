"""What a task may ask for, and when two wishes are the same."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import attempts, object_task
from kilnwork.api import task as api_task
from kilnwork.channel import messages
from kilnwork.dispatch.hub import child_request_rules
from kilnwork.kit import ids

PARENT = attempts.AttemptRef(ids.TaskId(bytes(16)), 1, 1)
GOOD = messages.Spawn(1, PARENT, 3, None, None, api_task.TaskSpec(command=("true",)), b'{"a":1}')


def pod(spec: dict[str, Any]) -> api_task.TaskSpec:
    return api_task.TaskSpec(pod=api_task.PodTemplate(spec=spec))


def flow(entrypoint: str) -> api_task.TaskSpec:
    template = object_task.WorkflowTemplate(spec={"entrypoint": entrypoint})
    return api_task.TaskSpec(workflow=template)


POD = pod({"containers": [{"name": "main", "image": "busybox:${task.attempt}"}]})


def changed(**fields: object) -> messages.Spawn:
    return msgspec.structs.replace(GOOD, **fields)


def test_a_plain_child_is_allowed() -> None:
    assert child_request_rules.refusal(GOOD) == ""
    assert child_request_rules.child_key(GOOD) == "#3"
    assert child_request_rules.child_key(changed(key="#3")) == "=#3"


@pytest.mark.parametrize(
    ("message", "names"),
    [
        (changed(spec=api_task.TaskSpec(suspend=True)), "spec.suspend"),
        (changed(spec=api_task.TaskSpec(input_object="x")), "spec.inputObject"),
        (changed(spec=api_task.TaskSpec(kill_timestamp="2026-01-01T00:00:00Z")), "killTimestamp"),
        (changed(spec=api_task.TaskSpec(run=2)), "spec.run"),
        (changed(spec=api_task.TaskSpec(args=("x" * 800_000,))), "at most 786432"),
        (changed(inputs=b"[1]"), "inputs"),
        (changed(inputs=b"{"), "inputs"),
        (changed(spec=POD, name=""), "name"),
        (changed(spec=pod({"containers": "x"})), "spec.pod.spec.containers: must be a list"),
        (changed(spec=pod({"containers": [{"image": "${task.nome}"}]})), "${task.name}"),
        (changed(spec=flow("${task.inputs.b}")), "${task.inputs.a}"),
        (changed(name=""), "name"),
        (changed(key="k" * 254), "key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_field_that_a_child_cannot_have_is_named(message: messages.Spawn, names: str) -> None:
    assert names in child_request_rules.refusal(message)


def test_a_pod_is_a_child_where_there_are_executors() -> None:
    assert child_request_rules.refusal(changed(spec=POD)) == ""
    refusal = child_request_rules.refusal(changed(spec=POD), executors=False)
    assert refusal.startswith("spec.pod: kiln.start() runs tasks on its own worker only")


def test_a_call_may_run_in_a_pod_where_there_are_executors() -> None:
    spec = msgspec.structs.replace(pod({}), call=api_task.Call("a:b"))
    assert child_request_rules.template_refusal(spec) == ""
    refusal = child_request_rules.template_refusal(spec, executors=False)
    assert refusal.startswith("spec.pod: kiln.start() runs tasks on its own worker only")
    spec = msgspec.structs.replace(pod({"containers": 3}), call=api_task.Call("a:b"))
    assert "spec.pod.spec.containers: must be" in child_request_rules.template_refusal(spec)


def test_a_workflow_is_a_child_and_a_template_with_its_inputs_as_variables() -> None:
    spec = flow("${task.inputs.a}")
    assert child_request_rules.refusal(changed(spec=spec, inputs=b'{"a": 1}')) == ""
    assert child_request_rules.template_refusal(spec) == ""
    refusal = child_request_rules.template_refusal(flow("${task.nome}"))
    assert "did you mean ${task.name}" in refusal


def test_the_order_of_keys_makes_no_difference() -> None:
    spec = GOOD.spec
    assert child_request_rules.digest(spec, b'{"a":1,"b":2}') == child_request_rules.digest(
        spec, b'{ "b": 2, "a": 1 }'
    )
    assert child_request_rules.digest(spec, b'{"a":1}') != child_request_rules.digest(
        spec, b'{"a":2}'
    )
    assert child_request_rules.digest(spec, None) != child_request_rules.digest(spec, b"{}")
