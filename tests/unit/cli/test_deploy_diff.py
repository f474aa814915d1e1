"""Comparison of two versions of a JobConfig, field by field."""

import copy
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from kilnwork.cli import deploy_diff


def config(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "labels": {"x": "1"}}, "spec": spec}


def lines(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [str(change) for change in deploy_diff.changes(before, after)]


def test_each_field_that_differs_has_a_line() -> None:
    before = config(schedule={"cron": {"expression": "H 2 * * *"}}, priority=1)
    after = config(schedule={"cron": {"expression": "H 3 * * *"}}, locks=[{"name": "a"}])
    assert lines(before, after) == [
        'spec.locks: added [{"name":"a"}]',
        "spec.priority: removed, was 1",
        'spec.schedule.cron.expression: "H 2 * * *" -> "H 3 * * *"',
    ]


def test_items_with_names_are_compared_by_name() -> None:
    first, second = {"name": "a", "type": "Int"}, {"name": "b", "type": "Int"}
    before = config(option={"options": [first, second]})
    assert lines(before, config(option={"options": [{**second, "type": "Float"}]})) == [
        'spec.option.options[a]: removed, was {"name":"a","type":"Int"}',
        'spec.option.options[b].type: "Int" -> "Float"',
    ]
    assert lines(before, config(option={"options": [second, first]})) == [
        'spec.option.options[*].name: ["a","b"] -> ["b","a"]'
    ]


def test_other_items_are_compared_by_position() -> None:
    before = config(schedule={"cron": {"expressions": ["@daily", "@hourly"]}})
    after = copy.deepcopy(before)
    after["spec"]["schedule"]["cron"]["expressions"][1] = "@weekly"
    assert lines(before, after) == ['spec.schedule.cron.expressions[1]: "@hourly" -> "@weekly"']


def test_server_side_fields_are_no_change() -> None:
    after = config(priority=1) | {"status": {"state": "Ready"}}
    after["metadata"] |= {"resourceVersion": "2", "generation": 3, "managedFields": []}
    assert lines(config(priority=1), after) == []


def test_numbers_are_equal_as_json() -> None:
    assert lines(config(ttl=5, x=True), config(ttl=5.0, x=True)) == []
    assert lines(config(x=1), config(x=True)) == ["spec.x: 1 -> true"]


def test_defaults_of_optional_parts_are_written_out() -> None:
    template = {
        "taskTemplate": {"call": {"function": "a:b"}},
        "retry": {"maxAttempts": 2},
        "finalizer": {"taskTemplate": {"command": ["true"]}},
    }
    body = {
        "apiVersion": "kilnwork.dev/v1alpha1",
        "kind": "JobConfig",
        "metadata": {"name": "a"},
        "spec": {
            "template": {"spec": template},
            "concurrency": {"policy": "Allow"},
            "schedule": {"cron": {"expression": "@daily"}},
        },
    }
    before = copy.deepcopy(body)
    spec = deploy_diff.with_defaults(body)["spec"]
    assert body == before
    assert spec["schedule"] == {"cron": {"expression": "@daily", "format": "standard"}}
    assert spec["concurrency"] == {"policy": "Allow"}, "what others set there stays"
    made = spec["template"]["spec"]
    assert made["retry"] == {
        "maxAttempts": 2, "maxLosses": 3, "delaySeconds": 1.0, "factor": 2.0,
        "maxDelaySeconds": 60.0, "jitter": 0.2,
    }  # fmt: skip
    assert made["taskTemplate"] == {"call": {"function": "a:b", "returns": 1}}
    assert made["finalizer"]["taskTemplate"] == {
        "command": ["true"], "clusterName": "default", "outputType": "json",
    }  # fmt: skip


def test_labels_and_annotations_count() -> None:
    after = config()
    after["metadata"] |= {"labels": {"x": "2"}, "annotations": {"note": "hello"}}
    assert lines(config(), after) == [
        'metadata.annotations.note: added "hello"',
        'metadata.labels.x: "1" -> "2"',
    ]


def test_long_values_are_cut() -> None:
    (line,) = lines(config(), config(x="a" * 1000))
    assert len(line) < 120
    assert line.endswith("…")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("xy", max_size=2), inner, max_size=3)
    ),
)


@given(JSON, JSON)
def test_nothing_differs_exactly_if_they_are_equal(before: Any, after: Any) -> None:
    same = msgspec.json.encode(before, order="sorted") == msgspec.json.encode(after, order="sorted")
    assert (deploy_diff.changes(config(x=before), config(x=after)) == []) is same
