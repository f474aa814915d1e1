"""Structural schemas: what msgspec writes, in the form that Kubernetes takes."""

from typing import Annotated, Any

import msgspec
import pytest

from kilnwork.api import schema


class Part(msgspec.Struct, rename="camel", kw_only=True):
    """A part."""

    part_name: str
    size: Annotated[float, msgspec.Meta(gt=0)] | None = None


class Whole(msgspec.Struct, rename="camel", kw_only=True):
    """The whole thing.

    `parts`: what it is made of; at least none. `title` is shown to people. More of that.
    """

    title: str = "untitled"
    parts: tuple[Part, ...] = ()
    labels: dict[str, str] = {}
    anything: Any = None
    open_end: dict[str, Any] = {}
    count: int = 0


class Endless(msgspec.Struct):
    inner: "Endless | None" = None


class Either(msgspec.Struct):
    value: int | str = 0


def test_references_are_inlined_and_required_fields_kept() -> None:
    part = schema.structural(Whole)["properties"]["parts"]["items"]
    assert part["required"] == ["partName"]
    assert part["description"] == "A part."
    assert "$ref" not in str(schema.structural(Whole))


def test_or_null_becomes_nullable_and_exclusive_bounds_become_flags() -> None:
    size = schema.structural(Part)["properties"]["size"]
    assert size == {"type": "number", "minimum": 0, "exclusiveMinimum": True, "nullable": True}


def test_anything_is_preserved() -> None:
    properties = schema.structural(Whole)["properties"]
    assert properties["anything"] == {schema.PRESERVE: True, "nullable": True}
    assert properties["openEnd"] == {"type": "object", schema.PRESERVE: True}
    assert properties["labels"] == {"type": "object", "additionalProperties": {"type": "string"}}


def test_only_defaults_that_say_something_are_kept() -> None:
    properties = schema.structural(Whole)["properties"]
    assert properties["title"]["default"] == "untitled"
    assert "default" not in properties["count"]
    assert "default" not in schema.structural(Whole, defaults=False)["properties"]["title"]


def test_sentences_of_the_docstring_describe_fields() -> None:
    found = schema.structural(Whole)
    assert found["properties"]["parts"]["description"] == "What it is made of; at least none."
    assert (
        found["properties"]["title"]["description"] == "`title` is shown to people. More of that."
    )
    assert found["description"].startswith("The whole thing.\n\n`parts`: what")


def test_what_cannot_be_said_is_refused() -> None:
    with pytest.raises(TypeError, match="contains itself"):
        schema.structural(Endless)
    with pytest.raises(TypeError, match="no union"):
        schema.structural(Either)
