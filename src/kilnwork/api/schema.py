"""Structural schemas (KEP-1693) from msgspec structs: the form that CRDs and OpenAPI v3 want.

Used by `api.crd`. msgspec writes JSON Schema with `$ref`, `anyOf … null` and numeric exclusive
bounds; Kubernetes wants none of them. Descriptions come from docstrings: a sentence that begins
with a field's name in backticks describes that field. Not a validator.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

Schema = dict[str, Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
RULES = "x-kubernetes-validations"

_FIELD_SENTENCE = re.compile(r"`([a-z][A-Za-z]*)`[ :(]")


def structural(type_: Any, *, defaults: bool = True) -> Schema:
    """The structural schema of a struct.

    With `defaults`, those that are not empty are kept, so that a server fills them in; for a status
    they are not, since an absent fact is not a default. Raises TypeError for a union other than
    "or null", and for a type that contains itself: neither can be expressed.
    """
    (schema,), components = msgspec.json.schema_components([type_], ref_template="{name}")
    return _convert(schema, _Context(components, defaults=defaults))


def rules_in(schema: Any) -> Iterator[dict[str, Any]]:
    """All rules in CEL of a schema, at whatever depth."""
    if isinstance(schema, dict):
        yield from schema.get(RULES) or ()
        for name, below in schema.items():
            if name != RULES:
                yield from rules_in(below)
    elif isinstance(schema, list):
        for one in schema:
            yield from rules_in(one)


class _Context(msgspec.Struct, frozen=True):
    """What the conversion of one schema needs to know on the way down."""

    components: Mapping[str, Schema]
    defaults: bool
    inside: tuple[str, ...] = ()

    def entering(self, name: str) -> "_Context":
        if name in self.inside:
            raise TypeError(f"{name} contains itself: a structural schema cannot say so")
        return msgspec.structs.replace(self, inside=(*self.inside, name))


def _convert(source: Schema, context: _Context) -> Schema:
    """One node: references inlined, null folded in, bounds in the form of OpenAPI v3."""
    if "$ref" in source:
        name = source["$ref"]
        below = _convert(context.components[name], context.entering(name))
        return below | _default(source, context)
    if "anyOf" in source:
        return _or_null(source, context) | _default(source, context)
    if not source.keys() - {"default", "description", "title"}:
        return {PRESERVE: True, "nullable": True}
    result: Schema = {}
    description = _description(source)
    if description:
        result["description"] = description
    result |= _scalar(source)
    if source.get("type") == "object":
        result |= _object(source, context)
    if source.get("type") == "array":
        result["items"] = _convert(source.get("items", {}), context)
    return result | _default(source, context)


def _or_null(source: Schema, context: _Context) -> Schema:
    wanted = [option for option in source["anyOf"] if option.get("type") != "null"]
    if len(wanted) != 1:
        raise TypeError(f"a structural schema knows no union: {source['anyOf']}")
    return _convert(wanted[0], context) | {"nullable": True}


_PLAIN = (
    "type",
    "format",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "multipleOf",
)


def _scalar(source: Schema) -> Schema:
    result = {key: source[key] for key in _PLAIN if key in source}
    if "enum" in source:
        result.setdefault("type", "string")
    for bound in ("Minimum", "Maximum"):
        exclusive = source.get(f"exclusive{bound}")
        if exclusive is not None:
            result[bound.lower()] = exclusive
            result[f"exclusive{bound}"] = True
    return result


def _object(source: Schema, context: _Context) -> Schema:
    properties = source.get("properties")
    if properties is None:
        values = source.get("additionalProperties")
        if not isinstance(values, dict) or not values:
            return {PRESERVE: True}
        return {"additionalProperties": _convert(values, context)}
    about = _field_descriptions(source)
    result: Schema = {"properties": {}}
    for name, value in properties.items():
        child = _convert(value, context)
        if name in about:
            child = {"description": about[name]} | child
        result["properties"][name] = child
    if source.get("required"):
        result["required"] = list(source["required"])
    return result


def _default(source: Schema, context: _Context) -> Schema:
    """The default, when there is one and it says something: not null, empty, false or zero."""
    default = source.get("default")
    return {"default": default} if context.defaults and default else {}


def _description(source: Schema) -> str:
    """The docstring as flowing text, a blank line between paragraphs."""
    text = inspect.cleandoc(source.get("description", ""))
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _field_descriptions(source: Schema) -> dict[str, str]:
    """Sentences of the docstring by the field they begin with; more may follow before the next."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for paragraph in _description(source).split("\n\n"):
        for sentence in re.split(r"(?<=[.;]) (?=[A-Z`])", paragraph):
            opening = _FIELD_SENTENCE.match(sentence)
            if opening and opening.group(1) in source.get("properties", {}):
                current = found.setdefault(opening.group(1), [])
            if current is not None:
                current.append(sentence)
        current = None
    return {name: _as_description(" ".join(said), name) for name, said in found.items()}


def _as_description(text: str, field: str) -> str:
    """Without `field:` in front: `kubectl explain` shows that already."""
    body = text.removeprefix(f"`{field}`: ").rstrip(";. ")
    return f"{body[:1].upper()}{body[1:]}."
