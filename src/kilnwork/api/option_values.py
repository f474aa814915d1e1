"""Evaluation of an option's value according to the option's type.

Part of `job_config_options`, which evaluates all values of a Job, and of `job_option_forms`, which
parses typed input. The rules are those of Furiko, plus those of Int, Float and JSON. No I/O.
"""

import difflib
import math
from collections.abc import Callable, Collection
from typing import Any

from kilnwork.api import job_config, json_limits, momentjs_formats

Option = job_config.Option
Type = job_config.OptionType

MIN_INT, MAX_INT = -(2**63), 2**63 - 1
"""Bounds of JSON integers: 64 bits, as most parsers support."""

MAX_LISTED = 20
"""Maximum number of names or values listed in a message."""


class Refused(Exception):
    """A value is invalid for its option; the message is a sentence without a subject."""


def evaluate(option: Option, value: Any) -> Any:
    """Evaluate a value; None means no value, so that the default applies. Raises Refused."""
    return _EVALUATORS[option.type](option, value)


def default_of(option: Option) -> Any:
    """Return the default as a Job could set it; None if there is none."""
    config = config_of(option)
    found: Any = getattr(config, "default", None)
    if option.type is Type.MULTI:
        return list(config.default) or None
    if option.type in (Type.STRING, Type.SELECT):
        text = found.strip() if option.type is Type.STRING and config.trim_spaces else found
        return text or None
    return found


def config_of(option: Option) -> Any:
    """Return the part of an option that belongs to its type, or that part's defaults if it is
    missing."""
    attribute, empty = CONFIGS[option.type]
    given = getattr(option, attribute)
    return empty if given is None else given


def show(value: Any) -> str:
    """Return a value for a message, including values that JSON cannot represent."""
    plain = value is None or isinstance(value, str | int | float | bool | list | dict)
    if not plain or (isinstance(value, float) and not math.isfinite(value)):
        return repr(value)[:60]
    return str(value) if type(value) is int else json_limits.show(value)


def list_values(values: Collection[str]) -> str:
    """Return values for a message, shortened to the first ones if there are many."""
    shown = [json_limits.show(value) for value in list(values)[:MAX_LISTED]]
    more = len(values) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _bool(option: Option, value: Any) -> Any:
    config: job_config.BoolOption = config_of(option)
    if value is None:
        value = config.default
    if not isinstance(value, bool):
        raise Refused(f"must be true or false, not {show(value)}")
    if config.format is job_config.BoolFormat.TRUE_FALSE:
        return value
    return bool_words(config)[not value]


def bool_words(config: job_config.BoolOption) -> tuple[str, str]:
    """Return the texts for true and false."""
    match config.format:
        case job_config.BoolFormat.ONE_ZERO:
            return "1", "0"
        case job_config.BoolFormat.YES_NO:
            return "yes", "no"
        case job_config.BoolFormat.CUSTOM:
            return config.true_val, config.false_val
        case _:
            return "true", "false"


def _string(option: Option, value: Any) -> str:
    config: job_config.StringOption = config_of(option)
    text = _text(config.default if value is None else value)
    if config.trim_spaces:
        text = text.strip()
    if option.required and not text:
        raise Refused("is needed: give a text that is not empty")
    return text


def _text(value: Any) -> str:
    if not isinstance(value, str):
        remedy = " (in YAML, put it into quotes)" if isinstance(value, int | float) else ""
        raise Refused(f"must be a text, not {show(value)}{remedy}")
    return value


def _select(option: Option, value: Any) -> str:
    config: job_config.SelectOption = config_of(option)
    text = _text(config.default if value is None else value)
    if not text and option.required:
        raise Refused(f"is needed: choose one of {list_values(config.values)}")
    if text and not config.allow_custom and text not in config.values:
        raise Refused(unlisted_message(text, config.values))
    return text


def unlisted_message(text: str, values: Collection[str]) -> str:
    """Return the message for a text that is not one of the allowed values."""
    close = difflib.get_close_matches(text[:100], values, n=1)
    hint = f"; did you mean {json_limits.show(close[0])}?" if close else ""
    return f"must be one of {list_values(values)}, not {json_limits.show(text)}{hint}"


def _multi(option: Option, value: Any) -> str:
    config: job_config.MultiOption = config_of(option)
    given = [] if value is None else value
    if not isinstance(given, list | tuple):
        raise Refused(f"must be a list of texts, not {show(given)}")
    items = [_item(one, config) for one in given or config.default]
    if not items and option.required:
        raise Refused(f"is needed: choose at least one of {list_values(config.values)}")
    return config.delimiter.join(items)


def _item(value: Any, config: job_config.MultiOption) -> str:
    try:
        text = _text(value)
    except Refused as refused:
        raise Refused(f"has an item that {refused}") from refused
    if not text:
        raise Refused("has an item that is empty; leave it out")
    if not config.allow_custom and text not in config.values:
        raise Refused(f"has an item that {unlisted_message(text, config.values)}")
    return text


def _date(option: Option, value: Any) -> str:
    config: job_config.DateOption = config_of(option)
    example = "2026-01-02T03:04:05Z or 2026-01-02T03:04:05+01:00"
    text = _text("" if value is None else value)
    if not text:
        if option.required:
            raise Refused(f"is needed: give a time in RFC 3339, such as {example}")
        return ""
    try:
        moment = momentjs_formats.parse_rfc3339(text)
    except ValueError as error:
        shown = json_limits.show(text)
        raise Refused(f"must be a time in RFC 3339, such as {example}, not {shown}") from error
    return momentjs_formats.format_time(moment, config.format) if config.format else text


def _int(option: Option, value: Any) -> int | None:
    config: job_config.IntOption = config_of(option)
    number = config.default if value is None else value
    if isinstance(number, float) and number.is_integer() and abs(number) <= 2**53:
        number = int(number)  # 3.0 is an integer in JSON Schema too
    if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
        raise Refused(f"must be a whole number, not {show(number)}")
    if number is not None and not MIN_INT <= number <= MAX_INT:
        raise Refused(f"must fit into 64 bits; {number} does not")
    _check_bounds(option, number, config)
    return number


def _float(option: Option, value: Any) -> float | None:
    config: job_config.FloatOption = config_of(option)
    number = config.default if value is None else value
    if number is not None and (isinstance(number, bool) or not isinstance(number, int | float)):
        raise Refused(f"must be a number, not {show(number)}")
    try:
        number = None if number is None else float(number)
    except OverflowError as error:
        raise Refused("must be a number that a double can hold") from error
    if number is not None and not math.isfinite(number):
        raise Refused(f"must be a finite number, not {number}")
    _check_bounds(option, number, config)
    return number


def _check_bounds(
    option: Option, number: float | None, config: job_config.IntOption | job_config.FloatOption
) -> None:
    if number is None:
        if option.required:
            raise Refused("is needed: give a number")
        return
    if config.minimum is not None and number < config.minimum:
        raise Refused(f"must be at least {config.minimum}, not {number}")
    if config.maximum is not None and number > config.maximum:
        raise Refused(f"must be at most {config.maximum}, not {number}")


def _json(option: Option, value: Any) -> Any:
    config: job_config.JsonOption = config_of(option)
    found = config.default if value is None else value
    if found is None and option.required:
        raise Refused("is needed: give any JSON but null")
    try:
        json_limits.measure(found)
    except json_limits.LimitExceeded as error:
        raise Refused(str(error)) from error
    if (odd := json_limits.find_non_json(found)) is not None:
        raise Refused(f"has {odd}, which cannot be written as JSON")
    return found


CONFIGS: dict[Type, tuple[str, Any]] = {
    Type.BOOL: ("bool_", job_config.BoolOption()),
    Type.STRING: ("string", job_config.StringOption()),
    Type.SELECT: ("select", job_config.SelectOption(values=())),
    Type.MULTI: ("multi", job_config.MultiOption(values=())),
    Type.DATE: ("date", job_config.DateOption()),
    Type.INT: ("int_", job_config.IntOption()),
    Type.FLOAT: ("float_", job_config.FloatOption()),
    Type.JSON: ("json", job_config.JsonOption()),
}
"""Attribute of the type-specific part of an option, and the default of that part, by type."""

_EVALUATORS: dict[Type, Callable[[Option, Any], Any]] = {
    Type.BOOL: _bool,
    Type.STRING: _string,
    Type.SELECT: _select,
    Type.MULTI: _multi,
    Type.DATE: _date,
    Type.INT: _int,
    Type.FLOAT: _float,
    Type.JSON: _json,
}
