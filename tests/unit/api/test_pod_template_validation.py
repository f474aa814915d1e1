"""Rules for Pod templates of tasks and calls."""

from typing import Any

import pytest

from kilnwork.api import pod_template_validation, task


def fields(spec: dict[str, Any], *, call: bool = False, **metadata: Any) -> list[str]:
    made = task.PodTemplate(spec=spec, metadata=metadata)
    return [field for field, _ in pod_template_validation.problems(made, runs_call=call)]


ONE = [{"name": "a", "image": "x"}]


@pytest.mark.parametrize(
    ("spec", "call", "found"),
    [
        ({"containers": ONE}, False, []),
        ({}, True, []),
        ({}, False, ["pod.spec.containers"]),
        ({"containers": ONE, "restartPolicy": "OnFailure"}, False, []),
        ({"containers": ONE, "restartPolicy": "Always"}, False, ["pod.spec.restartPolicy"]),
        ({"restartPolicy": "OnFailure"}, True, ["pod.spec.restartPolicy"]),
        ({"containers": ONE * 2}, True, ["pod.spec.containers"]),
        ({"containers": [{"args": ["x"]}]}, True, ["pod.spec.containers[0].args"]),
        ({"containers": [{"env": {}}]}, False, ["pod.spec.containers[0].env"]),
        ({"containers": [{"env": [7]}]}, False, ["pod.spec.containers[0].env[0]"]),
        ({"containers": ONE, "volumes": None}, False, []),
        ({"containers": [{"image": "${task.nme}"}]}, False, ["pod.spec.containers[0].image"]),
    ],
)
def test_invalid_pod_template_is_refused(
    spec: dict[str, Any], *, call: bool, found: list[str]
) -> None:
    assert fields(spec, call=call) == found


def test_only_labels_and_annotations_may_be_given() -> None:
    assert fields({"containers": ONE}, labels={"a": "b"}) == []
    assert fields({"containers": ONE}, name="mine") == ["pod.metadata.name"]
