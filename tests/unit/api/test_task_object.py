"""A TaskObject holds any JSON."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import kinds, task_object


@pytest.mark.parametrize("data", [None, 0, False, "", [], {}, {"a": [1, {"b": None}]}])
def test_data_is_any_json(data: Any) -> None:
    found = msgspec.convert({"metadata": {"name": "a"}, "data": data}, task_object.TaskObject)
    assert found.data == data


def test_an_object_without_data_holds_null() -> None:
    found = msgspec.convert({"metadata": {"name": "a"}}, task_object.TaskObject)
    assert found.data is None


def test_an_object_is_of_the_kind_that_is_served() -> None:
    found = msgspec.convert({"metadata": {}}, task_object.TaskObject)
    served = kinds.TASK_OBJECTS
    assert (found.api_version, found.kind) == (served.api_version, served.kind)


def test_an_object_cannot_be_changed() -> None:
    found = msgspec.convert({"metadata": {}}, task_object.TaskObject)
    with pytest.raises(AttributeError):
        found.data = 1  # type: ignore[misc]
