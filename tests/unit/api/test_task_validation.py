"""Rules of our kinds beyond their schemas."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import task, task_cluster, task_validation

CALL_IN_POD = {"command": (), "call": {"function": "m:f"}}


def declared(**spec: Any) -> task.Task:
    return msgspec.convert({"metadata": {"name": "x"}, "spec": spec}, task.Task)


def fields(**spec: Any) -> list[str]:
    return [field for field, _ in task_validation.validate_task(declared(**spec))]


def test_task_of_the_counter_example_is_valid() -> None:
    assert fields(clusterName="counter", command=["python3", "counter.py"], inputObject="in") == []


def test_call_instead_of_a_command_is_valid() -> None:
    call = {"function": "pkg.mod:Class.method", "args": [1], "kwargs": {"a": None}}
    assert fields(call=call, inputs=[{"name": "b", "object": "o"}]) == []
    assert fields(call={"function": "<lambda>", "code": "sha256:00"}) == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"clusterName": "A"}, "spec.clusterName"),
        ({"inputObject": "a/b"}, "spec.inputObject"),
        ({"outputObject": "-"}, "spec.outputObject"),
        ({"command": ["a", "b\0"]}, "spec.command[1]"),
        ({"args": ["\0"]}, "spec.args[0]"),
        ({"env": [{"name": "A", "value": "\0"}]}, "spec.env[0].value"),
        ({"inputs": [{"name": "a"}]}, "spec.inputs[0]"),
        ({"inputs": [{"name": "a", "object": "o", "task": "t"}]}, "spec.inputs[0]"),
        ({"inputs": [{"name": "a", "object": "O"}]}, "spec.inputs[0].object"),
        (
            {"command": (), "pod": {"spec": {"containers": [{"image": "${task.x}"}]}}},
            "spec.pod.spec.containers[0].image",
        ),
        ({"pod": {"spec": {"containers": [{}]}}, "args": ["a"]}, "spec.pod"),
        ({"command": (), "pod": {"spec": {}}}, "spec.pod.spec.containers"),
        (
            {"command": (), "pod": {"spec": {"containers": [{}], "restartPolicy": "Always"}}},
            "spec.pod.spec.restartPolicy",
        ),
        (CALL_IN_POD | {"pod": {"spec": {"containers": []}}}, "spec.pod.spec.containers"),
        (CALL_IN_POD | {"pod": {"spec": {"containers": [{}, {}]}}}, "spec.pod.spec.containers"),
        (
            CALL_IN_POD | {"pod": {"spec": {"containers": [{"args": ["a"]}]}}},
            "spec.pod.spec.containers[0].args",
        ),
        (
            CALL_IN_POD | {"pod": {"spec": {"restartPolicy": "OnFailure"}}},
            "spec.pod.spec.restartPolicy",
        ),
        ({"inputs": [{"name": "a", "task": "t", "path": "$["}]}, "spec.inputs[0].path"),
        ({"inputs": [{"name": "a", "task": "t", "path": "$[1e5]"}]}, "spec.inputs[0].path"),
        ({"inputObject": "o", "inputs": [{"name": "input", "task": "t"}]}, "spec.inputs[0].name"),
        ({"call": {"function": "m:f"}, "command": ["a"]}, "spec.call"),
        ({"call": {"function": "m:f"}, "args": ["a"]}, "spec.call"),
        ({"call": {"function": "m:f"}, "env": [{"name": "KILN_A"}]}, "spec.env[0].name"),
        ({"call": {"function": "m:f"}, "image": "other"}, "spec.image"),
        ({"call": {"function": "m.f"}}, "spec.call.function"),
        ({"call": {"function": "a-b:f"}}, "spec.call.function"),
        (
            {"call": {"function": "m:f", "kwargs": {"input": 1}}, "inputObject": "o"},
            "spec.call.kwargs.input",
        ),
        ({"killTimestamp": "tomorrow"}, "spec.killTimestamp"),
        ({"killTimestamp": "2026-01-02T03:04:05"}, "spec.killTimestamp"),
    ],
)
def test_invalid_field_is_named(spec: dict[str, Any], field: str) -> None:
    assert fields(**spec) == [field]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": [1]}, "spec.containers[0]"),
        ({"containers": {"name": "a"}}, "spec.containers"),
        ({"containers": [{"env": {"A": "b"}}]}, "spec.containers[0].env"),
        ({"containers": [{"env": ["A=b"]}]}, "spec.containers[0].env[0]"),
        ({"containers": [{"env": [{}, None]}]}, "spec.containers[0].env[1]"),
        ({"containers": [{"volumeMounts": 5}]}, "spec.containers[0].volumeMounts"),
        ({"containers": [{"resources": "x"}]}, "spec.containers[0].resources"),
        (
            {"containers": [{"resources": {"limits": ["cpu"]}}]},
            "spec.containers[0].resources.limits",
        ),
        (
            {"containers": [{"securityContext": "${task.name}"}]},
            "spec.containers[0].securityContext",
        ),
        ({"containers": [{}], "initContainers": {"name": "a"}}, "spec.initContainers"),
        ({"containers": [{}], "volumes": "x"}, "spec.volumes"),
        ({"containers": [{}], "volumes": ["x"]}, "spec.volumes[0]"),
        ({"containers": [{"env": [{"name": {}}]}]}, "spec.containers[0].env[0].name"),
    ],
)
def test_pod_of_the_wrong_shape_is_refused(spec: dict[str, Any], field: str) -> None:
    assert fields(pod={"spec": spec}) == [f"spec.pod.{field}"]


def test_labels_of_a_pod_must_be_an_object() -> None:
    spec = {"containers": [{"env": None, "resources": None}], "volumes": None}
    assert fields(pod={"spec": spec, "metadata": {"labels": {"a": "b"}}}) == []
    assert fields(pod={"spec": spec, "metadata": {"labels": []}}) == ["spec.pod.metadata.labels"]


def test_jsonpath_of_an_input_is_accepted() -> None:
    assert fields(inputs=[{"name": "a", "task": "t", "path": "$.value[0]"}]) == []


def test_run_may_only_rise() -> None:
    old, new = declared(run=2), declared(run=1)
    assert task_validation.validate_task_update(new, old) == []
    [(field, why)] = task_validation.validate_task_update(old, new)
    assert field == "spec.run"
    assert "only rise" in why


@pytest.mark.parametrize(
    ("runtime", "slots", "bad"),
    [
        ("EphemeralContainers", 100, False),
        ("EphemeralContainers", 101, True),
        ("Agent", 1000, False),
    ],
)
def test_slots_of_container_workers_are_limited(runtime: str, slots: int, *, bad: bool) -> None:
    cluster = msgspec.convert(
        {"metadata": {"name": "x"}, "spec": {"runtime": runtime, "slotsPerWorker": slots}},
        task_cluster.TaskCluster,
    )
    found = dict(task_validation.validate_task_cluster(cluster))
    assert list(found) == (["spec.slotsPerWorker"] if bad else [])
    assert not bad or "at most 100 with runtime EphemeralContainers, not 101" in found.popitem()[1]


def test_invalid_names_in_a_cluster_are_refused() -> None:
    cluster = msgspec.convert(
        {"metadata": {"name": "x"}, "spec": {"deploymentName": "A", "serviceAccountName": "b_"}},
        task_cluster.TaskCluster,
    )
    assert [f for f, _ in task_validation.validate_task_cluster(cluster)] == [
        "spec.deploymentName",
        "spec.serviceAccountName",
    ]
