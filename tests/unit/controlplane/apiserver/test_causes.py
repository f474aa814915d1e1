"""Causes of a 422 in the words of Kubernetes."""

from typing import Any

import pytest

from kilnwork.controlplane.apiserver import causes


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, '"null"'),
        ("a", '"a"'),
        (3, "3"),
        ({"b": [1, True]}, '{"b":[1,true]}'),
        ("ä", '"ä"'),
        ("x" * 998, f'"{"x" * 998}"'),
        ("x" * 999, f'"{"x" * 999}…'),
    ],
)
def test_long_values_are_truncated_in_errors(value: Any, text: str) -> None:
    assert causes.quoted(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "<nil>"),
        (True, "true"),
        (False, "false"),
        ({"b": 1, "a": ["x", None]}, "map[a:[x <nil>] b:1]"),
        ("plain", "plain"),
    ],
)
def test_go_text_prints_values_as_go_does(value: Any, text: str) -> None:
    assert causes.go_text(value) == text


@pytest.mark.parametrize(
    ("cause", "reason", "message"),
    [
        (causes.invalid("f", 1, "no"), "FieldValueInvalid", "Invalid value: 1: no"),
        (causes.wrong_type("f", "x", "no"), "FieldValueTypeInvalid", 'Invalid value: "x": no'),
        (causes.required("f"), "FieldValueRequired", "Required value"),
        (causes.required("f", "why"), "FieldValueRequired", "Required value: why"),
        (causes.duplicate("f", "a"), "FieldValueDuplicate", 'Duplicate value: "a"'),
        (
            causes.duplicate("f", {"a": 1}),
            "FieldValueDuplicate",
            'Duplicate value: map[string]interface {}{"a":1}',
        ),
        (
            causes.unsupported("f", "c", ["a", "b"]),
            "FieldValueNotSupported",
            'Unsupported value: "c": supported values: "a", "b"',
        ),
        (causes.not_found("f", "a"), "FieldValueNotFound", 'Not found: "a"'),
        (causes.forbidden("f", "no"), "FieldValueForbidden", "Forbidden: no"),
        (
            causes.too_long("f", 5),
            "FieldValueTooLong",
            "Too long: may not be more than 5 bytes",
        ),
        (
            causes.too_many("f", 3, 2),
            "FieldValueTooMany",
            "Too many: 3: must have at most 2 items",
        ),
    ],
)
def test_each_cause_has_reason_and_message(cause: causes.Cause, reason: str, message: str) -> None:
    assert cause == causes.Cause("f", reason, message)
