"""JSON patch: the operations of RFC 6902, and what the real server does beside it."""

from typing import Any

import pytest

from kilnwork.controlplane.apiserver import jsonpatch


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        ({"a": 1}, {"op": "add", "path": "/b", "value": 2}, {"a": 1, "b": 2}),
        ({"a": [1, 3]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2, 3]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-", "value": 2}, {"a": [1, 2]}),
        ({"a": [1, 2]}, {"op": "remove", "path": "/a/0"}, {"a": [2]}),
        ({"a": [1, 2]}, {"op": "remove", "path": "/a/-1"}, {"a": [1]}),
        ({"a": {"b": 1}}, {"op": "replace", "path": "/a/b", "value": 2}, {"a": {"b": 2}}),
        ({"a": [1]}, {"op": "replace", "path": "/a/0", "value": 2}, {"a": [2]}),
        ({}, {"op": "replace", "path": "/a", "value": 2}, {"a": 2}),
        ({"a": 1, "c": {}}, {"op": "move", "from": "/a", "path": "/c/b"}, {"c": {"b": 1}}),
        (
            {"a": {"x": 1}},
            {"op": "copy", "from": "/a", "path": "/b"},
            {"a": {"x": 1}, "b": {"x": 1}},
        ),
        ({"a/b": {"c~d": 1}}, {"op": "remove", "path": "/a~1b/c~0d"}, {"a/b": {}}),
        ({"a": None}, {"op": "test", "path": "/a", "value": None}, {"a": None}),
        ({}, {"op": "test", "path": "/a"}, {}),
    ],
)
def test_operations_change_the_document(document: Any, operation: Any, expected: Any) -> None:
    before = repr(document)
    assert jsonpatch.apply(document, [operation]) == expected
    assert repr(document) == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/nope"},
        {"op": "add", "path": "/nope/x", "value": 1},
        {"op": "add", "path": "/l/4", "value": 1},
        {"op": "add", "path": "/l/01x", "value": 1},
        {"op": "add", "path": "/n/x", "value": 1},
        {"op": "remove", "path": "/l/2"},
        {"op": "remove", "path": "/l/-3"},
        {"op": "test", "path": "/n", "value": True},
        {"op": "test", "path": "/n", "value": 2},
        {"op": "move", "from": "/nope", "path": "/x"},
        {"op": "copy", "path": "/x"},
        {"op": "add", "path": ""},
        {"op": "add", "path": 5},
        {"op": ["add"], "path": "/x"},
        {"path": "/x"},
    ],
)
def test_inapplicable_operations_raise(operation: Any) -> None:
    with pytest.raises(jsonpatch.DoesNotApply):
        jsonpatch.apply({"n": 1, "l": [1, 2]}, [operation])


def test_copied_value_is_independent_of_its_source() -> None:
    made = jsonpatch.apply(
        {"a": {"x": 1}},
        [{"op": "copy", "from": "/a", "path": "/b"}, {"op": "add", "path": "/b/x", "value": 2}],
    )
    assert made == {"a": {"x": 1}, "b": {"x": 2}}


def test_total_size_of_copies_is_bounded() -> None:
    """Each pair doubles what is there: 60 of them would fill any memory."""
    double = [{"op": "copy", "from": "/a", "path": f"/a/{key}"} for key in ("x", "y")]
    with pytest.raises(jsonpatch.DoesNotApply, match="copies more than"):
        jsonpatch.apply({"a": {"text": "t" * 100}}, double * 60)


def test_patch_can_be_applied_twice() -> None:
    operations: list[dict[str, Any]] = [
        {"op": "add", "path": "/l", "value": []},
        {"op": "add", "path": "/l/-", "value": 1},
    ]
    assert jsonpatch.apply({}, operations) == jsonpatch.apply({}, operations) == {"l": [1]}


def test_position_with_many_digits_does_not_apply() -> None:
    with pytest.raises(jsonpatch.DoesNotApply):
        jsonpatch.apply({"l": []}, [{"op": "add", "path": f"/l/{'1' * 5000}", "value": 1}])


def test_patch_shares_unchanged_parts_and_keeps_the_original() -> None:
    before: dict[str, Any] = {"a": {"b": [{"c": 1}, {"c": 2}]}, "z": {"y": 1}}
    value: dict[str, list[Any]] = {"new": []}
    after = jsonpatch.apply(
        before,
        [
            {"op": "replace", "path": "/a/b/1/c", "value": 3},
            {"op": "add", "path": "/a/b/-", "value": value},
            {"op": "add", "path": "/a/b/2/new/-", "value": 4},
            {"op": "copy", "from": "/z", "path": "/x"},
            {"op": "move", "from": "/x/y", "path": "/x/w"},
        ],
    )
    assert before == {"a": {"b": [{"c": 1}, {"c": 2}]}, "z": {"y": 1}}
    assert value == {"new": []}
    assert after == {"a": {"b": [{"c": 1}, {"c": 3}, {"new": [4]}]}, "z": {"y": 1}, "x": {"w": 1}}
    assert after["z"] is before["z"]
    assert after["a"]["b"][0] is before["a"]["b"][0]
