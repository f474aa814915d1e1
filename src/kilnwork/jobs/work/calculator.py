"""Calculator, a built-in mapper: computes a JSON object with two numbers and an operator.

Used by `builtins`. A record is `{"id", "value1", "value2", "op"}`; the result is the same with
`result` added, compact, in this order. Accepted input and number format follow the worker of
fbeltrao/aksjobscheduler (Json.NET on .NET Core 2.1) byte for byte: a double is written with 15
significant digits if they read back as the same number, else with 17 (.NET's format "R" before .NET
Core 3.0), always with a fraction or an exponent; NaN and the infinities are written as strings.
"""

import math
import re
from collections.abc import Callable

import msgspec

from kilnwork.data import errors

MISSING = b"null"
"""JSON for a missing id or operator."""

_DIGITS = 15
_PLAIN_FROM, _PLAIN_BELOW = 1e-4, 1e15
"""Range (from `_PLAIN_FROM`, below `_PLAIN_BELOW`) in which neither "R" nor `repr` writes an
exponent. `repr` writes as few digits as read back as the same number; with up to 15 digits both
agree."""

_NUMBER = re.compile(r"[+-]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
"""A number in a string, as .NET's NumberStyles.Float with AllowThousands reads it."""

_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NO_NUMBERS = {math.inf: '"Infinity"', -math.inf: '"-Infinity"'}


class _Record(msgspec.Struct, gc=False):
    """A record with fields of the expected types."""

    id: str | None = None
    value1: float = 0.0
    value2: float = 0.0
    op: str | None = None


class _LenientRecord(msgspec.Struct, gc=False):
    """A record with any values in its fields, still as JSON."""

    id: msgspec.Raw = msgspec.Raw(MISSING)
    value1: msgspec.Raw = msgspec.Raw(b"0")
    value2: msgspec.Raw = msgspec.Raw(b"0")
    op: msgspec.Raw = msgspec.Raw(MISSING)


_decode = msgspec.json.Decoder(_Record).decode
_decode_lenient = msgspec.json.Decoder(_LenientRecord).decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def calculate(line: bytes) -> bytes:
    """Return the result line of one record, without a line end. Raises `BadRecord`."""
    try:
        record = _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        record = _decode_leniently(line)
    first, second, name = record.value1, record.value2, record.op
    operator = _OPERATORS.get(name) if name is not None else None
    result = 0.0 if operator is None else operator(first, second)
    ident = record.id
    shown = f'"{ident}"' if ident is not None and ident.isalnum() else _encode(ident).decode()
    op = f'"{name}"' if operator is not None else _encode(name).decode()
    return (
        f'{{"id":{shown},"value1":{number(first)},"value2":{number(second)},'
        f'"op":{op},"result":{number(result)}}}'
    ).encode()


def number(value: float) -> str:
    """Format a double as JSON text."""
    if _PLAIN_FROM <= value < _PLAIN_BELOW or -_PLAIN_BELOW < value <= -_PLAIN_FROM:
        shortest = repr(value)
        if value.is_integer() or len(shortest.lstrip("-0.").replace(".", "")) <= _DIGITS:
            return shortest
        return f"{value:.17G}"
    if not value:
        return "0.0"
    if math.isnan(value):
        return '"NaN"'
    if value in _NO_NUMBERS:
        return _NO_NUMBERS[value]
    text = f"{value:.15G}"
    if float(text) != value:
        text = f"{value:.17G}"
    return text if "." in text or "E" in text else text + ".0"


def _divided(first: float, second: float) -> float:
    """Return the quotient as in IEEE 754, where a division by zero has a result."""
    if second:
        return first / second
    if not first or math.isnan(first):
        return math.nan
    return math.copysign(math.inf, first) * math.copysign(1.0, second)


def _added(first: float, second: float) -> float:
    return first + second


def _subtracted(first: float, second: float) -> float:
    return first - second


def _multiplied(first: float, second: float) -> float:
    return first * second


_OPERATORS: dict[str, Callable[[float, float], float]] = {
    "+": _added,
    "add": _added,
    "-": _subtracted,
    "subtract": _subtracted,
    "*": _multiplied,
    "times": _multiplied,
    "/": _divided,
    "divide": _divided,
}


def _decode_leniently(line: bytes) -> _Record:
    """Decode a record whose fields have types that differ from the expected ones but can be
    converted.
    """
    try:
        found = _decode_lenient(line)
        return _Record(
            id=_text(found.id),
            value1=_number(found.value1, "value1"),
            value2=_number(found.value2, "value2"),
            op=_text(found.op),
        )
    except (msgspec.MsgspecError, RecursionError) as error:
        raise errors.BadRecord(f"not a JSON object as the calculator takes it: {error}") from error
    except UnicodeDecodeError as error:
        raise errors.BadRecord(f"not UTF-8: {error}") from error


def _text(raw: msgspec.Raw) -> str | None:
    """Return the text of a field: a string's value, or the JSON text of a number or boolean; None
    for null.

    Raises BadRecord for an array or object.
    """
    value = _decode_any(raw)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        raise errors.BadRecord(f"{bytes(raw)[:80].decode(errors='replace')} is no string")
    return bytes(raw).strip().decode()


def _number(raw: msgspec.Raw, field: str) -> float:
    """Return the value of a field that is a number, or a string with a number."""
    value = _decode_any(raw)
    if isinstance(value, float):
        return value
    if type(value) is int:
        return _finite(float(str(value)), field)
    if isinstance(value, str):
        text = value.strip()
        if text in _WORDS:
            return _WORDS[text]
        if _NUMBER.fullmatch(text):
            return _finite(float(text.replace(",", "")), field)
    shown = bytes(raw)[:80].decode(errors="replace")
    raise errors.BadRecord(f"{field} is {shown}, not a number")


def _finite(value: float, field: str) -> float:
    if math.isinf(value):
        raise errors.BadRecord(f"{field} is larger than a double can be")
    return value
