"""Structural schemas: pruning, defaulting and validation of custom objects.

Used by admission and `typed_decoding`. Order and messages follow k8s.io/apiextensions-apiserver:
unknown fields are dropped first, then nulls of fields that are not nullable, then defaults are
filled in, then all problems are collected. CEL rules are evaluated in `rules_cel`; for kinds that
come with the control plane, Python functions replace them (`installed_kind_types`).
"""

import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from kilnwork.api import meta
from kilnwork.api import schema_generation as schemas
from kilnwork.controlplane.apiserver import causes, duplicates, patterns, statuses
from kilnwork.kit import clock

Schema = schemas.Schema

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def prune_and_default(schema: Schema, obj: meta.JsonObject) -> tuple[meta.JsonObject, list[str]]:
    """Return a pruned copy of an object with defaults, and the paths of the dropped fields.

    Paths look like `spec.foo` and `spec.env[0].bar`. `metadata` is not part of the schema and is
    passed through. Raises 413 if the defaults take too many bytes.
    """
    unknown = _Unknown()
    result: meta.JsonObject = {}
    for key in ("apiVersion", "kind", "metadata"):
        if key in obj:
            result[key] = obj[key]
    rest = {key: value for key, value in obj.items() if key not in result}
    result |= _shape_object(schema, rest, "", unknown)
    return result, unknown


class _Unknown(list[str]):
    """Paths of the fields that a schema does not contain, and the size of filled-in defaults."""

    filled_bytes = 0
    """Size of the defaults so far: each item of a long list may get large defaults."""

    def fill(self, default: Any) -> Any:
        """Return a copy of a default to fill in. Raises 413 if too many bytes are filled in."""
        self.filled_bytes += len(msgspec.json.encode(default))
        if self.filled_bytes > statuses.MAX_BODY_BYTES:
            raise statuses.too_large()
        return copy.deepcopy(default)


def validate(
    schema: Schema, obj: meta.JsonObject, *, old: meta.JsonObject | None = None
) -> list[causes.Cause]:
    """Return all violations of the schema in `obj`, in the order of its fields.

    Values unchanged since `old` are not validated (ratcheting, KEP-4008): a stricter schema applies
    only to what changes. Parts of `obj` that are identical objects in `old` are skipped.
    """
    validator = _Validator()
    validator.check(schema, obj, "", old=old)
    if old is None:
        return validator.found
    return [cause for cause in validator.found if not _is_same(obj, old, cause.field)]


def _is_same(new: meta.JsonObject, old: meta.JsonObject, path: str) -> bool:
    """Return whether the values at `path` are equal as JSON, where 1 differs from true."""
    after, before = _value_at(new, path), _value_at(old, path)
    return bool(after == before) and _in_order(after) == _in_order(before)


_in_order = msgspec.json.Encoder(order="sorted").encode


def _value_at(obj: Any, path: str) -> Any:
    for step in re.findall(r"[^.\[\]]+", path):
        if isinstance(obj, list):
            obj = obj[int(step)] if step.isdecimal() and int(step) < len(obj) else None
        else:
            obj = obj.get(step) if isinstance(obj, dict) else None
    return obj


class StrictError(ValueError):
    """The object has unknown or duplicate fields, and the client asked for strict validation."""


def unknown_fields(
    paths: Sequence[str], *, field_validation: str, oddities: Sequence[str] = ()
) -> list[str]:
    """Return warnings for unknown fields, and for messages about the body such as duplicate fields.

    `oddities` are these messages. Returns no warnings with `Ignore`, and raises StrictError with
    `Strict`.
    """
    if field_validation == "Ignore" or not (paths or oddities):
        return []
    texts = list(oddities)
    texts += [f'unknown field "{path}"' for path in paths]
    if field_validation == "Strict":
        raise StrictError(f"strict decoding error: {', '.join(texts)}")
    return duplicates.warnings(texts)


def _shape(schema: Schema, value: Any, path: str, unknown: _Unknown) -> Any:
    if isinstance(value, dict):
        return _shape_object(schema, value, path, unknown)
    if isinstance(value, list):
        items = schema.get("items")
        if items is None:
            return value
        return [_shape(items, v, f"{path}[{i}]", unknown) for i, v in enumerate(value)]
    # 1.0 is a valid integer in JSON Schema and is stored as 1.
    if schema.get("type") == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _shape_object(
    schema: Schema, value: meta.JsonObject, path: str, unknown: _Unknown
) -> meta.JsonObject:
    properties, others = schema.get("properties", {}), _others(schema)
    keeps_others = bool(schema.get(schemas.PRESERVE))
    result: meta.JsonObject = {}
    for key, item in value.items():
        below = f"{path}.{key}" if path else key
        field_schema = properties.get(key, others)
        if field_schema is not None:
            # Nulls are dropped before defaulting (CRD documentation, "Defaulting and Nullable").
            if item is None and key in properties and not field_schema.get("nullable"):
                continue
            result[key] = (
                item if isinstance(item, str) else _shape(field_schema, item, below, unknown)
            )
        elif keeps_others:
            result[key] = item
        else:
            unknown.append(below)
    for key, field_schema in properties.items():
        if "default" in field_schema and key not in result:
            below = f"{path}.{key}" if path else key
            result[key] = _shape(
                field_schema, unknown.fill(field_schema["default"]), below, unknown
            )
    return result


def _others(schema: Schema) -> Schema | None:
    """Return the schema of fields that `properties` does not name; `true` accepts anything."""
    others = schema.get("additionalProperties")
    if others is True:
        return {schemas.PRESERVE: True}
    return others if isinstance(others, dict) else None


_TYPES: dict[str, Callable[[Any], bool]] = {
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
}


_COMBINED = frozenset({"x-kubernetes-int-or-string", "allOf", "anyOf", "oneOf", "not"})


class _Validator:
    """Collects the violations of a schema, in the order of the fields."""

    def __init__(self) -> None:
        self.found: list[causes.Cause] = []

    def check(self, schema: Schema, value: Any, path: str, *, old: Any = None) -> None:
        """Validate `value` by `schema`; parts that are identical objects in `old` are skipped."""
        if value is None and schema.get("nullable"):
            return
        type_ = schema.get("type")
        if type_ in _TYPES and not _TYPES[type_](value):
            type_name = _type_name(value)
            where = f"{path} in body" if path else "body"
            text = f'{where} must be of type {type_}: "{type_name}"'
            self.found.append(causes.wrong_type(path, type_name, text))
            return
        if isinstance(value, str):
            self._text(schema, value, path)
        elif isinstance(value, dict):
            self._object(schema, value, path, old=old if isinstance(old, dict) else {})
        elif isinstance(value, list):
            self._list(schema, value, path)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self._number(schema, value, path)
        if not _COMBINED.isdisjoint(schema):
            self._combined(schema, value, path)
        if "enum" in schema and value not in schema["enum"]:
            self.found.append(causes.unsupported(path, value, schema["enum"]))

    def _combined(self, schema: Schema, value: Any, path: str) -> None:
        """Validate int-or-string, allOf, anyOf, oneOf and not.

        Messages are those of the validator of kube-openapi.
        """
        if schema.get("x-kubernetes-int-or-string") and not isinstance(value, int | str):
            text = f"{path} in body must be of type integer,string"
            type_name = _type_name(value)
            self.found.append(causes.wrong_type(path, type_name, f'{text}: "{type_name}"'))
        for one in schema.get("allOf", ()):
            self.check(one, value, path)
        fulfilled = [_fulfils(value, one) for one in schema.get("anyOf", ())]
        if fulfilled and not any(fulfilled):
            self._invalid(path, value, "must validate at least one schema (anyOf)")
        fulfilled = [_fulfils(value, one) for one in schema.get("oneOf", ())]
        if fulfilled and sum(fulfilled) != 1:
            many = f"Found {sum(fulfilled)} valid" if any(fulfilled) else "Found none valid"
            self._invalid(path, value, f"must validate one and only one schema (oneOf). {many}")
        if "not" in schema and _fulfils(value, schema["not"]):
            self._invalid(path, value, "must not validate the schema (not)")

    def _invalid(self, path: str, value: Any, why: str) -> None:
        self.found.append(causes.invalid(path, value, f"{path} in body {why}"))

    def _object(
        self, schema: Schema, value: meta.JsonObject, path: str, *, old: meta.JsonObject
    ) -> None:
        properties, others = schema.get("properties", {}), _others(schema)
        maximum, minimum = schema.get("maxProperties"), schema.get("minProperties")
        if maximum is not None and len(value) > maximum:
            self._invalid(path, len(value), f"should have at most {maximum} properties")
        if minimum is not None and len(value) < minimum:
            self._invalid(path, len(value), f"should have at least {minimum} properties")
        for name in schema.get("required", ()):
            if name not in value:
                self.found.append(causes.required(f"{path}.{name}" if path else name))
        for key, item in value.items():
            field_schema, before = properties.get(key, others), old.get(key)
            # None is a singleton: its identity does not mean that the field was null before.
            if field_schema is not None and (item is None or item is not before):
                self.check(field_schema, item, f"{path}.{key}" if path else key, old=before)

    def _list(self, schema: Schema, value: list[Any], path: str) -> None:
        maximum, minimum = schema.get("maxItems"), schema.get("minItems")
        if schema.get("uniqueItems"):
            self._set(value, path)
        if maximum is not None and len(value) > maximum:
            self.found.append(causes.too_many(path, len(value), maximum))
            return
        if minimum is not None and len(value) < minimum:
            text = f"{path} in body should have at least {minimum} items"
            self.found.append(causes.invalid(path, len(value), text))
        if schema.get("x-kubernetes-list-type") == "set":
            self._set(value, path)
        items = schema.get("items")
        if items is not None:
            for position, item in enumerate(value):
                self.check(items, item, f"{path}[{position}]")
        self._keys(schema.get("x-kubernetes-list-map-keys"), value, path)

    def _set(self, value: list[Any], path: str) -> None:
        """Check that the items of a list differ: of type set, or with uniqueItems."""
        seen = set[bytes]()
        for position, item in enumerate(value):
            # Compared as JSON text, since items may be dicts, and 1 differs from true.
            frozen = _in_order(item)
            if frozen in seen:
                self.found.append(causes.duplicate(f"{path}[{position}]", item))
            seen.add(frozen)

    def _keys(self, names: Sequence[str] | None, value: list[Any], path: str) -> None:
        """Check that the items of a list of type map differ in their keys."""
        seen = set[bytes]()
        for position, item in enumerate(value if names else ()):
            if not isinstance(item, dict):
                continue
            keys = {name: item.get(name) for name in names or ()}
            frozen = _in_order(keys)
            if frozen in seen:
                self.found.append(causes.duplicate(f"{path}[{position}]", keys))
            seen.add(frozen)

    def _text(self, schema: Schema, value: str, path: str) -> None:
        longest, shortest = schema.get("maxLength"), schema.get("minLength")
        if longest is not None and len(value) > longest:
            self.found.append(causes.too_long(path, longest))
        if shortest is not None and len(value) < shortest:
            self._invalid(path, value, f"should be at least {shortest} chars long")
        pattern = schema.get("pattern")
        if pattern is not None and not _fits(pattern, value):
            self._invalid(path, value, f"should match '{pattern}'")
        if schema.get("format") == "date-time" and not _is_time(value):
            self._invalid(path, value, f'must be of type date-time: "{value}"')

    def _number(self, schema: Schema, value: float, path: str) -> None:
        if isinstance(value, int) and not _INT64_MIN <= value <= _INT64_MAX:
            # The number itself is not shown: it may have millions of digits.
            text = f"{path} in body must fit into 64 bits"
            self.found.append(causes.invalid(path, f"a number of {value.bit_length()} bits", text))
            return
        minimum, maximum = schema.get("minimum"), schema.get("maximum")
        if minimum is not None:
            exclusive = schema.get("exclusiveMinimum", False)
            if value < minimum or (exclusive and value == minimum):
                than = "greater than" if exclusive else "greater than or equal to"
                self._invalid(path, value, f"should be {than} {minimum}")
        if maximum is not None:
            exclusive = schema.get("exclusiveMaximum", False)
            if value > maximum or (exclusive and value == maximum):
                than = "less than" if exclusive else "less than or equal to"
                self._invalid(path, value, f"should be {than} {maximum}")


def _fulfils(value: Any, schema: Schema) -> bool:
    validator = _Validator()
    validator.check(schema, value, "")
    return not validator.found


def _fits(pattern: str, value: str) -> bool:
    """Return whether the pattern matches.

    Returns False also for an invalid pattern and for a pattern that takes too long.
    """
    try:
        return patterns.compiled(pattern).found_in(value)
    except (patterns.BadPattern, patterns.TooHard):
        return False


def _is_time(text: str) -> bool:
    try:
        clock.parse_rfc3339(text)
    except ValueError:
        return False
    return True


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    return next((name for name, test in _TYPES.items() if test(value)), "null")
