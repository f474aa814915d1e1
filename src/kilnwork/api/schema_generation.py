"""Structural schemas (KEP-1693) from msgspec structs, in the form of CRDs and OpenAPI v3.

Used by `api.crd`, by the API server and by the OpenAPI document of the Jobs API. msgspec generates
JSON Schema with `$ref`, `anyOf … null` and numeric exclusive bounds, which Kubernetes does not
accept. The description of a field is the string literal below it in its class. Not a validator.
"""

import ast
import functools
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

Schema = dict[str, Any]

PRESERVE = "x-kubernetes-preserve-unknown-fields"
RULES = "x-kubernetes-validations"


def structural(type_: Any, *, defaults: bool = True) -> Schema:
    """Return the structural schema of a struct.

    With `defaults`, non-empty defaults are included, so that a server fills them in; a status has
    none, since an absent fact is not a default. Raises TypeError for a union other than "or null",
    and for a recursive type: neither can be expressed.
    """
    (schema,), components = schema_components([type_], ref_template="{name}")
    return _convert(schema, _Context(components, defaults=defaults))


def schema_components(
    types: Sequence[Any], *, ref_template: str
) -> tuple[tuple[Schema, ...], dict[str, Schema]]:
    """Return msgspec.json.schema_components, with the docstrings of fields as descriptions."""
    schemas, components = msgspec.json.schema_components(types, ref_template=ref_template)
    for struct in _structs(types):
        properties = components[struct.__name__].get("properties", {})
        for name, text in field_docstrings(struct).items():
            if name in properties:
                properties[name] = {**properties[name], "description": text}
    return schemas, components


def field_docstrings(struct: type) -> dict[str, str]:
    """Return the docstrings of the fields of a struct, by the names of the fields in JSON.

    A field that a subclass redeclares without a docstring keeps the docstring of its base.
    """
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        found |= _docstrings_in(base.__module__).get(base.__qualname__, {})
    names = {field.name: field.encode_name for field in msgspec.structs.fields(struct)}
    return {names[name]: text for name, text in found.items() if name in names}


@functools.cache
def _docstrings_in(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of fields by class; empty if the source is not available."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return {node.name: dict(_docstrings_of(node)) for node in classes}


def _docstrings_of(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, after in zip(node.body, node.body[1:], strict=False):
        match field, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, _flowing(text)


def _structs(types: Sequence[Any]) -> list[type]:
    """Return all structs in the types, at any depth, without duplicates."""
    found: dict[type, None] = {}

    def visit(node: Any) -> None:
        if isinstance(node, msgspec.inspect.StructType):
            if node.cls in found:
                return
            found[node.cls] = None
        if isinstance(node, msgspec.Struct):
            for name in node.__struct_fields__:
                visit(getattr(node, name))
        elif isinstance(node, tuple):
            for one in node:
                visit(one)

    visit(msgspec.inspect.multi_type_info(types))
    return list(found)


def rules_in(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield all CEL rules of a schema, at any depth."""
    if isinstance(schema, dict):
        yield from schema.get(RULES) or ()
        for name, below in schema.items():
            if name != RULES:
                yield from rules_in(below)
    elif isinstance(schema, list):
        for one in schema:
            yield from rules_in(one)


class _Context(msgspec.Struct, frozen=True):
    """The context of the conversion of a schema node."""

    components: Mapping[str, Schema]
    defaults: bool
    inside: tuple[str, ...] = ()

    def entering(self, name: str) -> "_Context":
        if name in self.inside:
            raise TypeError(f"{name} contains itself: a structural schema cannot say so")
        return msgspec.structs.replace(self, inside=(*self.inside, name))


def _convert(source: Schema, context: _Context) -> Schema:
    """Convert one node: references inlined, null folded in, bounds in the form of OpenAPI v3.

    The description at the use of a type takes precedence over that of the class.
    """
    description = _flowing(source.get("description", ""))
    result: Schema = {"description": description} if description else {}
    if "$ref" in source:
        name = source["$ref"]
        result = _convert(context.components[name], context.entering(name)) | result
    elif "anyOf" in source:
        result = _or_null(source, context) | result
    elif not source.keys() - {"default", "description", "title"}:
        return result | {PRESERVE: True, "nullable": True}
    else:
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
    result: Schema = {
        "properties": {name: _convert(value, context) for name, value in properties.items()}
    }
    if source.get("required"):
        result["required"] = list(source["required"])
    return result


def _default(source: Schema, context: _Context) -> Schema:
    """Return the default, unless it is missing or null, empty, false or zero."""
    default = source.get("default")
    return {"default": default} if context.defaults and default else {}


def _flowing(docstring: str) -> str:
    """Return a docstring as unwrapped text, with a blank line between paragraphs."""
    text = inspect.cleandoc(docstring)
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
