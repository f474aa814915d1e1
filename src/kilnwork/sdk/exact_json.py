"""JSON encoding of values that JSON represents exactly: decoding returns an equal value, with the
same types.

Used by `sdk.serialization` as the fast path, and by `testing.inline_flows`. Not a converter: values
that JSON would change (tuples, NaN, integers beyond 2 ** 53, keys that are not strings, subclasses,
a list that appears twice) are left to pickle.
"""

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

MAX_INTEGER = 2**53
"""Largest integer that every JSON reader keeps (RFC 8259 §6), so that canonical forms compare."""
MAX_DEPTH = 50
"""Maximum nesting depth; deeper values are left to pickle, since checking them takes a stack frame
per level."""

_encode = msgspec.json.Encoder().encode
_FREE = frozenset({str, bool, type(None)})
_ALLOWED = _FREE | {int, float, list, dict}
_NESTED = frozenset({list, dict})
_INTEGERS = frozenset({int})
_STRINGS = frozenset({str})
_FEW = 32
"""Number of values above which their types are collected first: most lists have values of one type,
so that this is a fast check."""


def encode(value: Any) -> bytes | None:
    """Return a value as JSON, or None if JSON does not represent it exactly."""
    kind = type(value)
    if kind is int:
        return _encode(value) if -MAX_INTEGER <= value <= MAX_INTEGER else None
    if kind in _FREE or (kind in _ALLOWED and _all_exact((value,), set(), 0)):
        return _written(value)
    return None


def encode_call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes | None:
    """Return arguments as JSON `[[…], {…}]`, or None if JSON does not represent them exactly."""
    for value in args:
        kind = type(value)
        if kind is int:
            if not -MAX_INTEGER <= value <= MAX_INTEGER:
                return None
        elif kind not in _FREE:
            return _encode_any_call(args, kwargs)
    return _encode_any_call((), kwargs, shown=args) if kwargs else _written((args, kwargs))


def _encode_any_call(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], shown: tuple[Any, ...] | None = None
) -> bytes | None:
    seen: set[int] = set()
    if _all_exact(args, seen, 1) and _all_exact(kwargs.values(), seen, 1):
        return _written((args if shown is None else shown, kwargs))
    return None


def _written(value: Any) -> bytes | None:
    try:
        return _encode(value)
    except UnicodeEncodeError:  # a lone surrogate, which a str may contain but UTF-8 cannot
        return None


def _all_exact(values: Collection[Any], seen: set[int], depth: int) -> bool:
    """Return whether JSON represents each of `values`, the items of a container, exactly.

    `depth`: the number of containers around the items. Containers that appear twice are left to
    pickle, which preserves that they are the same object.
    """
    if len(values) > _FEW:
        kinds = set(map(type, values))
        if kinds == _INTEGERS:
            return bool(min(values) >= -MAX_INTEGER and max(values) <= MAX_INTEGER)
        if kinds <= _FREE or not kinds <= _ALLOWED:
            return kinds <= _FREE
    for value in values:
        kind = type(value)
        if kind in _FREE:
            continue
        if kind is int:
            if not -MAX_INTEGER <= value <= MAX_INTEGER:
                return False
        elif kind is float:
            if value - value != 0:  # infinite, or not a number
                return False
        elif kind not in _NESTED or not _exact_nested(value, seen, depth):
            return False
    return True


def _exact_nested(value: Any, seen: set[int], depth: int) -> bool:
    """Return whether JSON represents this list or dict exactly.

    `depth`: the number of containers around it.
    """
    if depth == MAX_DEPTH or id(value) in seen:
        return False
    seen.add(id(value))
    if type(value) is dict:
        if set(map(type, value)) - _STRINGS:
            return False
        value = value.values()
    return _all_exact(value, seen, depth + 1)
