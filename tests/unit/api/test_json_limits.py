"""Limits of JSON documents, their equality, and how they are shown in messages."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from kilnwork.api import json_limits

JSON = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-3, 3)
    | some.sampled_from([0.5, 1.0, -2.0, "", "a"]),
    lambda below: some.lists(below, max_size=3) | some.dictionaries(some.sampled_from("ab"), below),
    max_leaves=6,
)


def nested(depth: int, *, leaf: Any = 0) -> Any:
    """Return lists nested to a depth."""
    for _ in range(depth):
        leaf = [leaf]
    return leaf


def test_document_at_the_limits_is_accepted() -> None:
    json_limits.measure(nested(json_limits.MAX_DEPTH))
    json_limits.measure({"a": "x" * (json_limits.MAX_SIZE - 3)})


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (nested(json_limits.MAX_DEPTH + 1), "64 deep"),
        ({"a": nested(json_limits.MAX_DEPTH, leaf={})}, "64 deep"),
        ("x" * json_limits.MAX_SIZE, "1048576 values and characters"),
        ({"x" * json_limits.MAX_SIZE: 1}, "1048576 values and characters"),
        ([0] * json_limits.MAX_SIZE, "1048576 values and characters"),
    ],
)
def test_larger_or_deeper_document_is_refused(document: Any, problem: str) -> None:
    with pytest.raises(json_limits.LimitExceeded, match=problem):
        json_limits.measure(document)


def test_size_has_the_longest_member_and_the_work_of_a_pass() -> None:
    size = json_limits.measure({"a": [1, 2, 3, 4], "b": "x" * 30})
    assert size.longest == 4
    assert size.work == 7 + (30 + 2) // 16


def test_exhausted_budget_raises_limit_exceeded() -> None:
    budget = json_limits.Budget(10)
    budget.spend(10)
    with pytest.raises(json_limits.LimitExceeded, match="more than 10 steps"):
        budget.spend(1)


def canonical(value: Any) -> Any:
    """Return the value paired with its type; all numbers have one type."""
    if isinstance(value, dict):
        return {key: canonical(one) for key, one in value.items()}
    if isinstance(value, list):
        return [canonical(one) for one in value]
    kind = "number" if type(value) in (int, float) else type(value).__name__
    return kind, value


@given(JSON, JSON)
def test_values_are_equal_if_types_and_values_are(left: Any, right: Any) -> None:
    equal = json_limits.equal(left, right, json_limits.Budget())
    assert equal is (canonical(left) == canonical(right))
    assert json_limits.equal(left, left, json_limits.Budget())


@pytest.mark.parametrize(
    ("left", "right"), [(True, 1), (False, 0), ([True], [1]), ({"a": 1}, {"a": True}), ("1", 1)]
)
def test_booleans_and_strings_do_not_equal_numbers(left: Any, right: Any) -> None:
    assert not json_limits.equal(left, right, json_limits.Budget())


def test_equality_counts_the_compared_values() -> None:
    with pytest.raises(json_limits.LimitExceeded):
        json_limits.equal([0] * 1000, [0] * 1000, json_limits.Budget(1000))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a", '"a"'),
        ('a"\n', r'"a\"\n"'),
        (True, "true"),
        (None, "null"),
        (1.5, "1.5"),
        (math.inf, "null"),
        ([1, 2], "a list of 2"),
        ({"a": 1}, "an object with 1 members"),
        ("x" * 100, '"' + "x" * 60 + '"… (100 characters)'),
    ],
)
def test_values_are_shown_briefly(value: Any, shown: str) -> None:
    assert json_limits.show(value) == shown
