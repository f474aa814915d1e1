"""The OpenAPI document: its references have targets, its operations have names."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from kilnwork.server.jobs import openapi


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for one in value.values():
            yield from _references(one)
    elif isinstance(value, list):
        for one in value:
            yield from _references(one)


def test_every_schema_reference_is_defined() -> None:
    page = openapi.document(["default"])
    for reference in _references(page):
        found: Any = page
        for name in reference.removeprefix("#/").split("/"):
            found = found[name]
        assert found


def test_operation_ids_are_unique() -> None:
    page = openapi.document()
    names = [
        operation["operationId"]
        for item in page["paths"].values()
        for name, operation in item.items()
        if name != "parameters"
    ]
    assert len(names) == len(set(names))
    assert all(re.fullmatch("[a-zA-Z]+", name) for name in names)


def test_page_is_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(openapi.document()))["openapi"] == "3.1.0"


def test_maximum_line_size_is_that_of_the_server() -> None:
    page = openapi.document(most_line_bytes=1 << 20)
    field = page["components"]["schemas"]["InputSpec"]["properties"]["maxLineBytes"]
    assert field.pop("description")
    assert field == {
        "type": "integer",
        "minimum": 1024,
        "maximum": 1 << 20,
    }


def test_mapper_schema_matches_accepted_mappers() -> None:
    """It accepts names of methods and any word of a command, but nothing that no worker could
    use."""
    schemas = openapi.document()["components"]["schemas"]
    for kind in ("Mapper", "Reducer"):
        _, called, command = (way["properties"] for way in schemas[kind]["oneOf"])
        for name, good in {"m:Model.call": True, "m.n:f": True, "f": False, "a:b c": False}.items():
            assert bool(re.search(called["function"]["pattern"], name)) is good, name
        for word, good in {"": True, "é\n": True, "a\0": False}.items():
            assert bool(re.search(command["command"]["items"]["pattern"], word)) is good, word
