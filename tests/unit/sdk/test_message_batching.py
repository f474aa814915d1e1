"""Calls, watches and cancels fill few frames, none of them too large."""

import msgspec
import pytest

from kilnwork.api import attempts, calls
from kilnwork.kit import ids
from kilnwork.sdk import message_batching


def item(number: int, *, data_bytes: int = 0) -> calls.CallItem:
    payload = attempts.Payload("application/json", b"x" * data_bytes)
    return calls.CallItem(number, ids.TaskId(b"%016d" % number), 1, payload)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, []), (1, [1]), (256, [256]), (257, [256, 1]), (512, [256, 256])],
)
def test_a_submit_has_at_most_256_calls(count: int, expected: list[int]) -> None:
    items = [item(number) for number in range(1, count + 1)]
    found = list(message_batching.submits(items))
    assert [len(one.items) for one in found] == expected
    assert [call for one in found for call in one.items] == items
    assert all(one.again for one in found)


@pytest.mark.parametrize(("spare", "expected"), [(0, [2]), (-1, [1, 1])])
def test_a_submit_is_never_larger_than_a_frame(spare: int, expected: list[int]) -> None:
    small, overhead = 1000, message_batching.size(item(1).arguments, (), None, None)
    large = message_batching.MAX_CALL_BYTES - 2 * overhead - small - spare
    found = message_batching.submits([item(1, data_bytes=large), item(2, data_bytes=small)])
    assert [len(one.items) for one in found] == expected


def test_call_too_large_to_share_a_submit_is_sent_alone() -> None:
    sizes = [10, message_batching.MAX_CALL_BYTES + 1, 10]
    found = message_batching.submits(item(n, data_bytes=size) for n, size in enumerate(sizes, 1))
    assert [len(one.items) for one in found] == [1, 1, 1]


@pytest.mark.parametrize(
    ("data", "blobs", "needs", "name", "key"),
    [
        (b"", (), (), None, None),
        (b"x" * 1000, (), (), None, None),
        (b"", (b"d" * 32,) * 1000, (), None, None),
        (b"", (), (b"t" * 16,) * 1000, None, None),
        (b"", (), (), "\U0001f525" * 200, None),
        (b"", (), (), None, "\U0001f525" * 200),
    ],
)
def test_a_size_is_no_less_than_the_call_takes(
    data: bytes,
    blobs: tuple[bytes, ...],
    needs: tuple[ids.TaskId, ...],
    name: str | None,
    key: str | None,
) -> None:
    payload = attempts.Payload("application/json", data, blobs=blobs)
    call = calls.CallItem(1, ids.TaskId(b"t" * 16), 1, payload, needs=needs, name=name, key=key)
    bound = message_batching.size(payload, needs, name, key)
    assert len(msgspec.msgpack.encode(call)) <= bound


@pytest.mark.parametrize(("count", "expected"), [(0, []), (8192, [8192]), (8193, [8192, 1])])
def test_a_cancel_has_at_most_8192_ids(count: int, expected: list[int]) -> None:
    tasks = [ids.TaskId(b"%016d" % number) for number in range(count)]
    found = list(message_batching.cancels(tasks, recursive=True))
    assert [len(one.tasks) for one in found] == expected
    assert [task for one in found for task in one.tasks] == tasks
    assert all(one.recursive for one in found)
