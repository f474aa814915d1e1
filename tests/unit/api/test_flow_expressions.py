"""Expressions are evaluated on values, and their names are known before that."""

from typing import Any

import pytest

from kilnwork.api import flow_expressions

VALUES: dict[str, Any] = {
    "price": {"results": [{"x": 1}, None, {"x": 3.5}], "value": {"sum": 2, "list": [1, 2]}},
    "data": {"trades-eod": {"digest": "d"}},
    "s": {"files": [{"path": "a"}]},
    "big": {"value": 2**70},
}


def lookup(name: flow_expressions.Name) -> Any:
    found = VALUES[name.root]
    return found if name.member is None else found[name.member]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("price.value.sum", 2),
        ("price . value . sum", 2),
        ("price.value", {"sum": 2, "list": [1, 2]}),
        ("price.value.list[1]", 2),
        ("price.value.sum > 1 && size(price.results) == 3", True),
        ("price.results.filter(r, r != null).map(r, r.x)", [1, 3.5]),
        ("{'a': price.value.sum, 'b': [true, null]}", {"a": 2, "b": [True, None]}),
        ('data["trades-eod"].digest', "d"),
        ("s.files[0].path + '-x'", "a-x"),
        ("s", {"files": [{"path": "a"}]}),
        ("big.value", 2**70),
        ("'${ not } price.value'", "${ not } price.value"),
        ("true", True),
        ("price.value.sum < 1e-6", False),
    ],
)
def test_an_expression_gives_a_value(text: str, value: Any) -> None:
    found = flow_expressions.Expression(text, frozenset({"s"}))
    assert found.evaluate(lookup) == value


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("price.value.sum + price.results[0].x", [("price", "results"), ("price", "value")]),
        ('data["trades-eod"].digest', [("data", "trades-eod")]),
        ("x.price.value", [("x", "price")]),
        ("size(price)", [("price", None)]),
        ("price.results.all(p, p.price.value > 0)", [("price", "results")]),
        ("s.value + 1", [("s", None)]),
        ("'price.value'", []),
        ("1 + 1", []),
    ],
)
def test_names_are_known_before_evaluation(text: str, names: list[Any]) -> None:
    found = flow_expressions.Expression(text, frozenset({"s"}))
    assert sorted(found.names) == [flow_expressions.Name(*name) for name in names]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("price.value.none", "needs 'none' in price.value, which is an object with 2 members"),
        ("price.value.none > 1", "needs none, which does not exist"),
        ("price.value.sum / 0", "division by zero"),
        ("price.value.sum + 'a'", "cannot be evaluated"),
        ("duration('1s')", "gives a timedelta, which is no JSON"),
        ("big.value + 1", "cannot be evaluated"),
    ],
)
def test_failed_evaluation_gives_the_reason(text: str, why: str) -> None:
    with pytest.raises(flow_expressions.ExpressionError, match=why):
        flow_expressions.Expression(text).evaluate(lookup)


def test_condition_must_be_a_boolean() -> None:
    with pytest.raises(flow_expressions.ExpressionError, match="is 2, neither true nor false"):
        flow_expressions.Expression("price.value.sum").evaluate_bool(lookup)


@pytest.mark.parametrize(
    "text",
    [
        "a } and ${ b",
        "price.value.",
        "a.map(x, a.map(y, x))",
        "a.all(x, a.all(y, a.all(z, true)))",
        "a.all(x, x.matches('b'))",
        "sum(a)",
        "x" * 2000,
    ],
)
def test_invalid_expression_is_refused(text: str) -> None:
    with pytest.raises(flow_expressions.ExpressionError):
        flow_expressions.Expression(text)


def test_expression_among_other_text_is_refused() -> None:
    document = flow_expressions.Document({"a": ["plain $x {y}", "${ price.value.sum }"], "b": 1})
    assert document.evaluate(lookup) == {"a": ["plain $x {y}", 2], "b": 1}
    assert document.names == (flow_expressions.Name("price", "value"),)
    with pytest.raises(flow_expressions.ExpressionError, match="among other text"):
        flow_expressions.Document({"a": "x ${ price.value }"})


def test_a_value_that_looks_like_an_expression_stays_text() -> None:
    document = flow_expressions.Document("${ s.text }", frozenset({"s"}))
    assert document.evaluate(lambda name: {"text": "${ price.value }"}) == "${ price.value }"


def test_work_on_large_values_is_limited() -> None:
    expression = flow_expressions.Expression("a.value.all(x, a.value.all(y, x != y))")
    with pytest.raises(flow_expressions.ExpressionError, match="steps"):
        expression.evaluate(lambda name: list(range(5000)))
