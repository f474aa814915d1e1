"""Strategic merge patches: maps, lists with keys, sets, directives."""

import json
from typing import Any

import pytest

from kilnwork.controlplane.apiserver import statuses, strategic

A, B, C = {"name": "a", "value": "1"}, {"name": "b"}, {"name": "c"}


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"data": {"a": "1", "b": "2"}}, {"data": {"a": None}}, {"data": {"b": "2"}}),
        ({"data": {"a": "1"}}, {"data": {"$patch": "replace", "b": "2"}}, {"data": {"b": "2"}}),
        ({"data": {"a": "1"}, "x": 1}, {"data": {"$patch": "delete"}}, {"x": 1}),
        ({"rules": [A, B]}, {"rules": [C]}, {"rules": [C]}),
        ({"env": [A, B]}, {"env": [{"name": "b", "value": "2"}, C]},
         {"env": [A, {"name": "b", "value": "2"}, C]}),
        ({"env": [A, B]}, {"env": [{"name": "a", "$patch": "delete"}]}, {"env": [B]}),
        ({"env": [A, B]}, {"env": [{"$patch": "replace"}, C]}, {"env": [C]}),
        ({"env": [A]}, {"env": [{"name": "a", "value": None}]}, {"env": [{"name": "a"}]}),
        ({"env": [A, B, C]}, {"$setElementOrder/env": [C, A]}, {"env": [C, B, A]}),
        ({"finalizers": ["a"]}, {"finalizers": ["b", "a"]}, {"finalizers": ["a", "b"]}),
        ({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"]},
         {"finalizers": ["b"]}),
        ({"v": {"a": 1, "b": 2}}, {"v": {"$retainKeys": ["b"], "b": 3}}, {"v": {"b": 3}}),
        ({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ({"env": [5]}, {"env": [A]}, {"env": [5, A]}),
    ],
)  # fmt: skip
def test_patch_merges_lists_and_obeys_directives(target: Any, patch: Any, expected: Any) -> None:
    before = json.dumps(target)
    assert strategic.merge(target, patch) == expected
    assert json.dumps(target) == before


@pytest.mark.parametrize(
    "patch",
    [
        {"$patch": "explode"},
        {"$deleteFromPrimitiveList/finalizers": "a"},
        {"$unknown": 1},
    ],
)
def test_invalid_patch_is_a_bad_request(patch: Any) -> None:
    with pytest.raises(statuses.StatusError) as caught:
        strategic.merge({"env": [A]}, patch)
    assert caught.value.code == 400


def test_item_without_merge_key_is_a_server_error() -> None:
    """As the real one has it: 500, with the item as Go prints it."""
    with pytest.raises(statuses.StatusError) as caught:
        strategic.merge({"env": [A]}, {"env": [{"value": "no key"}]})
    assert caught.value.code == 500
    text = "map: map[value:no key] does not contain declared merge key: name"
    assert caught.value.message == text
