"""Schemas at work: what is left out, filled in and refused, with the texts of Kubernetes."""

from typing import Any

import pytest

from kilnwork.api import crd, kinds
from kilnwork.controlplane.apiserver import schema_validation, statuses

SCHEMA = crd.definition(kinds.TASKS)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
OBJECT = crd.definition(kinds.TASK_OBJECTS)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def problems_of(spec: dict[str, Any]) -> list[str]:
    return [str(cause) for cause in schema_validation.validate(SCHEMA, {"spec": spec})]


def test_unknown_fields_are_dropped_and_reported() -> None:
    given: dict[str, Any] = {
        "metadata": {"name": "x", "labels": {"a": "b"}},
        "spec": {"foo": 1, "env": [{"name": "A"}, {"name": "B", "valeu": "x"}]},
        "extra": {},
    }
    obj, unknown = schema_validation.prune_and_default(SCHEMA, given)
    assert unknown == ["spec.foo", "spec.env[1].valeu", "extra"]
    assert obj["metadata"] == given["metadata"]
    assert obj["spec"]["env"] == [{"name": "A"}, {"name": "B"}]
    assert given["spec"]["foo"] == 1


def test_defaults_are_filled_in_only_below_existing_parents() -> None:
    obj, _ = schema_validation.prune_and_default(SCHEMA, {"spec": {"retry": {"maxAttempts": 2}}})
    spec = obj["spec"]
    assert (spec["clusterName"], spec["run"], spec["outputType"]) == ("default", 1, "json")
    assert spec["retry"]["maxAttempts"] == 2
    assert spec["retry"]["maxLosses"] == 3
    assert "timeouts" not in spec


def test_defaulting_twice_changes_nothing() -> None:
    once, _ = schema_validation.prune_and_default(SCHEMA, {"spec": {"retry": {}, "timeouts": {}}})
    assert schema_validation.prune_and_default(SCHEMA, once) == (once, [])


def test_nulls_are_dropped_defaulted_or_kept() -> None:
    obj, _ = schema_validation.prune_and_default(
        SCHEMA, {"spec": {"image": None, "run": None, "killTimestamp": None}}
    )
    assert "image" not in obj["spec"]
    assert obj["spec"]["run"] == 1
    assert obj["spec"]["killTimestamp"] is None
    assert schema_validation.validate(SCHEMA, obj) == []


def test_integral_floats_become_integers() -> None:
    obj, _ = schema_validation.prune_and_default(SCHEMA, {"spec": {"run": 2.0}})
    assert isinstance(obj["spec"]["run"], int)
    assert problems_of({"run": 2.5}) == [
        'spec.run: Invalid value: "number": spec.run in body must be of type integer: "number"'
    ]


@pytest.mark.parametrize("data", [None, "x", 3, [1, {"a": None}], {"points": [[1, 2]]}])
def test_data_of_a_task_object_is_any_json(data: Any) -> None:
    obj, unknown = schema_validation.prune_and_default(OBJECT, {"data": data})
    assert obj["data"] == data
    assert unknown == []
    assert schema_validation.validate(OBJECT, obj) == []


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"command": "ls"},
            (
                'spec.command: Invalid value: "string": spec.command in body must be of '
                'type array: "string"'
            ),
        ),
        (
            {"command": [1]},
            (
                'spec.command[0]: Invalid value: "integer": spec.command[0] in body must be '
                'of type string: "integer"'
            ),
        ),
        (
            {"suspend": "yes"},
            (
                'spec.suspend: Invalid value: "string": spec.suspend in body must be of '
                'type boolean: "string"'
            ),
        ),
        ({"env": [{}]}, "spec.env[0].name: Required value"),
        (
            {"run": 0},
            "spec.run: Invalid value: 0: spec.run in body should be greater than or equal to 1",
        ),
        (
            {"timeouts": {"runningSeconds": 0}},
            (
                "spec.timeouts.runningSeconds: Invalid value: 0: "
                "spec.timeouts.runningSeconds in body should be greater than 0"
            ),
        ),
        (
            {"retry": {"jitter": 1.5}},
            (
                "spec.retry.jitter: Invalid value: 1.5: "
                "spec.retry.jitter in body should be less than or equal to 1"
            ),
        ),
        (
            {"outputType": "xml"},
            (
                'spec.outputType: Invalid value: "xml": '
                "spec.outputType in body should match '^(json|bytes)$'"
            ),
        ),
        (
            {"outputType": "json\n"},
            (
                'spec.outputType: Invalid value: "json\\n": '
                "spec.outputType in body should match '^(json|bytes)$'"
            ),
        ),
        (
            {"clusterName": ""},
            (
                'spec.clusterName: Invalid value: "": '
                "spec.clusterName in body should be at least 1 chars long"
            ),
        ),
        (
            {"clusterName": "a" * 254},
            "spec.clusterName: Too long: may not be more than 253 bytes",
        ),
        (
            {"killTimestamp": "soon"},
            (
                'spec.killTimestamp: Invalid value: "soon": '
                'spec.killTimestamp in body must be of type date-time: "soon"'
            ),
        ),
        (
            {"inputs": [{"name": "a", "task": "t"}, {"name": "a", "task": "u"}]},
            'spec.inputs[1]: Duplicate value: map[string]interface {}{"name":"a"}',
        ),
        (
            {"inputs": [{"name": "a", "task": "t"}] * 300},
            "spec.inputs: Too many: 300: must have at most 256 items",
        ),
    ],
)
def test_messages_match_kubernetes(spec: dict[str, Any], text: str) -> None:
    assert problems_of(spec) == [text]


def test_all_violations_are_listed() -> None:
    assert len(problems_of({"run": 0, "image": 1, "args": {}, "env": [{}]})) == 4


def test_unknown_fields_depend_on_validation_mode() -> None:
    paths = ["spec.foo", "spec.bar"]
    assert schema_validation.unknown_fields(paths, field_validation="Ignore") == []
    assert schema_validation.unknown_fields(paths, field_validation="Warn") == [
        'unknown field "spec.foo"',
        'unknown field "spec.bar"',
    ]
    with pytest.raises(schema_validation.StrictError) as caught:
        schema_validation.unknown_fields(paths, field_validation="Strict")
    assert str(caught.value) == (
        'strict decoding error: unknown field "spec.foo", unknown field "spec.bar"'
    )
    assert schema_validation.unknown_fields([], field_validation="Strict") == []


def test_total_size_of_defaults_is_bounded() -> None:
    """20,000 empty items of a list with 100 kB each."""
    item = {"type": "object", "properties": {"a": {"type": "string", "default": "x" * 100_000}}}
    schema = {"type": "object", "properties": {"l": {"type": "array", "items": item}}}
    with pytest.raises(statuses.StatusError, match="too large"):
        schema_validation.prune_and_default(schema, {"l": [{}] * 20_000})


OLD = {"spec": {"run": 0, "suspend": True}, "status": {"attempts": 1}}
"""What a schema that became stricter would refuse now."""


def test_unchanged_values_are_not_validated() -> None:
    same = {"run": 0, "suspend": True}
    assert schema_validation.validate(SCHEMA, {**OLD, "spec": same}, old=OLD) == []
    assert schema_validation.validate(SCHEMA, {**OLD, "status": {"attempts": 2}}, old=OLD) == []
    (found,) = schema_validation.validate(SCHEMA, {**OLD, "spec": {**same, "run": -1}}, old=OLD)
    assert found.field == "spec.run"


def test_one_and_true_are_different_values() -> None:
    (found,) = schema_validation.validate(
        SCHEMA, {**OLD, "spec": {"run": 0, "suspend": 1}}, old=OLD
    )
    assert found.field == "spec.suspend"


def test_removed_required_field_is_reported() -> None:
    schema = {"type": "object", "required": ["a", "b"], "properties": {}}
    (found,) = schema_validation.validate(schema, {"b": 1}, old={"a": 1, "b": 1})
    assert found.field == "a"
