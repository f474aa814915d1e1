"""Forms of options: the JSON Schema accepts no invalid values, and typed input is parsed."""

from typing import Any

import jsonschema  # type: ignore[import-untyped]
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from kilnwork.api import job_config, job_config_options, job_option_forms

FORM = msgspec.convert(
    {
        "options": [
            {"type": "String", "name": "user", "label": "Who", "required": True},
            {"type": "String", "name": "city", "string": {"default": "Oslo", "trimSpaces": True}},
            {
                "type": "Select",
                "name": "tone",
                "select": {"default": "dry", "values": ["dry", "x"]},
            },
            {"type": "Select", "name": "any", "select": {"values": ["a"], "allowCustom": True}},
            {"type": "Bool", "name": "shout", "bool": {"format": "YesNo"}},
            {"type": "Multi", "name": "tags", "required": True, "multi": {"values": ["a", "b"]}},
            {"type": "Multi", "name": "more", "multi": {"values": ["a"], "allowCustom": True}},
            {"type": "Date", "name": "day"},
            {"type": "Int", "name": "count", "int": {"default": 2, "minimum": 1, "maximum": 9}},
            {"type": "Float", "name": "ratio", "required": True, "float": {"maximum": 0.5}},
            {"type": "JSON", "name": "extra", "required": True},
        ]
    },
    job_config.Options,
)
OPTIONS = {option.name: option for option in FORM.options}


def test_schema_of_an_option() -> None:
    schema = job_option_forms.json_schema(FORM)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
        "required": ["user", "tags", "ratio", "extra"],
        "properties": {
            "user": {"title": "Who", "type": "string", "minLength": 1},
            "city": {"title": "city", "type": "string", "default": "Oslo"},
            "tone": {
                "title": "tone",
                "type": "string",
                "enum": ["dry", "x", ""],
                "default": "dry",
            },
            "any": {"title": "any", "type": "string", "examples": ["a"]},
            "shout": {"title": "shout", "type": "boolean", "default": False},
            "tags": {
                "title": "tags",
                "type": "array",
                "items": {"type": "string", "enum": ["a", "b"]},
                "minItems": 1,
            },
            "more": {
                "title": "more",
                "type": "array",
                "items": {"type": "string", "minLength": 1, "examples": ["a"]},
            },
            "day": {"title": "day", "type": "string", "format": "date-time"},
            "count": {
                "title": "count",
                "type": "integer",
                "minimum": 1,
                "maximum": 9,
                "default": 2,
            },
            "ratio": {"title": "ratio", "type": "number", "maximum": 0.5},
            "extra": {"title": "extra", "not": {"type": "null"}},
        },
    }


def test_schema_of_no_options() -> None:
    assert job_option_forms.json_schema(None)["properties"] == {}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("user", "Ada Lovelace", "Ada Lovelace"),
        ("city", "", None),
        ("city", '""', ""),
        ("tone", " dry ", "dry"),
        ("tone", "", None),
        ("shout", "y", True),
        ("shout", "NO", False),
        ("shout", "", None),
        ("tags", "a, b", ["a", "b"]),
        ("tags", '["b"]', ["b"]),
        ("day", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05Z"),
        ("count", " 3 ", 3),
        ("count", "", None),
        ("ratio", "0.25", 0.25),
        ("extra", '{"a": [1]}', {"a": [1]}),
    ],
)
def test_typed_text_becomes_a_value(name: str, text: str, value: Any) -> None:
    assert job_option_forms.from_text(OPTIONS[name], text) == value


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("user", "", "is needed"),
        ("tone", "rude", 'must be one of "dry", "x", not "rude"'),
        ("shout", "maybe", 'must be yes or no, not "maybe"'),
        ("tags", "a,", "has an item that is empty"),
        ("tags", "[1]", "has an item that must be a text, not 1"),
        ("tags", "[", "must be JSON"),
        ("day", "tomorrow", "must be a time in RFC 3339"),
        ("count", "three", 'must be a whole number, not "three"'),
        ("count", "10", "must be at most 9"),
        ("ratio", "half", 'must be a number, not "half"'),
        ("ratio", "nan", "must be a finite number"),
        ("extra", "text", "must be JSON, and a text in quotes"),
        ("extra", '{"a": 1, "a": 2}', "key 'a' is already set"),
        ("extra", "[NaN]", "the number nan, which cannot be written as JSON"),
        ("user", "\udcff", "has characters that are no Unicode"),
    ],
)
def test_invalid_typed_text_is_refused(name: str, text: str, problem: str) -> None:
    with pytest.raises(job_config_options.InvalidOptions) as error:
        job_option_forms.from_text(OPTIONS[name], text)
    ((field, found),) = error.value.problems
    assert field == f"spec.optionValues.{name}"
    assert problem in found


def test_custom_words_of_a_bool_may_be_typed() -> None:
    option = msgspec.convert(
        {
            "type": "Bool",
            "name": "v",
            "bool": {"format": "Custom", "trueVal": "loud", "falseVal": "0x"},
        },
        job_config.Option,
    )
    assert job_option_forms.from_text(option, "loud") is True
    assert job_option_forms.from_text(option, "0x") is False


VALUES = some.one_of(
    some.none(),
    some.booleans(),
    some.integers(-(2**65), 2**65),
    some.integers(0, 10),
    some.floats(allow_nan=False, allow_infinity=False),
    some.sampled_from(["", "a", "b", "dry", "x", "2026-01-02T03:04:05Z", " "]),
    some.lists(some.sampled_from(["a", "b", "", 1]), max_size=3),
)


@given(some.sampled_from(sorted(OPTIONS)), VALUES)
def test_schema_accepts_no_invalid_value(name: str, value: Any) -> None:
    option = OPTIONS[name]
    form = job_config.Options(options=(option,))
    validator = jsonschema.Draft202012Validator(job_option_forms.json_schema(form))
    if not validator.is_valid({name: value}) or (name == "day" and not str(value).endswith("Z")):
        return
    job_config_options.evaluate(form, {name: value})


@given(some.sampled_from(sorted(OPTIONS)), some.text(max_size=10))
def test_any_typed_text_is_a_value_or_refused(name: str, text: str) -> None:
    try:
        value = job_option_forms.from_text(OPTIONS[name], text)
    except job_config_options.InvalidOptions:
        return
    form = job_config.Options(options=(OPTIONS[name],))
    job_config_options.evaluate(form, {name: value})
