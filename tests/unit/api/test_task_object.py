"""A TaskObject holds any JSON."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import kinds, task_object


@pytest.mark.parametrize("data", [None, 0, False, "", [], {}, {"a": [1, {"b": None}]}])
def test_data_is_any_json(data: Any) -> None:
    found = msgspec.convert({"metadata": {"name": "a"}, "data": data}, task_object.TaskObject)
    assert found.data == data


def test_object_without_data_contains_null() -> None:
    found = msgspec.convert({"metadata": {"name": "a"}}, task_object.TaskObject)
    assert found.data is None


def test_object_has_the_served_kind() -> None:
    found = msgspec.convert({"metadata": {}}, task_object.TaskObject)
    served = kinds.TASK_OBJECTS
    assert (found.api_version, found.kind) == (served.api_version, served.kind)


def test_an_object_cannot_be_changed() -> None:
    found = msgspec.convert({"metadata": {}}, task_object.TaskObject)
    with pytest.raises(AttributeError):
        found.data = 1  # type: ignore[misc]
