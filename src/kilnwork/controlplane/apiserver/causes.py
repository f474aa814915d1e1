"""Causes of a 422, worded as in k8s.io/apimachinery/pkg/util/validation/field.

Used by every validation rule of the API server. `statuses.invalid` puts several into one Status.
"""

import json
from collections.abc import Iterable
from typing import Any

from kilnwork.controlplane.apiserver import statuses

Cause = statuses.Cause

IMMUTABLE = "field is immutable"

_MAX_SHOWN = 1000
"""Characters of a value that an error shows: a whole TaskObject would not be readable there."""


def quoted(value: Any) -> str:
    """Return a value as error messages show it: strings in quotes, other values as JSON."""
    if value is None:
        return '"null"'
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def go_text(value: Any) -> str:
    """Return a value as Go's `%v` prints it: `map[a:1 b:[x y]]`."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case dict():
            return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
        case list():
            return f"[{' '.join(map(go_text, value))}]"
    return str(value)


def invalid(field: str, value: Any, why: str) -> Cause:
    """Return the cause for a value that breaks a rule; `why` states the rule."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {why}")


def wrong_type(field: str, found: str, why: str) -> Cause:
    """Return the cause for a value of JSON type `found` where another type is required."""
    return Cause(field, "FieldValueTypeInvalid", f'Invalid value: "{found}": {why}')


def required(field: str, why: str = "") -> Cause:
    """Return the cause for a required field that is missing or empty."""
    return Cause(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def duplicate(field: str, value: Any) -> Cause:
    """Return the cause for a value that must be unique but occurs twice.

    A map is shown as Go prints it.
    """
    go = "map[string]interface {}" if isinstance(value, dict) else ""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {go}{quoted(value)}")


def unsupported(field: str, value: Any, supported: Iterable[str]) -> Cause:
    """Return the cause for a value that is not in the list of supported values."""
    listed = ", ".join(f'"{option}"' for option in supported)
    text = f"Unsupported value: {quoted(value)}: supported values: {listed}"
    return Cause(field, "FieldValueNotSupported", text)


def not_found(field: str, value: Any) -> Cause:
    """Return the cause for a reference to a part that the object does not contain."""
    return Cause(field, "FieldValueNotFound", f"Not found: {quoted(value)}")


def forbidden(field: str, why: str) -> Cause:
    """Return the cause for a field that may not be set or changed."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def too_long(field: str, limit_bytes: int) -> Cause:
    """Return the cause for a text that is too long. The cause does not contain the text."""
    text = f"Too long: may not be more than {limit_bytes} bytes"
    return Cause(field, "FieldValueTooLong", text)


def too_many(field: str, count: int, limit: int) -> Cause:
    """Return the cause for a list with too many items."""
    text = f"Too many: {count}: must have at most {limit} items"
    return Cause(field, "FieldValueTooMany", text)
