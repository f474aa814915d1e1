"""Ids: 16 bytes inside, dashed outside, in order of time."""

import os
import time
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


def test_uids_are_uuid4_and_differ() -> None:
    many = [ids.new_uid() for _ in range(1000)]
    assert len(set(many)) == len(many)
    assert {uuid.UUID(text).version for text in many} == {4}
    assert {uuid.UUID(text).variant for text in many} == {uuid.RFC_4122}
    assert all(str(uuid.UUID(text)) == text for text in many)


def test_a_fork_draws_its_own_uids() -> None:
    ids.new_uid()
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writing, ids.new_uid().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    theirs = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    assert theirs not in [ids.new_uid() for _ in range(512)]


def test_malformed_uuid_is_refused() -> None:
    with pytest.raises(ValueError, match="badly formed"):
        ids.task_id("task-0")


def test_ids_of_one_source_rise_strictly_whatever_the_clock_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1_700_000_000_000_000_000]
    monkeypatch.setattr("time.time_ns", lambda: now[0])
    source = ids.TaskIds()
    taken = []
    for step_ms in (0, 0, 1, -5_000, 0, 9, -1, 10_000):
        now[0] += step_ms * 1_000_000
        taken += [source.take() for _ in range(100)]
    assert taken == sorted(set(taken))
    assert {uuid.UUID(bytes=each).version for each in taken} == {7}
    assert {uuid.UUID(bytes=each).variant for each in taken} == {uuid.RFC_4122}
    assert int.from_bytes(taken[0][:6], "big") == 1_700_000_000_000


def test_ids_rise_when_the_counter_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_700_000_000_000_000_000)
    source = ids.TaskIds()
    source._count = (1 << 26) - 50
    taken = [source.take() for _ in range(100)]
    assert taken == sorted(set(taken))
    assert {uuid.UUID(bytes=each).variant for each in taken} == {uuid.RFC_4122}


def test_two_sources_do_not_collide() -> None:
    taken = [source.take() for source in [ids.TaskIds() for _ in range(1000)] for _ in range(3)]
    assert len(set(taken)) == 3000


def test_a_session_tells_when_it_began() -> None:
    before = time.time()
    began = ids.session_began(ids.new_session())
    assert began is not None
    assert before - 0.001 <= began <= time.time()


def test_a_session_of_random_bytes_tells_nothing() -> None:
    assert ids.session_began(bytes(16)) is None


def test_ids_of_one_source_end_differently() -> None:
    """A user who maps a function over a thousand inputs names a task by its last digits."""
    source = ids.TaskIds()
    ends = {ids.task_text(source.take())[-7:] for _ in range(1000)}
    assert len(ends) == 1000


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("24becda706d6", "24becda706d6"),
        ("24BECDA7", "24becda7"),
        ("8002-2eeab3fe96", "80022eeab3fe96"),
        ("abcde", None),
        ("task-0", None),
        ("2026-11-1722910289508904826", "2026111722910289508904826"),
        ("01a20fc5-1284-70c4-800d-444eeab3fe96", None),
        ("", None),
    ],
)
def test_abbreviated_id_is_recognized(text: str, digits: str | None) -> None:
    assert ids.abbreviated(text) == digits
