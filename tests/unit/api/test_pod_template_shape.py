"""The shape of Pod templates of workers."""

from typing import Any

import pytest

from kilnwork.api import pod_template_shape


@pytest.mark.parametrize(
    "template",
    [
        None,
        {},
        {"spec": {"containers": [{"name": "a", "unknown": 1}]}},
        {"metadata": {"labels": None}},
    ],
)
def test_valid_templates_have_no_problem(template: dict[str, Any] | None) -> None:
    assert pod_template_shape.shape_problem(template) == ""


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ({"metadata": {"labels": {"a": 1}}}, "metadata.labels"),
        ({"spec": {"containers": {}}}, "spec.containers"),
        ({"spec": {"tolerations": ["x"]}}, "spec.tolerations"),
    ],
)
def test_invalid_templates_are_refused_with_the_path(template: dict[str, Any], path: str) -> None:
    found = pod_template_shape.shape_problem(template)
    assert found.startswith("is no Pod template: ")
    assert path in found
