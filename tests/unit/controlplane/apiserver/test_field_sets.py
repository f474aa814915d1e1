"""Sets of fields: their form on the wire, their algebra, and paths as errors name them."""

from typing import Any

import pytest

from kilnwork.controlplane.apiserver import field_sets

A: field_sets.Set = {"f:data": {"f:a": {}}}
AB: field_sets.Set = {"f:data": {".": {}, "f:a": {}, "f:b": {}}}


def test_union_intersection_and_difference() -> None:
    assert field_sets.union(A, {"f:data": {".": {}, "f:b": {}}}) == AB
    assert field_sets.difference(AB, A) == {"f:data": {".": {}, "f:b": {}}}
    assert field_sets.difference(A, AB) == {}
    assert field_sets.difference(AB, {"f:data": {}}) == {"f:data": {"f:a": {}, "f:b": {}}}
    assert field_sets.intersection(AB, A) == A
    assert field_sets.intersection(AB, {"f:data": {}}) == {"f:data": {}}
    assert list(field_sets.paths(AB)) == [".data", ".data.a", ".data.b"]


def test_paths_of_list_items() -> None:
    fields = {"f:ports": {'k:{"port":80,"name":"a"}': {"f:x": {}}}, "f:set": {'v:"q"': {}}}
    assert list(field_sets.paths(fields)) == ['.ports[name="a",port=80].x', '.set[="q"]']


@pytest.mark.parametrize(
    ("value", "known"),
    [
        ({}, True),
        ({"f:a": {".": {}, 'k:{"name":"x"}': {}}}, True),
        ({"f:a": {"v:1": {}, "i:0": {}}}, True),
        ([], False),
        ({"a": {}}, False),
        ({"x:a": {}}, False),
        ({"f:a": None}, False),
        ({"v:[": {}}, True),
        ({"k:[": {}}, False),
        ({"k:[]": {}}, False),
    ],
)
def test_is_set_checks_path_elements(value: Any, *, known: bool) -> None:
    assert field_sets.is_set(value) is known


def test_contains_ignores_parents_of_members() -> None:
    assert field_sets.contains(AB, "f:data")
    assert not field_sets.contains(A, "f:data")
    assert field_sets.contains(A["f:data"], "f:a")
    assert not field_sets.contains(A, "f:other")


def test_key_elements_have_sorted_keys() -> None:
    assert field_sets.key_element({"port": 80, "name": "a"}) == 'k:{"name":"a","port":80}'
    assert (
        field_sets.name_element("name", "a")
        == field_sets.key_element({"name": "a"})
        == 'k:{"name":"a"}'
    )
    assert field_sets.value_element("q") == 'v:"q"'
