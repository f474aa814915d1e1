"""JSON from clients: duplicate names are refused, and 3.0 is an integer."""

from typing import Any

import pytest

from kilnwork.server.jobs import strict_json


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": {"b": 1, "b": 1}}', '[{"a": 1}]', "{"])
def test_json_other_than_object_with_unique_names_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        strict_json.decode_object(text)


def test_equal_names_in_different_objects_are_accepted() -> None:
    assert strict_json.decode_object('{"a": {"a": 1}, "b": {"a": 2}}') == {
        "a": {"a": 1},
        "b": {"a": 2},
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3.0, 3),
        (2.0**53, 2**53),
        (-(2.0**53), -(2**53)),
        (3.5, 3.5),
        (2.0**54, 2.0**54),
        ({"a": [1.0, {"b": 2.0}]}, {"a": [1, {"b": 2}]}),
        ("3.0", "3.0"),
        (None, None),
    ],
)
def test_whole_floats_become_integers(value: Any, expected: Any) -> None:
    found = strict_json.to_integers(value)
    assert found == expected
    assert type(found) is type(expected)
