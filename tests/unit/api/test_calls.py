"""Frames of calls: what they leave out, and that they cannot change."""

import uuid

import msgspec
import pytest

from kilnwork.api import attempts, calls
from kilnwork.kit import ids

TASK = ids.task_id(str(uuid.UUID(int=7)))
PAYLOAD = attempts.Payload(attempts.JSON, b"1")
ITEM = calls.CallItem(number=1, task=TASK, template=2, arguments=PAYLOAD)


def test_call_has_no_needs_and_no_parent_by_default() -> None:
    assert (ITEM.needs, ITEM.name, ITEM.key, ITEM.ordinal) == ((), None, None, 0)
    assert (ITEM.parent, ITEM.retry_failed, ITEM.cache) == (None, False, None)


def test_frames_are_arrays_and_round_trip() -> None:
    sent = msgspec.msgpack.encode(ITEM)
    assert isinstance(msgspec.msgpack.decode(sent), list)
    assert msgspec.msgpack.decode(sent, type=calls.CallItem) == ITEM


def test_frames_of_an_older_sender_get_the_defaults() -> None:
    sent = msgspec.msgpack.encode([1, TASK, 2, [attempts.JSON, b"1"]])
    assert msgspec.msgpack.decode(sent, type=calls.CallItem) == ITEM


@pytest.mark.parametrize("field", [0, 2])
def test_numbers_below_zero_are_refused(field: int) -> None:
    values: list[object] = [1, TASK, 2, [attempts.JSON, b"1"]]
    values[field] = -1
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(values), type=calls.CallItem)


def test_a_frame_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ITEM.number = 2  # type: ignore[misc]
