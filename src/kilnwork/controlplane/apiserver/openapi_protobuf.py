"""The OpenAPI v2 document as protobuf, the only format in which kubectl requests it.

Used by `openapi`. Messages and field numbers are those of `openapi.v2` in gnostic
(github.com/google/gnostic-models/openapiv2/OpenAPIv2.proto), as far as our documents use them;
parts of a schema that it has no fields for, such as `anyOf`, are left out. Values of any type
(`default`, `enum`, extensions) are YAML text there, which includes JSON.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kilnwork.api import meta

MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OLD_MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
"""What clients request, although it is not a valid media type; the response has the valid one."""

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_EXTENSION = "x-"

Write = Callable[[Any], bytes]
"""Encodes a JSON value as the body of a field."""

Fields = dict[str, tuple[int, Callable[[int, Any], bytes]]]
"""JSON name → field number, and the function that encodes number and value."""


def encode(document: meta.JsonObject) -> bytes:
    """Encode a document in JSON form as the message `openapi.v2.Document`."""
    return _DOCUMENT(document)


def _varint(value: int) -> bytes:
    # Negative numbers are encoded in 64 bits (two's complement).
    value &= (1 << 64) - 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _bytes(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(body)) + body


def _string(number: int, value: Any) -> bytes:
    # Empty values are not written in proto3.
    return _bytes(number, str(value).encode()) if value else b""


def _strings(number: int, values: Any) -> bytes:
    return b"".join(_bytes(number, str(value).encode()) for value in values)


def _bool(number: int, value: Any) -> bytes:
    return _varint(number << 3 | _VARINT) + b"\x01" if value else b""


def _integer(number: int, value: Any) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(int(value)) if value else b""


def _double(number: int, value: Any) -> bytes:
    return _varint(number << 3 | _FIXED64) + struct.pack("<d", value) if value else b""


def _any(number: int, value: Any) -> bytes:
    return _bytes(number, _bytes(2, msgspec.json.encode(value) + b"\n"))


def _anys(number: int, values: Any) -> bytes:
    return b"".join(_any(number, value) for value in values)


def _named(number: int, name: str, body: bytes) -> bytes:
    """Encode one entry of a JSON object as one of the messages `Named…`."""
    return _bytes(number, _string(1, name) + _bytes(2, body))


class _Message:
    """Encoder of a protobuf message, by its fields.

    `extensions` is the number of `vendor_extension`.
    """

    def __init__(self, extensions: int, fields: Fields) -> None:
        self._extensions = extensions
        self._fields = fields

    def __call__(self, value: meta.JsonObject) -> bytes:
        return b"".join(self._written(value))

    def _written(self, value: meta.JsonObject) -> Iterator[bytes]:
        for name, one in value.items():
            field = self._fields.get(name)
            if field is not None:
                number, write = field
                yield write(number, one)
            elif name.startswith(_EXTENSION):
                yield _named(self._extensions, name, _bytes(2, msgspec.json.encode(one) + b"\n"))


def _one(write: Write) -> Callable[[int, Any], bytes]:
    return lambda number, value: _bytes(number, write(value))


def _each(write: Write) -> Callable[[int, Any], bytes]:
    return lambda number, values: b"".join(_bytes(number, write(value)) for value in values)


def _entries(number: int, write: Write) -> Write:
    """Return the encoder of a message whose repeated field `number` has name-value pairs."""
    return lambda values: b"".join(_named(number, k, write(v)) for k, v in values.items())


def _schema(value: meta.JsonObject) -> bytes:
    return _SCHEMA(value)


def _additional(value: Any) -> bytes:
    """Encode AdditionalPropertiesItem: a schema or a boolean. False is encoded too, not omitted."""
    if isinstance(value, bool):
        return _varint(2 << 3 | _VARINT) + bytes([value])
    return _bytes(1, _schema(value))


def _type(value: Any) -> bytes:
    return _strings(1, [value] if isinstance(value, str) else value)


def _items(value: Any) -> bytes:
    return b"".join(
        _bytes(1, _schema(one)) for one in ([value] if isinstance(value, dict) else value)
    )


def _parameter(value: meta.JsonObject) -> bytes:
    """Encode ParametersItem: a Parameter of the body, the query or the path."""
    if value["in"] == "body":
        return _bytes(1, _bytes(1, _BODY_PARAMETER(value)))
    number, write = (3, _QUERY_PARAMETER) if value["in"] == "query" else (4, _PATH_PARAMETER)
    return _bytes(1, _bytes(2, _bytes(number, write(value))))


_SCHEMA = _Message(
    31,
    {
        "$ref": (1, _string),
        "format": (2, _string),
        "title": (3, _string),
        "description": (4, _string),
        "default": (5, _any),
        "multipleOf": (6, _double),
        "maximum": (7, _double),
        "exclusiveMaximum": (8, _bool),
        "minimum": (9, _double),
        "exclusiveMinimum": (10, _bool),
        "maxLength": (11, _integer),
        "minLength": (12, _integer),
        "pattern": (13, _string),
        "maxItems": (14, _integer),
        "minItems": (15, _integer),
        "uniqueItems": (16, _bool),
        "maxProperties": (17, _integer),
        "minProperties": (18, _integer),
        "required": (19, _strings),
        "enum": (20, _anys),
        "additionalProperties": (21, _one(_additional)),
        "type": (22, _one(_type)),
        "items": (23, _one(_items)),
        "allOf": (24, _each(_schema)),
        "properties": (25, _one(_entries(1, _schema))),
        "example": (30, _any),
    },
)
_BODY_PARAMETER = _Message(
    6,
    {
        "description": (1, _string),
        "name": (2, _string),
        "in": (3, _string),
        "required": (4, _bool),
        "schema": (5, _one(_SCHEMA)),
    },
)
_QUERY_PARAMETER = _Message(
    23,
    {
        "required": (1, _bool),
        "in": (2, _string),
        "description": (3, _string),
        "name": (4, _string),
        "type": (6, _string),
        "format": (7, _string),
        "uniqueItems": (20, _bool),
    },
)
_PATH_PARAMETER = _Message(
    22,
    {
        "required": (1, _bool),
        "in": (2, _string),
        "description": (3, _string),
        "name": (4, _string),
        "type": (5, _string),
        "format": (6, _string),
        "uniqueItems": (19, _bool),
    },
)
_RESPONSE = _Message(
    5,
    {
        "description": (1, _string),
        "schema": (2, _one(lambda value: _bytes(1, _schema(value)))),
    },
)
_OPERATION = _Message(
    13,
    {
        "description": (3, _string),
        "produces": (6, _strings),
        "consumes": (7, _strings),
        "parameters": (8, _each(_parameter)),
        "responses": (9, _one(_entries(1, lambda value: _bytes(1, _RESPONSE(value))))),
    },
)
_PATH_ITEM = _Message(
    10,
    {
        "get": (2, _one(_OPERATION)),
        "put": (3, _one(_OPERATION)),
        "post": (4, _one(_OPERATION)),
        "delete": (5, _one(_OPERATION)),
        "patch": (8, _one(_OPERATION)),
        "parameters": (9, _each(_parameter)),
    },
)
_INFO = _Message(7, {"title": (1, _string), "version": (2, _string), "description": (3, _string)})
_DOCUMENT = _Message(
    16,
    {
        "swagger": (1, _string),
        "info": (2, _one(_INFO)),
        "paths": (8, _one(_entries(2, _PATH_ITEM))),
        "definitions": (9, _one(_entries(1, _SCHEMA))),
    },
)
