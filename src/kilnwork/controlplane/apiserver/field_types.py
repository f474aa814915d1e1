"""Types of fields, in one model for the OpenAPI of built-in kinds and for structural schemas.

Used to decode objects (`typed_decoding`) and to apply them (`structured_merge`). The model contains
what these modules need: the fields, how lists and maps merge, and the name of a type in Go's
errors. (`strategic` merges lists by the tags of Go's structs, which differ.) Limits, formats and
defaults are in `schema_validation` and `rules_*`.
"""

import functools
from enum import Enum, IntEnum, auto
from typing import Any

import msgspec

from kilnwork.api import api_resources
from kilnwork.api import schema_generation as schemas
from kilnwork.controlplane.apiserver import builtin, builtin_schemas

Schema = dict[str, Any]


class ValueForm(IntEnum):
    """Form of the values of a type.

    An IntEnum, because its members are dict keys in the path of each write.
    """

    STRUCT = auto()
    MAP = auto()
    LIST = auto()
    TEXT = auto()
    INTEGER = auto()
    NUMBER = auto()
    BOOLEAN = auto()
    QUANTITY = auto()
    ANY = auto()


class Merging(Enum):
    """Way in which a list or map merges (x-kubernetes-list-type, x-kubernetes-map-type)."""

    ATOMIC = "atomic"
    SET = "set"
    KEYED = "map"
    GRANULAR = "granular"


class FieldType(msgspec.Struct, eq=False):
    """Type of a field or of a whole object."""

    form: ValueForm
    go: str = "interface {}"
    """Name of the type in Go's errors (`v1.PodSpec`)."""
    fields: dict[str, "FieldType"] = msgspec.field(default_factory=dict)
    item: "FieldType | None" = None
    """Type of the items of a list or map."""
    merging: Merging = Merging.GRANULAR
    keys: tuple[str, ...] = ()
    """Fields that identify an item of a KEYED list."""
    defaults: dict[str, Any] = msgspec.field(default_factory=dict)
    """Values of keys that an item may omit."""
    open_: bool = False
    """Whether a struct keeps fields that are not in `fields`."""

    @property
    def struct(self) -> str:
        """Return the type's name without its package: `PodSpec` of `v1.PodSpec`."""
        return self.go.rpartition(".")[2]

    def below(self, name: str) -> "FieldType | None":
        """Return the type of a field, or of the values of a map; None when there is no such
        field.
        """
        found = self.fields.get(name)
        if found is not None:
            return found
        if self.form is ValueForm.MAP:
            return self.item
        return ANY if self.open_ or self.form is ValueForm.ANY else None


ANY = FieldType(ValueForm.ANY)
"""Any value: maps merge field by field, lists are atomic."""

_TEXT = FieldType(ValueForm.TEXT, go="string")
_NUMBERS = {
    "int32": "int32",
    "int64": "int64",
    "": "int64",
}


def type_of(served: builtin.ServedResource) -> FieldType:
    """Return the type of a kind's objects."""
    if served.schema is None:
        return _built_in(served.resource)
    return of_custom(served)


@functools.cache
def _built_in(kind: api_resources.Resource) -> FieldType:
    name = builtin_schemas.name_of(kind.group, kind.version, kind.kind)
    if name is None:
        return FieldType(ValueForm.STRUCT, open_=True, fields={"metadata": metadata()})
    return named(name)


_CUSTOM: dict[int, tuple[Schema, FieldType]] = {}
_MAX_CUSTOM = 256


def of_custom(served: builtin.ServedResource) -> FieldType:
    """Return the type of a custom kind's objects, from its structural schema. Cached by schema."""
    schema = served.schema or {}
    known = _CUSTOM.get(id(schema))
    # The cache keeps the schema alive, so that no other object can have its id.
    if known is not None and known[0] is schema:
        return known[1]
    made = _structural(schema)
    made.go = f"{served.resource.version}.{served.resource.kind}"
    made.form = ValueForm.STRUCT
    made.fields = {
        **made.fields,
        "apiVersion": _TEXT,
        "kind": _TEXT,
        "metadata": metadata(),
    }
    if len(_CUSTOM) >= _MAX_CUSTOM:
        _CUSTOM.clear()
    _CUSTOM[id(schema)] = (schema, made)
    return made


def metadata() -> FieldType:
    """Return the type metav1.ObjectMeta."""
    return named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")


_NAMED: dict[str, FieldType] = {}


def named(name: str) -> FieldType:
    """Return the built-in type with the given full name. Types may be recursive."""
    known = _NAMED.get(name)
    if known is None:
        # Known before it is filled, since a type may contain itself (JSONSchemaProps).
        known = _NAMED[name] = FieldType(ValueForm.ANY)
        _fill(known, builtin_schemas.definitions().get(name, {}))
        known.go = ".".join(name.split(".")[-2:])
    return known


def _fill(made: FieldType, schema: Schema) -> None:
    if schema.get("format") == "int-or-string":
        return
    if "oneOf" in schema:
        made.form = ValueForm.QUANTITY  # no other built-in type has it
        return
    match schema.get("type"):
        case "object" if "properties" in schema:
            made.form = ValueForm.STRUCT
            made.fields = {k: _resolve_type(v) for k, v in schema["properties"].items()}
        case "object" if "additionalProperties" in schema:
            made.form, made.item = ValueForm.MAP, _resolve_type(schema["additionalProperties"])
            made.go = f"map[string]{made.item.go}"
        case "array":
            made.form, made.item = ValueForm.LIST, _resolve_type(schema["items"])
            made.go = f"[]{made.item.go}"
        case "string":
            made.form, made.go = ValueForm.TEXT, "string"
        case "integer":
            made.form, made.go = ValueForm.INTEGER, _NUMBERS.get(schema.get("format", ""), "int64")
        case "number":
            made.form, made.go = ValueForm.NUMBER, "float64"
        case "boolean":
            made.form, made.go = ValueForm.BOOLEAN, "bool"
    _set_merging(made, schema)


def _resolve_type(schema: Schema) -> FieldType:
    """Return the type of a field from its schema, which describes it or refers to another type."""
    reference = schema.get("$ref") or (schema.get("allOf") or [{}])[0].get("$ref")
    if reference is None:
        made = FieldType(ValueForm.ANY)
        _fill(made, schema)
        return made
    return named(reference.removeprefix(builtin_schemas.REFERENCE))


def _set_merging(made: FieldType, schema: Schema) -> None:
    if made.form is ValueForm.LIST:
        list_type = schema.get("x-kubernetes-list-type", "atomic")
        made.merging = {"map": Merging.KEYED, "set": Merging.SET}.get(list_type, Merging.ATOMIC)
        made.keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        items = schema.get("items", {})
        described = builtin_schemas.resolved(items) if items else {}
        for key in made.keys:
            default = described.get("properties", {}).get(key, {}).get("default")
            if default is not None:
                made.defaults[key] = default
    elif schema.get("x-kubernetes-map-type") == "atomic":
        made.merging = Merging.ATOMIC


def _structural(schema: Schema) -> FieldType:
    made = FieldType(ValueForm.ANY)
    if schema.get("x-kubernetes-int-or-string"):
        return made
    if schema.get("x-kubernetes-embedded-resource"):
        # The metadata of an embedded object is typed, whatever the schema says.
        made.fields = {"metadata": metadata()}
    match schema.get("type"):
        case "object":
            others = schema.get("additionalProperties")
            properties = schema.get("properties", {})
            made.form = ValueForm.STRUCT
            made.fields |= {k: _structural(v) for k, v in properties.items()}
            # A structural schema has either these or properties (`rules_definitions`).
            if others:
                made.form, made.item = (
                    ValueForm.MAP,
                    _structural(others) if others is not True else ANY,
                )
            made.open_ = bool(schema.get(schemas.PRESERVE))
        case "array":
            made.form, made.item = ValueForm.LIST, _structural(schema.get("items", {}))
        case "string":
            made.form, made.go = ValueForm.TEXT, "string"
        case "integer":
            made.form, made.go = ValueForm.INTEGER, "int64"
        case "number":
            made.form, made.go = ValueForm.NUMBER, "float64"
        case "boolean":
            made.form, made.go = ValueForm.BOOLEAN, "bool"
    _set_merging(made, schema)
    return made
