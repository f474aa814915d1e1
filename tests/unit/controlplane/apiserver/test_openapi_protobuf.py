"""OpenAPI v2 as protobuf, read back by numbers of gnostic's OpenAPIv2.proto."""

import struct
from collections.abc import Iterator

from kilnwork.controlplane.apiserver import openapi_protobuf

SCHEMA = {
    "description": "d",
    "type": "object",
    "required": ["a", "b"],
    "additionalProperties": False,
    "maximum": 1.5,
    "minimum": -2,
    "maxLength": 300,
    "default": {"x": 1},
    "enum": ["p", 1],
    "properties": {
        "a": {"$ref": "#/definitions/A"},
        "b": {"type": "array", "items": {"type": "string"}},
        "c": {"type": "object", "additionalProperties": {"type": "integer", "format": "int64"}},
    },
    "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "K"}],
}
OPERATION = {
    "x-kubernetes-action": "patch",
    "consumes": ["application/json"],
    "produces": ["application/json"],
    "parameters": [
        {"name": "dryRun", "in": "query", "type": "string", "uniqueItems": True},
        {"name": "body", "in": "body", "required": True, "schema": {"$ref": "#/definitions/A"}},
    ],
    "responses": {"200": {"description": "OK", "schema": {"$ref": "#/definitions/A"}}},
}
DOCUMENT = {
    "swagger": "2.0",
    "info": {"title": "T", "version": "1"},
    "paths": {
        "/a/{name}": {
            "parameters": [{"name": "name", "in": "path", "required": True, "type": "string"}],
            "patch": OPERATION,
        }
    },
    "definitions": {"A": SCHEMA},
}
Message = dict[int, list[int | bytes]]


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


def pairs(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        value: int | bytes
        if tag & 7 == 0:
            value, at = varint(data, at)
        elif tag & 7 == 1:
            value, at = data[at : at + 8], at + 8
        else:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        yield tag >> 3, value


def message(data: int | bytes) -> Message:
    assert isinstance(data, bytes)
    found: Message = {}
    for number, value in pairs(data):
        found.setdefault(number, []).append(value)
    return found


def at(data: int | bytes, *numbers: int) -> int | bytes:
    """The only value at a path of fields."""
    for number in numbers:
        [data] = message(data)[number]
    return data


def entries(data: int | bytes, *numbers: int) -> dict[str, int | bytes]:
    """Values by name, of a field of messages `Named…`."""
    *path, last = numbers
    found = {}
    for entry in message(at(data, *path))[last]:
        name = at(entry, 1)
        assert isinstance(name, bytes)
        found[name.decode()] = at(entry, 2)
    return found


ENCODED = openapi_protobuf.encode(DOCUMENT)


def test_document_has_version_and_info() -> None:
    assert at(ENCODED, 1) == b"2.0"
    assert (at(ENCODED, 2, 1), at(ENCODED, 2, 2)) == (b"T", b"1")


def test_schema_fields_are_encoded() -> None:
    found = message(entries(ENCODED, 9, 1)["A"])
    assert found[4] == [b"d"]
    assert at(found[5][0], 2) == b'{"x":1}\n'
    assert found[7] == [struct.pack("<d", 1.5)]
    assert found[9] == [struct.pack("<d", -2)]
    assert found[11] == [300]
    assert found[19] == [b"a", b"b"]
    assert [at(one, 2) for one in found[20]] == [b'"p"\n', b"1\n"]
    assert message(found[21][0]) == {2: [0]}
    assert at(found[22][0], 1) == b"object"


def test_properties_are_encoded_by_name() -> None:
    found = entries(entries(ENCODED, 9, 1)["A"], 25, 1)
    assert list(found) == ["a", "b", "c"]
    assert at(found["a"], 1) == b"#/definitions/A"
    assert at(found["b"], 23, 1, 22, 1) == b"string"
    assert at(found["c"], 21, 1, 2) == b"int64"


def test_extensions_are_encoded_as_text() -> None:
    found = entries(entries(ENCODED, 9, 1)["A"], 31)
    assert at(found["x-kubernetes-group-version-kind"], 2) == (
        b'[{"group":"","version":"v1","kind":"K"}]\n'
    )


def test_operation_is_encoded() -> None:
    path = entries(ENCODED, 8, 2)["/a/{name}"]
    assert at(path, 9, 1, 2, 4, 4) == b"name"
    patch = at(path, 8)
    assert (at(patch, 6), at(patch, 7)) == (b"application/json", b"application/json")
    query, body = message(patch)[8]
    assert at(query, 1, 2, 3, 4) == b"dryRun"
    assert (at(query, 1, 2, 3, 6), at(query, 1, 2, 3, 20)) == (b"string", 1)
    assert at(body, 1, 1, 5, 1) == b"#/definitions/A"
    assert at(entries(patch, 9, 1)["200"], 1, 2, 1, 1) == b"#/definitions/A"
    assert at(entries(patch, 13)["x-kubernetes-action"], 2) == b'"patch"\n'
