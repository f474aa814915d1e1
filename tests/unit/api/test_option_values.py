"""What a value of an option becomes, by its type."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import job_config, option_values


def option(type_: str, *, required: bool = False, **of_type: Any) -> job_config.Option:
    field = {"Bool": "bool", "JSON": "json"}.get(type_, type_.lower())
    given: dict[str, Any] = {"type": type_, "name": "x", "required": required}
    if of_type:
        given[field] = of_type
    return msgspec.convert(given, job_config.Option)


@pytest.mark.parametrize(
    ("declared", "value", "found"),
    [
        (option("Bool"), True, True),
        (option("Bool", format="YesNo"), False, "no"),
        (option("Bool", format="OneZero", default=True), None, "1"),
        (option("Bool", format="Custom", trueVal="on", falseVal="off"), True, "on"),
        (option("String", trimSpaces=True), " a ", "a"),
        (option("String", default="d"), None, "d"),
        (option("String", default="d"), "", ""),
        (option("Select", values=["a", "b"]), "b", "b"),
        (option("Select", values=["a"], allowCustom=True), "z", "z"),
        (option("Multi", values=["a", "b"], delimiter=";"), ["b", "a"], "b;a"),
        (option("Multi", values=["a"], default=["a"]), [], "a"),
        (option("Date", format="YYYY-MM-DD"), "2026-01-02T23:00:00-05:00", "2026-01-02"),
        (option("Int", minimum=3), 3, 3),
        (option("Int"), 3.0, 3),
        (option("Float", default=0.5), None, 0.5),
        (option("JSON"), {"a": [1, None]}, {"a": [1, None]}),
    ],
)
def test_valid_value_is_evaluated(declared: job_config.Option, value: Any, found: Any) -> None:
    assert option_values.evaluate(declared, value) == found


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        (option("Bool"), "true", "must be true or false"),
        (option("String", required=True), None, "is needed"),
        (option("String"), 5, "put it into quotes"),
        (option("Select", values=["alpha"]), "alpa", 'did you mean "alpha"'),
        (option("Multi", values=["a"]), ["a", ""], "empty"),
        (option("Multi", values=["a"], required=True), [], "at least one"),
        (option("Date"), "tomorrow", "RFC 3339"),
        (option("Int"), 1.5, "whole number"),
        (option("Int"), True, "whole number"),
        (option("Int"), 2**63, "64 bits"),
        (option("Int", maximum=3), 4, "at most 3"),
        (option("Float", minimum=0.5), 0.4, "at least 0.5"),
        (option("Float"), float("inf"), "finite"),
        (option("JSON", required=True), None, "any JSON but null"),
    ],
)
def test_invalid_values_are_refused(declared: job_config.Option, value: Any, message: str) -> None:
    with pytest.raises(option_values.Refused) as refused:
        option_values.evaluate(declared, value)
    assert message in str(refused.value)


def test_message_lists_at_most_twenty_values() -> None:
    shown = option_values.listed([str(n) for n in range(23)])
    assert shown.endswith('"19" and 3 more')


@pytest.mark.parametrize(
    ("declared", "default"),
    [
        (option("Multi", values=["a"]), None),
        (option("String", default="  ", trimSpaces=True), None),
        (option("Select", values=["a"], default="a"), "a"),
        (option("Int", default=0), 0),
    ],
)
def test_default_of_an_option(declared: job_config.Option, default: Any) -> None:
    assert option_values.default_of(declared) == default
