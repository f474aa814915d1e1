"""Expressions of flows in Python: what text they become, and what is refused."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilnwork.api import flow_expressions
from kilnwork.sdk import set_expressions

value = set_expressions.Expression("step", ".value")
param = set_expressions.Expression("params", ".y")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (value.breaches > 0, "step.value.breaches > 0"),
        (value["a sum"] == "x", 'step.value["a sum"] == "x"'),
        (value[0].b, "step.value[0].b"),
        (value[param], "step.value[params.y]"),
        ((value > 1) & ~(param == None), "(step.value > 1) && (!(params.y == null))"),  # noqa: E711
        ((value + 1) * 2, "(step.value + 1) * 2"),
        (1 - value / 2, "1 - (step.value / 2)"),
        (-value % param, "(-step.value) % params.y"),
        (
            (value <= [1, "a"]) | (value != {"b": True}),
            '(step.value <= [1,"a"]) || (step.value != {"b":true})',
        ),
    ],
)
def test_operators_become_cel(made: set_expressions.Expression, text: str) -> None:
    assert set_expressions.text(made) == text
    assert flow_expressions.parse_field(text).names  # it can be parsed


ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}

numbers = st.integers(-100, 100)


@given(numbers, numbers, st.lists(st.sampled_from("+-*"), min_size=1, max_size=6), st.data())
def test_arithmetic_is_that_of_python(
    x: int, y: int, chosen: list[str], data: st.DataObject
) -> None:
    """Whatever the tree, what the server evaluates is what Python would."""
    found: Any = value
    plain: Any = x
    for sign in chosen:
        other, number = data.draw(st.sampled_from([(value, x), (param, y), (7, 7)]))
        swap = data.draw(st.booleans())
        left, right = (other, found) if swap else (found, other)
        mine, its = (number, plain) if swap else (plain, number)
        found = ARITHMETIC[sign](left, right)
        plain = ARITHMETIC[sign](mine, its)
    scope = {"step": {"value": x}, "params": {"y": y}}
    read = flow_expressions.parse_field(set_expressions.text(found))
    assert read.evaluate(lambda name: scope[name.root][name.member or ""]) == plain


def test_texts_are_themselves_whatever_they_hold() -> None:
    for text in ('a"b', "a\\b", "é\n", "${x}"):
        read = flow_expressions.parse_field(set_expressions.text(value == text))
        assert read.evaluate(functools.partial(_given, text)) is True


def _given(text: str, _: flow_expressions.Name) -> str:
    return text


def test_operations_that_need_a_value_now_are_refused() -> None:
    with pytest.raises(TypeError, match=r"step.value > 0 } has no truth .* ss.when"):
        bool(value > 0)
    with pytest.raises(TypeError, match=r"has no items .* ss\.each"):
        list(value)
    with pytest.raises(TypeError, match="has no items"):
        assert 1 in value
    with pytest.raises(TypeError, match=r"write ss.expression\(.size"):
        len(value)
    with pytest.raises(TypeError, match="cannot become part of a text"):
        f"{value}"
    with pytest.raises(TypeError, match="no JSON"):
        set_expressions.text(value == object())


def test_inputs_hold_expressions_at_any_depth() -> None:
    made = set_expressions.written({"a": [value, {"b": param + 1}], "c": "text"}, lambda one: one)
    assert made == {"a": ["${ step.value }", {"b": "${ params.y + 1 }"}], "c": "text"}
    assert msgspec.json.encode(made)
    with pytest.raises(ValueError, match=r"write an expression as ss\.expression"):
        set_expressions.written("a ${b}", lambda one: one)
