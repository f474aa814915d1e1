"""Decoding of objects by the type of their kind.

It checks the types of fields, and drops and reports unknown fields. Used by admission on every
object that a client sent or a patch produced, and for DeleteOptions and Scale. The decoded object
has only known fields of the right types; admission validates the values. Follows sigs.k8s.io/json
(built-in kinds) and the decoder of k8s.io/apiextensions-apiserver (custom kinds: pruning,
defaults), with error messages in Go's words.
"""

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import api_resources, meta, quantities
from kilnwork.controlplane.apiserver import (
    builtin,
    causes,
    field_types,
    schema_validation,
    statuses,
)
from kilnwork.controlplane.apiserver.field_types import ValueForm


class DecodedObject(NamedTuple):
    """A decoded object, with the paths of the fields that were dropped.

    The paths look like `spec.foo` and `spec.env[0].bar`.
    """

    obj: meta.JsonObject
    unknown: list[str]


def read(
    served: builtin.ServedResource, given: meta.JsonObject, *, known: meta.JsonObject | None = None
) -> DecodedObject:
    """Decode the JSON object `given` as an object of a kind. Raises WrongType.

    `given` is not changed. `known` is an object that was decoded before. Parts of `given` that are
    identical objects in `known` are not decoded again: most of an object when only its status is
    written, or most items of a list when a patch adds one.
    """
    if known is not None:
        return _read_beside(served, given, known)
    unknown: list[str] = []
    if served.schema is None:
        reader = _Reader(unknown)
        obj = reader.struct(field_types.type_of(served), given, "")
        return DecodedObject(obj, unknown)
    obj, unknown = schema_validation.prune_and_default(served.schema, given)
    if obj.get("metadata") is not None:
        obj["metadata"] = _read_metadata(obj["metadata"], unknown)
    return DecodedObject(obj, unknown)


def _read_beside(
    served: builtin.ServedResource, given: meta.JsonObject, known: meta.JsonObject
) -> DecodedObject:
    # By identity: a comparison would cost as much as decoding.
    kept = {k: part for k, part in given.items() if part is not None and part is known.get(k)}
    rest = {k: part for k, part in given.items() if k not in kept}
    if served.schema is None:
        unknown: list[str] = []
        made = _Reader(unknown, _long_lists(known)).struct(field_types.type_of(served), rest, "")
    else:
        made, unknown = read(served, rest)
    parts = made | kept
    # In the order of the given object, as if all of it had been decoded.
    in_order = {name: parts[name] for name in given if name in parts}
    return DecodedObject(in_order | parts, unknown)


def _long_lists(known: meta.JsonObject) -> dict[str, list[Any]]:
    """Return the lists of an object that may have hundreds of items, by path."""
    return {
        f"{part}.{name}": value
        for part in ("spec", "status")
        for name, value in (known.get(part) or {}).items()
        if isinstance(value, list)
    }


def read_typed(type_: field_types.FieldType, given: meta.JsonObject) -> DecodedObject:
    """Decode a value of a type that is not a kind, such as the options of a request.

    Raises WrongType.
    """
    unknown: list[str] = []
    return DecodedObject(_Reader(unknown).struct(type_, given, ""), unknown)


def _read_metadata(given: Any, unknown: list[str]) -> meta.JsonObject:
    """Decode the metadata of a custom object.

    Go has a decoder of its own for it, so paths in errors begin at the metadata.
    """
    inside: list[str] = []
    owner = field_types.metadata()
    # Left undecoded: `managed_fields` ignores what it cannot read.
    managed = given.get("managedFields") if isinstance(given, dict) else None
    if isinstance(managed, list) and all(isinstance(one, dict) for one in managed):
        given = {k: v for k, v in given.items() if k != "managedFields"}
    metadata: meta.JsonObject = _Reader(inside).value(owner, given, "", owner=owner)
    unknown += [f"metadata.{path}" for path in inside]
    if managed and "managedFields" not in metadata:
        metadata["managedFields"] = managed
    return metadata


class Unreadable(ValueError):
    """The body is not an object of the kind; the message is Go's."""


class WrongType(Unreadable):
    """A field has another type than its kind defines."""


def check_kind(served: builtin.ServedResource, obj: meta.JsonObject) -> None:
    """Check that an object is of a kind; it may omit apiVersion and kind. Raises Unreadable.

    For custom kinds it raises the 400 or 422 of k8s.io/apiextensions-apiserver instead.
    """
    kind = served.resource
    _check_texts(obj)
    if served.custom and not obj.get("kind") and served.extension is None:
        raise _no_kind(kind, obj)
    version, name = obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind
    if (version, name) == (kind.api_version, kind.kind):
        return
    if served.custom:
        if version != kind.api_version:
            raise statuses.bad_request(
                f"the API version in the data ({version}) does not match the expected API version "
                f"({kind.api_version})"
            )
        cause = statuses.Cause(
            "kind", "FieldValueInvalid", f'Invalid value: "{name}": must be {kind.kind}'
        )
        found = (obj.get("metadata") or {}).get("name", "")
        raise statuses.invalid(msgspec.structs.replace(kind, kind=str(name)), found, [cause])
    # Kinds that Go knows in this version fail to convert; all others are not registered.
    if not (version == "v1" and name in _UNVERSIONED) and (
        version != kind.api_version or name not in _kinds_of(version)
    ):
        raise Unreadable(
            f'no kind "{name}" is registered for version "{version}" in scheme '
            '"pkg/runtime/scheme.go:110"'
        )
    short = kind.group.partition(".")[0] or "core"
    raise Unreadable(
        f"converting ({kind.version}.{name}) to ({short}.{kind.kind}): unknown conversion"
    )


def _check_texts(obj: meta.JsonObject) -> None:
    for field in ("apiVersion", "kind"):
        found = obj.get(field)
        if found is not None and not isinstance(found, str):
            raise Unreadable(
                "couldn't get version/kind; json parse error: json: cannot unmarshal "
                f"{_json_name(found)} into Go struct field .{field} of type string"
            )


@functools.cache
def _kinds_of(api_version: str) -> frozenset[str]:
    """Return the kinds that Go registers in a built-in group and version.

    They include the kinds that Go registers in every group.
    """
    kinds = {s.resource.kind for s in builtin.BUILT_IN if s.resource.api_version == api_version}
    return frozenset({*kinds, *(f"{kind}List" for kind in kinds), *_IN_EVERY_GROUP})


_IN_EVERY_GROUP = (
    *("WatchEvent", "ListOptions", "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions"),
    "PatchOptions",
)
_UNVERSIONED = ("Status", "APIVersions", "APIGroup", "APIGroupList", "APIResourceList")
"""Kinds that metav1.AddToGroupVersion registers only in version v1 of the core group."""


def _no_kind(kind: api_resources.Resource, obj: meta.JsonObject) -> statuses.StatusError:
    """Return the 400 for an object without `kind`, if its kind was defined by a user.

    Objects of kinds that come with the control plane may omit `kind`.
    """
    shown = msgspec.json.encode(obj).decode()
    return statuses.bad_request(
        f"the object provided is unrecognized (must be of type {kind.kind}): Object 'Kind' is "
        f"missing in '{shown}' ({shown[:30]} ...)"
    )


def cannot_be_handled(
    kind: api_resources.Resource, obj: meta.JsonObject, why: object
) -> statuses.StatusError:
    """Return the 400 for a body that is not an object of this kind."""
    found = obj.get("kind") or kind.kind
    version = str(obj.get("apiVersion") or kind.version).rpartition("/")[2]
    return statuses.bad_request(
        f'{found} in version "{version}" cannot be handled as a {kind.kind}: {why}'
    )


def check_body(
    kind: api_resources.Resource,
    body: meta.JsonObject,
    *,
    field_validation: str,
    oddities: Sequence[str],
) -> list[str]:
    """Return the warnings for a body that `read` does not decode.

    `oddities` are messages about the body itself, such as duplicate fields. Raises 400 for them
    with Strict.
    """
    try:
        return schema_validation.unknown_fields(
            (), field_validation=field_validation, oddities=oddities
        )
    except schema_validation.StrictError as error:
        raise cannot_be_handled(kind, body, error) from error


_STRUCT, _MAP, _LIST, _ANY = ValueForm.STRUCT, ValueForm.MAP, ValueForm.LIST, ValueForm.ANY
_QUANTITY = ValueForm.QUANTITY


class _Reader:
    """Decoder of values by their types.

    `known`: lists by path whose items need no decoding.
    """

    def __init__(
        self, unknown: list[str], known: Mapping[str, list[Any]] = types.MappingProxyType({})
    ) -> None:
        self._unknown = unknown
        self._known = known

    def struct(
        self, type_: field_types.FieldType, given: dict[str, Any], path: str
    ) -> meta.JsonObject:
        result: meta.JsonObject = {}
        fields = type_.fields
        for name, value in given.items():
            known = fields.get(name) or type_.below(name)
            if known is not None and type(value) is _PLAIN.get(known.form):
                result[name] = value
                continue
            below = f"{path}.{name}" if path else name
            if known is None:
                self._unknown.append(below)
            # Go reads null as absent.
            elif value is not None:
                result[name] = self.value(known, value, below, owner=type_)
        return result

    def value(
        self,
        type_: field_types.FieldType,
        value: Any,
        path: str,
        *,
        owner: field_types.FieldType | None = None,
    ) -> Any:
        form = type_.form
        if form is _STRUCT and type(value) is dict:
            return self.struct(type_, value, path)
        if form is _ANY:
            return value
        if form is _QUANTITY:
            return _quantity(value)
        if not _FITS[form](value):
            raise WrongType(_problem(type_, value, path, owner))
        if form is _LIST:
            return self._list(type_, value, path, owner=owner)
        return self._map(type_, value, path) if form is _MAP else value

    def _map(
        self, type_: field_types.FieldType, value: dict[str, Any], path: str
    ) -> dict[str, Any]:
        item = type_.item or field_types.ANY
        if item.form is _ANY:
            return value
        made, plain = {}, _PLAIN.get(item.form)
        for key, one in value.items():
            if type(one) is plain:
                made[key] = one
            elif one is None:
                made[key] = _ZERO[item.form]()
            elif not _FITS[item.form](one):
                raise WrongType(_problem(item, one, path, type_))
            else:
                made[key] = self.value(item, one, f"{path}.{key}", owner=type_)
        return made

    def _list(
        self,
        type_: field_types.FieldType,
        value: list[Any],
        path: str,
        *,
        owner: field_types.FieldType | None,
    ) -> list[Any]:
        item = type_.item or field_types.ANY
        if item.form is _ANY:
            return value
        plain = _PLAIN.get(item.form)
        known = self._known.get(path, ())
        return [
            one
            if type(one) is plain
            else one
            if position < len(known) and one is known[position]
            else _ZERO[item.form]()
            if one is None
            else self.value(item, one, f"{path}[{position}]", owner=owner)
            for position, one in enumerate(value)
        ]


_PLAIN = {ValueForm.TEXT: str, ValueForm.BOOLEAN: bool}
"""Forms whose values are all of one Python type: checked without a call, since most are strings."""

_FITS: dict[ValueForm, Callable[[Any], bool]] = {
    ValueForm.STRUCT: lambda v: isinstance(v, dict),
    ValueForm.MAP: lambda v: isinstance(v, dict),
    ValueForm.LIST: lambda v: isinstance(v, list),
    ValueForm.TEXT: lambda v: isinstance(v, str),
    ValueForm.BOOLEAN: lambda v: isinstance(v, bool),
    ValueForm.INTEGER: lambda v: (
        isinstance(v, int) and not isinstance(v, bool) and -(2**63) <= v < 2**63
    ),
    ValueForm.NUMBER: lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    ValueForm.QUANTITY: lambda _: True,
    ValueForm.ANY: lambda _: True,
}

_ZERO: dict[ValueForm, Callable[[], Any]] = {
    ValueForm.STRUCT: dict,
    ValueForm.MAP: dict,
    ValueForm.LIST: list,
    ValueForm.TEXT: str,
    ValueForm.INTEGER: int,
    ValueForm.NUMBER: int,
    ValueForm.BOOLEAN: bool,
    ValueForm.QUANTITY: lambda: "0",
}
"""Go's zero values, which null becomes in a list or map."""


def _quantity(value: Any) -> Any:
    """Return a resource quantity unchanged. Raises WrongType in the words of Go's parser."""
    try:
        quantities.parse(value if isinstance(value, str) else causes.quoted(value))
    except ValueError as error:
        raise WrongType(str(error)) from None
    return value


def _problem(
    type_: field_types.FieldType, value: Any, path: str, owner: field_types.FieldType | None
) -> str:
    """Return the text of json.UnmarshalTypeError.Error: without list positions and map keys."""
    plain = ".".join(part.partition("[")[0] for part in path.split("."))
    found = _json_name(value)
    struct = owner.struct if owner is not None and owner.form is ValueForm.STRUCT else ""
    if not struct:
        struct = _STRUCT_OF_MAPS.get(plain.rpartition(".")[2], "ConfigMap")
    where = f"Go struct field {struct}.{plain}" if struct else f"Go struct field {plain}"
    return f"json: cannot unmarshal {found} into {where} of type {type_.go}"


_STRUCT_OF_MAPS = {"labels": "ObjectMeta", "annotations": "ObjectMeta"}
"""Go's error names the struct that contains a map; here for maps of strings that users write."""


def _json_name(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case int() | float():
            return f"number {value}" if isinstance(value, int) and abs(value) >= 2**63 else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"
