"""Merge patches (RFC 7386), and which patches are taken at all."""

import json
from typing import Any

import pytest

from kilnwork.api import api_resources, kinds
from kilnwork.controlplane.apiserver import patches, statuses
from support import served_kinds


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_matches_rfc_7386_examples(target: Any, patch: Any, expected: Any) -> None:
    before = json.dumps(target)
    assert patches.merge(target, patch) == expected
    assert json.dumps(target) == before


def test_strategic_merge_is_only_for_built_in_kinds() -> None:
    maps, tasks = served_kinds.kind_of(api_resources.CONFIG_MAPS), served_kinds.kind_of(kinds.TASKS)
    patch = patches.decode(b'{"data":{"a":null}}', patches.STRATEGIC, maps)
    assert patch.change({"data": {"a": "1", "b": "2"}}) == {"data": {"b": "2"}}
    with pytest.raises(statuses.StatusError) as caught:
        patches.decode(b"{}", patches.STRATEGIC, tasks)
    assert caught.value.code == 415


def test_same_compares_as_json() -> None:
    assert patches.same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert not patches.same({"a": 1}, {"a": True})
    assert not patches.same({"a": 1}, {"a": 1.5})


@pytest.mark.parametrize("times", [300, 2000])
def test_repeated_copies_cannot_nest_too_deep(times: int) -> None:
    operations = [{"op": "copy", "from": "/a", "path": "/a/b"}] * times
    patch = patches.decode(
        json.dumps(operations).encode(),
        patches.JSON_PATCH,
        served_kinds.kind_of(api_resources.CONFIG_MAPS),
    )
    with pytest.raises(statuses.StatusError) as caught:
        patch.change({"a": {}})
    assert caught.value.code in (400, 422)
