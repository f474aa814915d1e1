"""Forms for a JobConfig's options: JSON Schema for web pages, and parsing of typed values.

Used by `kiln run-job`, `kiln backfill` and the REST API. Only `job_config_options` decides what is
valid: the schema accepts nothing that `job_config_options` refuses. No I/O.
"""

import json
from collections.abc import Callable
from typing import Any

from kilnwork.api import job_config, job_config_options, json_limits, option_values, yaml_loader

Option = job_config.Option
Type = job_config.OptionType

DIALECT = "https://json-schema.org/draft/2020-12/schema"

EMPTY_TEXT = '""'
"""The input that means an empty string; empty input means the default."""

_TRUE_WORDS = frozenset({"true", "yes", "y", "on", "1"})
_FALSE_WORDS = frozenset({"false", "no", "n", "off", "0"})


def json_schema(given: job_config.Options | None) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of an object of option values.

    An omitted or null value stands for the default. The options must be valid
    (`job_config_options.problems`).
    """
    listed = given.options if given is not None else ()
    return {
        "$schema": DIALECT,
        "type": "object",
        "properties": {option.name: _property(option) for option in listed},
        "required": [option.name for option in listed if is_asked(option)],
        "additionalProperties": False,
    }


def is_asked(option: Option) -> bool:
    """Return whether a value must be set: the option is required and has no default."""
    return option.required and option_values.default_of(option) is None


def from_text(option: Option, text: str, field: str = job_config_options.VALUES_FIELD) -> Any:
    """Convert a typed value of an option to a JSON value of `optionValues`.

    Empty input is None, for the default. A list is separated by commas, or JSON. Raises
    `job_config_options.InvalidOptions` if it is not a value of the option.
    """
    problem = f"{field}.{option.name}"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise job_config_options.InvalidOptions(
            [(problem, "has characters that are no Unicode")]
        ) from error
    try:
        value = _READERS[option.type](option, text) if text.strip() else None
        option_values.evaluate(option, value)
    except option_values.Refused as refused:
        raise job_config_options.InvalidOptions([(problem, str(refused))]) from refused
    return value


def _bool(option: Option, text: str) -> bool:
    word = text.strip()
    true, false = option_values.bool_words(option_values.config_of(option))
    if word in (true, false):
        return word == true
    if word.lower() in _TRUE_WORDS | _FALSE_WORDS:
        return word.lower() in _TRUE_WORDS
    raise option_values.Refused(f"must be yes or no, not {json_limits.show(text)}")


def _string(option: Option, text: str) -> str:
    return "" if text.strip() == EMPTY_TEXT else text


def _stripped(option: Option, text: str) -> str:
    return "" if text.strip() == EMPTY_TEXT else text.strip()


def _multi(option: Option, text: str) -> Any:
    if text.lstrip().startswith("["):
        return _json(option, text)
    return [item.strip() for item in text.split(",")]


def _int(option: Option, text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        shown = json_limits.show(text)
        raise option_values.Refused(f"must be a whole number, not {shown}") from error


def _float(option: Option, text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise option_values.Refused(f"must be a number, not {json_limits.show(text)}") from error


def _json(option: Option, text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=job_config_options.unique_members)
    except (ValueError, RecursionError, yaml_loader.MalformedYaml) as error:
        problem = f"must be JSON, and a text in quotes; {json_limits.show(text)} is not: {error}"
        raise option_values.Refused(problem) from error


_READERS: dict[Type, Callable[[Option, str], Any]] = {
    Type.BOOL: _bool,
    Type.STRING: _string,
    Type.SELECT: _stripped,
    Type.MULTI: _multi,
    Type.DATE: _stripped,
    Type.INT: _int,
    Type.FLOAT: _float,
    Type.JSON: _json,
}


def _property(option: Option) -> dict[str, Any]:
    made: dict[str, Any] = {"title": option.label or option.name, **_SHAPES[option.type](option)}
    default = option_values.default_of(option)
    return made if default is None else {**made, "default": default}


def _string_shape(option: Option) -> dict[str, Any]:
    config: job_config.StringOption = option_values.config_of(option)
    if not option.required:
        return {"type": "string"}
    return {"type": "string", **({"pattern": r"\S"} if config.trim_spaces else {"minLength": 1})}


def _select_shape(option: Option) -> dict[str, Any]:
    config: job_config.SelectOption = option_values.config_of(option)
    values = list(dict.fromkeys(config.values))
    if config.allow_custom:
        return {"type": "string", "examples": values} | (
            {"minLength": 1} if option.required else {}
        )
    return {"type": "string", "enum": values if option.required else [*values, ""]}


def _multi_shape(option: Option) -> dict[str, Any]:
    config: job_config.MultiOption = option_values.config_of(option)
    values = list(dict.fromkeys(config.values))
    offered = {"minLength": 1, "examples": values} if config.allow_custom else {"enum": values}
    least = {"minItems": 1} if is_asked(option) else {}
    return {"type": "array", "items": {"type": "string", **offered}, **least}


def _date_shape(option: Option) -> dict[str, Any]:
    return {"type": "string", "format": "date-time"}


def _number_shape(option: Option) -> dict[str, Any]:
    config: job_config.IntOption | job_config.FloatOption = option_values.config_of(option)
    whole = option.type is Type.INT
    least = option_values.MIN_INT if whole and config.minimum is None else config.minimum
    greatest = option_values.MAX_INT if whole and config.maximum is None else config.maximum
    bounds = {"minimum": least, "maximum": greatest}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    return {"type": "integer" if whole else "number", **given}


def _json_shape(option: Option) -> dict[str, Any]:
    return {"not": {"type": "null"}} if is_asked(option) else {}


_SHAPES: dict[Type, Callable[[Option], dict[str, Any]]] = {
    Type.BOOL: lambda option: {"type": "boolean"},
    Type.STRING: _string_shape,
    Type.SELECT: _select_shape,
    Type.MULTI: _multi_shape,
    Type.DATE: _date_shape,
    Type.INT: _number_shape,
    Type.FLOAT: _number_shape,
    Type.JSON: _json_shape,
}
