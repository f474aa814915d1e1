"""Numbers of JSON as JSON Schema sees them: 3.0 is an integer (draft 2020-12, 6.1.1).

Pure; used on what clients write, since some JSON libraries know only floating numbers.
"""

from typing import Any

_MOST = 2.0**53


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
