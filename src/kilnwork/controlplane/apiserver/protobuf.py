"""Decoding of request bodies in Kubernetes' protobuf format, which responses never have.

Used by `bodies`. Typed Go clients, operators built with controller-runtime, and kubectl for `create
configmap` or `auth can-i` send protobuf by default, but accept JSON in return. The field numbers
are those of k8s.io/api/*/generated.proto, collected by `hack/messages.py`; the envelope is
runtime.Unknown after four magic bytes. Objects of kinds without a message must be sent as JSON.
"""

import base64
import functools
import gzip
import struct
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from kilnwork.api import meta
from kilnwork.kit import clock, errors

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class ProtobufError(errors.KilnError):
    """The body is not valid protobuf."""


class UnknownKind(ProtobufError):
    """The body is valid protobuf, but of a kind that is accepted only as JSON."""


class _Field(NamedTuple):
    """Field of a protobuf message."""

    name: str
    """Name in JSON; empty for a message that is inlined in its parent."""
    type: str
    """`string`, `bool`, `bytes`, `integer`, `double` or the name of a message."""
    how: str
    """Empty, `repeated`, `map` (with string keys) or `omitempty` (the zero value means absent)."""


class _Tables(NamedTuple):
    """The known kinds and messages."""

    kinds: dict[str, str]
    """Message name by `apiVersion/Kind`."""
    messages: dict[str, dict[int, _Field]]
    """Fields by number, for each message name."""


@functools.cache
def _tables() -> _Tables:
    packed = resources.files("kilnwork.controlplane.apiserver").joinpath("messages.json.gz")
    tables = msgspec.json.decode(gzip.decompress(packed.read_bytes()))
    messages = {
        name: {int(number): _Field(*field) for number, field in fields.items()}
        for name, fields in tables["messages"].items()
    }
    return _Tables(tables["kinds"], messages)


_META = "k8s.io.apimachinery.pkg.apis.meta.v1."
_ENVELOPE = {1: _Field("apiVersion", "string", ""), 2: _Field("kind", "string", "")}

_Value = int | bytes


def decode(body: bytes) -> meta.JsonObject:
    """Return the object in a protobuf body, in its JSON form. Raises ProtobufError."""
    if not body.startswith(_MAGIC):
        raise ProtobufError("the body does not begin like Kubernetes protobuf")
    try:
        return _decode(body[len(_MAGIC) :])
    except (IndexError, OSError, OverflowError, ValueError, struct.error) as error:  # OSError: year
        raise ProtobufError(f"the body is no protobuf: {error}") from error


def _decode(envelope: bytes) -> meta.JsonObject:
    type_meta: meta.JsonObject = {}
    raw = b""
    for number, value in _fields(envelope):
        if number == 1 and isinstance(value, bytes):
            type_meta = _object(_ENVELOPE, value)
        elif number == 2 and isinstance(value, bytes):
            raw = value
    version, kind = type_meta.get("apiVersion", ""), type_meta.get("kind", "")
    # DeleteOptions is registered in every group and version.
    name = kind if kind == "DeleteOptions" else f"{version}/{kind}"
    message = _tables().kinds.get(name)
    if message is None:
        raise UnknownKind(
            f"{kind or 'an object without kind'} is taken as application/json only: "
            "set the client's content type to JSON"
        )
    return {"apiVersion": version, "kind": kind, **_object(_tables().messages[message], raw)}


def _fields(data: bytes) -> Iterator[tuple[int, _Value]]:
    """Yield field numbers and raw values (protobuf.dev/programming-guides/encoding)."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire == _BYTES:
            size, position = _varint(data, position)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire}")
        if position + size > len(data):
            raise ValueError("cut short")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    # A varint has at most ten bytes, which hold 64 bits.
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise ValueError("number too long")


def _object(known: Mapping[int, _Field], data: bytes) -> meta.JsonObject:
    """Decode a message. Go's encoder writes unset fields too: see `omitempty` of `_Field`."""
    obj: meta.JsonObject = {}
    for number, raw in _fields(data):
        field = known.get(number)
        # Fields of later versions of Kubernetes are skipped, as by Go's decoder.
        if field is None:
            continue
        if field.how == "map":
            entry = dict(_fields(_as_bytes(raw)))
            key = _as_bytes(entry.get(1, b"")).decode()
            obj.setdefault(field.name, {})[key] = _value(field.type, entry.get(2, b""))
            continue
        value = _value(field.type, raw)
        if field.how == "repeated":
            obj.setdefault(field.name, []).append(value)
        elif not field.name:
            obj |= value
        elif value is not None and (value or field.how != "omitempty"):
            obj[field.name] = value
    return obj


def _as_bytes(raw: _Value) -> bytes:
    if isinstance(raw, int):
        raise ValueError("a number where none belongs")  # noqa: TRY004  one error to the caller
    return raw


def _value(type_: str, raw: _Value) -> Any:
    if type_ == "bool":
        return bool(raw)
    if type_ == "integer":
        number = raw if isinstance(raw, int) else 0
        # Negative numbers, even of 32 bits, are encoded in 64 bits (two's complement).
        return number - (1 << 64) if number >= 1 << 63 else number
    data = _as_bytes(raw)
    if type_ == "string":
        return data.decode()
    if type_ == "bytes":
        return base64.b64encode(data).decode()
    if type_ == "double":
        return struct.unpack("<d", data)[0]
    special = _SPECIAL.get(type_)
    return special(data) if special else _object(_tables().messages[type_], data)


def _int_or_string(raw: bytes) -> int | str:
    parts = dict(_fields(raw))
    # Field 1 is the type: 0 for an integer, 1 for a string.
    if parts.get(1, 0) == 1:
        return _as_bytes(parts.get(3, b"")).decode()
    return int(_value("integer", parts.get(2, 0)))


def _first(raw: bytes) -> bytes:
    """Return field 1 of a message that only wraps bytes or a string."""
    return _as_bytes(dict(_fields(raw)).get(1, b""))


def _time(raw: bytes, *, fraction: bool) -> str | None:
    parts = dict(_fields(raw))
    seconds, nanos = parts.get(1, 0), parts.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise ValueError("a time without seconds")  # noqa: TRY004  all is one error to the caller
    if not seconds or seconds >= 1 << 63:  # Go's zero time lies before 1970
        return None
    moment = seconds + nanos / 1e9
    return clock.rfc3339_micro(moment) if fraction else clock.rfc3339(moment)


def _texts(raw: bytes) -> list[str]:
    return [_as_bytes(value).decode() for number, value in _fields(raw) if number == 1]


_SPECIAL: Mapping[str, Callable[[bytes], Any]] = {
    f"{_META}Time": lambda raw: _time(raw, fraction=False),
    f"{_META}MicroTime": lambda raw: _time(raw, fraction=True),
    f"{_META}FieldsV1": lambda raw: msgspec.json.decode(_first(raw) or b"{}"),
    "k8s.io.apimachinery.pkg.runtime.RawExtension": lambda raw: msgspec.json.decode(
        _first(raw) or b"null"
    ),
    "k8s.io.apimachinery.pkg.api.resource.Quantity": lambda raw: _first(raw).decode(),
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "k8s.io.api.authorization.v1.ExtraValue": _texts,
    "k8s.io.api.authentication.v1.ExtraValue": _texts,
}
"""Decoders of the messages that have a JSON form of their own."""
