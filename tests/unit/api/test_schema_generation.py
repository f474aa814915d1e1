"""Structural schemas: the output of msgspec in the form that Kubernetes accepts."""

from typing import Annotated, Any

import msgspec
import pytest

from kilnwork.api import schema_generation


class Part(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A part."""

    part_name: str
    size: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Size of the part
    in metres."""


class Whole(msgspec.Struct, rename="camel", kw_only=True):
    """The whole thing."""

    title: str = "untitled"
    """What people see.

    They like it short.
    """
    parts: tuple[Part, ...] = ()
    """What it is made of."""
    first: Part | None = None
    """The one that was there first."""
    main: Part = Part(part_name="main")
    labels: dict[str, str] = {}
    anything: Any = None
    """Anything at all."""
    open_end: dict[str, Any] = {}
    count: int = 0


class More(Whole, rename="camel", kw_only=True):
    title: str = "more"
    count: int = 1
    """How many."""


class Endless(msgspec.Struct):
    inner: "Endless | None" = None


class Either(msgspec.Struct):
    value: int | str = 0


def test_references_are_inlined_and_required_fields_kept() -> None:
    part = schema_generation.structural(Whole)["properties"]["parts"]["items"]
    assert part["required"] == ["partName"]
    assert part["description"] == "A part."
    assert "$ref" not in str(schema_generation.structural(Whole))


def test_or_null_becomes_nullable_and_exclusive_bounds_become_flags() -> None:
    size = schema_generation.structural(Part)["properties"]["size"]
    assert size == {
        "description": "Size of the part in metres.",
        "type": "number",
        "minimum": 0,
        "exclusiveMinimum": True,
        "nullable": True,
    }


def test_any_type_preserves_unknown_fields() -> None:
    properties = schema_generation.structural(Whole)["properties"]
    assert properties["anything"] == {
        "description": "Anything at all.",
        schema_generation.PRESERVE: True,
        "nullable": True,
    }
    assert properties["openEnd"] == {"type": "object", schema_generation.PRESERVE: True}
    assert properties["labels"] == {"type": "object", "additionalProperties": {"type": "string"}}


def test_only_non_empty_defaults_are_kept() -> None:
    properties = schema_generation.structural(Whole)["properties"]
    assert properties["title"]["default"] == "untitled"
    assert "default" not in properties["count"]
    assert (
        "default" not in schema_generation.structural(Whole, defaults=False)["properties"]["title"]
    )


def test_the_string_after_a_field_describes_it() -> None:
    found = schema_generation.structural(Whole)
    described = {
        name: node["description"]
        for name, node in found["properties"].items()
        if "description" in node
    }
    assert described == {
        "title": "What people see.\n\nThey like it short.",
        "parts": "What it is made of.",
        "first": "The one that was there first.",
        "main": "A part.",  # of the class, where the field has none of its own
        "anything": "Anything at all.",
    }
    assert found["description"] == "The whole thing."


def test_redeclared_fields_keep_the_description_of_the_base() -> None:
    described = schema_generation.field_docstrings(More)
    assert described["title"] == "What people see.\n\nThey like it short."
    assert described["count"] == "How many."


def test_components_have_the_descriptions_too() -> None:
    _, components = schema_generation.schema_components([More], ref_template="{name}")
    assert components["More"]["properties"]["count"]["description"] == "How many."
    assert components["Part"]["properties"]["size"]["description"] == "Size of the part in metres."


def test_inexpressible_types_are_refused() -> None:
    with pytest.raises(TypeError, match="contains itself"):
        schema_generation.structural(Endless)
    with pytest.raises(TypeError, match="no union"):
        schema_generation.structural(Either)
