"""JSON that clients write: names of an object are distinct, and 3.0 is an integer.

The second is how JSON Schema sees numbers (draft 2020-12, 6.1.1).

Pure; used on what clients write, since some JSON libraries know only floating numbers.
"""

import json
from typing import Any

import msgspec

_MOST = 2.0**53


def decoded(text: str | bytes) -> dict[str, Any]:
    """An object of JSON. Raises ValueError for anything else, also for a name that comes twice: of
    two values one would be ignored (RFC 8259 §4)."""
    found = msgspec.json.decode(text, type=dict[str, Any])
    json.loads(text, object_pairs_hook=_object)
    return found


def _object(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for name, _ in pairs:
        if name in seen:
            raise ValueError(f"{name[:100]!r} comes more than once: give it once")
        seen.add(name)


def whole(value: Any) -> Any:
    """The same, with integers for floats that are such exactly."""
    match value:
        case float() if abs(value) <= _MOST and value.is_integer():
            return int(value)
        case dict():
            return {key: whole(one) for key, one in value.items()}
        case list():
            return [whole(one) for one in value]
        case _:
            return value
