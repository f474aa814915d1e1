"""Encoding of results: one line each, in JSON unless the mapper returns a line that is complete.

Used for the results of functions and of built-in mappers, and for CSV rows that are passed to
commands. The results of commands are lines already.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from kilnwork.jobs.work import errors

Encode = Callable[[Any], bytes]

_PLAIN = frozenset({dict, list, tuple, int, float, bool})


def _encode_foreign(value: Any) -> Any:
    """Convert a number or array of numpy or a similar library to a value that can be encoded."""
    if hasattr(value, "tolist"):
        return value.tolist()
    kind = type(value)
    raise errors.BadResult(
        f"JSON cannot write a {kind.__module__}.{kind.__qualname__}, which the result is or holds: "
        "return dicts, lists, strings, numbers, dataclasses"
    )


_json = msgspec.json.Encoder(enc_hook=_encode_foreign).encode


def encoder(*, text: bool) -> Encode:
    """Return a function that encodes a value other than None as a line, without a line end.

    The function raises `BadResult`. A `bytes` value becomes the line unchanged, any other value
    becomes JSON. `text`: whether the input format is text; then a `str` too becomes the line
    unchanged, in UTF-8.
    """
    return _text_line if text else _json_line


def _json_line(value: Any) -> bytes:
    return _one_line(bytes(value) if isinstance(value, bytes | bytearray) else _encoded(value))


def _text_line(value: Any) -> bytes:
    kind = type(value)
    if kind in _PLAIN:
        return _one_line(_encoded(value))
    if isinstance(value, str):
        try:
            return _one_line(value.encode())
        except UnicodeEncodeError as error:
            raise errors.BadResult(f"the result is no text that UTF-8 can write: {error}") from None
    return _json_line(value)


def _encoded(value: Any) -> bytes:
    try:
        return _json(value)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise errors.BadResult(f"the result cannot be written as JSON: {error}") from error


def _one_line(line: bytes) -> bytes:
    if b"\n" not in line:
        return line
    line = line.removesuffix(b"\n")
    more = line.count(b"\n")
    if more:
        raise errors.BadResult(
            f"the result is {more + 1} lines: yield several results one by one, or a line each"
        )
    return line
