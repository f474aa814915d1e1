"""Strict parsing of JSON from clients: the names in an object must be unique, and 3.0 is an
integer.

JSON Schema treats numbers in the same way (draft 2020-12, 6.1.1), and some JSON libraries have only
floating-point numbers. Does no I/O.
"""

import json
from typing import Any

import msgspec

_MOST = 2.0**53


def decode_object(text: str | bytes) -> dict[str, Any]:
    """Decode a JSON object. Raises ValueError for anything else, and for a name that occurs twice,
    since one of the two values would be ignored (RFC 8259 §4)."""
    found = msgspec.json.decode(text, type=dict[str, Any])
    json.loads(text, object_pairs_hook=_object)
    return found


def _object(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"{name[:100]!r} comes more than once: give it once")
        seen.add(name)


def to_integers(value: Any) -> Any:
    """Return the value with integers in place of floats that are whole numbers."""
    match value:
        case float() if abs(value) <= _MOST and value.is_integer():
            return int(value)
        case dict():
            return {key: to_integers(one) for key, one in value.items()}
        case list():
            return [to_integers(one) for one in value]
        case _:
            return value
