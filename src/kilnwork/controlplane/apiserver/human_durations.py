"""Durations as `kubectl` prints them: `5s`, `3m12s`, `4h`, `2d3h`.

Used by `tables` and `table_pods`. Follows k8s.io/apimachinery/pkg/util/duration.HumanDuration.
"""

from typing import Any

from kilnwork.api import meta
from kilnwork.kit import clock

UNKNOWN = "<unknown>"

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_YEAR = 365 * _DAY


def human(seconds: float) -> str:
    """Return a duration as text with at most two units, rounded down."""
    whole = int(seconds)
    # The clocks of two machines may differ by less than 2 s (HumanDuration).
    if whole < -1:
        return "<invalid>"
    whole = max(0, whole)
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", rest=(1, "s"))
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", rest=(_MINUTE, "m"))
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", rest=(_HOUR, "h"))
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", rest=(_DAY, "d"))
    return f"{whole // _YEAR}y"


def since(timestamp: Any, now: float) -> str:
    """Return the time since an RFC 3339 timestamp as text; `<unknown>` without a timestamp."""
    if not isinstance(timestamp, str):
        return UNKNOWN
    try:
        return human(now - clock.parse_rfc3339(timestamp))
    except ValueError:
        return UNKNOWN


def age(obj: meta.JsonObject, now: float) -> str:
    """Return the time since the creation of an object as text."""
    return since(obj["metadata"].get("creationTimestamp"), now)


def _two(whole: int, unit: int, letter: str, *, rest: tuple[int, str]) -> str:
    small, small_letter = rest
    left = whole % unit // small
    head = f"{whole // unit}{letter}"
    return f"{head}{left}{small_letter}" if left else head
