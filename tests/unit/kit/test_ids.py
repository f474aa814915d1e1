"""Ids: 16 bytes inside, dashed outside, in order of time."""

import uuid

import pytest

from kilnwork.kit import ids


def test_task_ids_are_uuid7_and_sort_by_time() -> None:
    first, second = ids.new_task_id(), ids.new_task_id()
    assert uuid.UUID(bytes=first).version == 7
    assert uuid.UUID(bytes=first).variant == uuid.RFC_4122
    assert first[:6] <= second[:6]
    assert first != second


def test_text_and_bytes_are_two_forms_of_one_id() -> None:
    text = ids.new_uid()
    assert ids.task_text(ids.task_id(text)) == text


def test_what_is_no_uuid_is_refused() -> None:
    with pytest.raises(ValueError, match="badly formed"):
        ids.task_id("task-0")
