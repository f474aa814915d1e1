"""Tables of fields and columns, as docs/reference/kinds.md has them."""

from typing import Any

import pytest

from kilnwork.api import kinds_reference, task


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({}, "any JSON"),
        ({"type": "object"}, "object"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string"}, "string"),
        ({"type": "string", "maxLength": 253}, "name"),
        ({"type": "string", "format": "date-time"}, "time"),
        ({"type": "integer"}, "integer"),
        ({"type": "integer", "minimum": 1}, "integer from 1"),
        ({"type": "integer", "minimum": 1, "maximum": 9}, "integer, 1 to 9"),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, "number above 0"),
        ({"type": "array", "items": {"type": "string"}}, "list of strings"),
        ({"type": "array", "items": {}}, "list of any JSON"),
    ],
)
def test_type_text_names_type_and_bounds(node: dict[str, Any], expected: str) -> None:
    assert kinds_reference.type_text(node) == expected


def test_defaults_include_required_false_and_nested_fields() -> None:
    found = kinds_reference.defaults(task.TaskSpec)
    assert found["call.function"] == "required"
    assert found["suspend"] == "false"
    assert found["retry"] == kinds_reference.NONE
    assert found["retry.maxAttempts"] == "1"
    assert found["inputs[].name"] == "required"


def test_render_replaces_only_the_text_between_markers() -> None:
    marked = "".join(
        f"before {name}\n{begin}\nstale\n{end}\n"
        for name in kinds_reference.tables()
        for begin, end in [kinds_reference.markers(name)]
    )
    page = kinds_reference.render(marked)
    assert "stale" not in page
    assert "before Task spec\n" in page
    assert kinds_reference.tables()["Task spec"] in page
    assert kinds_reference.render(page) == page


def test_render_of_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="the page has no table 'Task spec'"):
        kinds_reference.render("# Kinds and fields\n")
