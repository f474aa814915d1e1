"""JSON carries a value exactly, or says that it does not."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilnwork.sdk import exact_json

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary(max_size=8)
    | st.complex_numbers()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=4)
        | st.sets(st.integers(), max_size=3)
    ),
    max_leaves=12,
)
UNICODE = st.text(st.characters(codec="utf-8"))
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | UNICODE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(UNICODE, inner, max_size=4),
    max_leaves=20,
)


def alike(one: Any, other: Any) -> bool:
    """Equal, of the same types at every depth, and with the same signs of zero."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(alike, one.values(), other.values()))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


@given(VALUES)
def test_encoded_value_decodes_to_the_same_value(value: Any) -> None:
    data = exact_json.encode(value)
    if data is not None:
        assert alike(msgspec.json.decode(data), value)


@given(st.lists(VALUES, max_size=3), st.dictionaries(st.text(max_size=3), VALUES, max_size=3))
def test_arguments_that_are_json_come_back_the_same(
    args: list[Any], kwargs: dict[str, Any]
) -> None:
    data = exact_json.encode_call(tuple(args), kwargs)
    if data is not None:
        assert alike(msgspec.json.decode(data), [args, kwargs])


@given(JSON_VALUES)
def test_json_values_are_json(value: Any) -> None:
    alone = exact_json.encode(value) is not None
    # hypothesis draws the same empty list twice now and then: that is for pickle
    assert alone or "[]" in repr(value) or "{}" in repr(value)


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        [(1,)],
        {"a": {1: 2}},
        {1: 2},
        {None: 1},
        {True: 1},
        math.nan,
        [math.inf],
        2**53 + 1,
        [-(2**60), 1],
        [2**60, "mixed"],
        b"bytes",
        {1, 2},
        "\ud800",
        {"\udfff": 1},
        Text("subclass"),
        [Text("subclass")],
        Ellipsis,
    ],
    ids=repr,
)
def test_values_that_json_would_change_are_not_encoded(value: Any) -> None:
    assert exact_json.encode(value) is None
    assert exact_json.encode_call((value,), {}) is None
    assert exact_json.encode_call((), {"x": value}) is None


def test_a_list_that_appears_twice_is_left_to_pickle() -> None:
    shared = [1]
    assert exact_json.encode([shared, shared]) is None
    assert exact_json.encode_call((shared, shared), {}) is None
    assert exact_json.encode([[1], [1]]) == b"[[1],[1]]"


def test_values_that_multiply_or_never_end_take_no_time() -> None:
    doubling: list[Any] = [1]
    for _ in range(60):
        doubling = [doubling, doubling]
    endless: list[Any] = []
    endless.append(endless)
    assert exact_json.encode(doubling) is None
    assert exact_json.encode(endless) is None


def test_deep_values_are_left_to_pickle() -> None:
    deep: list[Any] = []
    for _ in range(exact_json.MAX_DEPTH + 1):
        deep = [deep]
    assert exact_json.encode(deep) is None
