"""The memory that a slot and the agent share: whole records, and output that changes hands."""

import os
from collections.abc import Iterator

import pytest

from kilnwork.api import attempts
from kilnwork.kit import ids
from kilnwork.worker import slot_page


@pytest.fixture
def both() -> Iterator[tuple[slot_page.SlotPage, slot_page.SlotPage]]:
    descriptor = slot_page.create_page()
    slots, agents = slot_page.SlotPage(descriptor), slot_page.SlotPage(os.dup(descriptor))
    yield slots, agents
    slots.close()
    agents.close()


def ref(number: int) -> attempts.AttemptRef:
    return attempts.AttemptRef(ids.TaskId(bytes([number]) * 16), number, number + 1)


def test_agent_reads_the_running_attempt(
    both: tuple[slot_page.SlotPage, slot_page.SlotPage],
) -> None:
    slots, agents = both
    assert agents.read() is None
    slots.write(ref(1), 12.5)
    assert agents.read() == slot_page.RunningAttempt(ref(1), 12.5, 0)
    slots.write(ref(2), 13.5, 100)
    assert agents.read() == slot_page.RunningAttempt(ref(2), 13.5, 100)
    slots.clear()
    assert agents.read() is None


def test_incomplete_record_is_not_read(
    both: tuple[slot_page.SlotPage, slot_page.SlotPage],
) -> None:
    slots, agents = both
    slots.write(ref(1), 1.0)
    begun: list[slot_page.RunningAttempt | None] = []
    real = slots._pack

    def torn(memory: object, at: int, *fields: object) -> None:
        real(memory, at, b"\xff" * 16, 9, 9, 9.0, 9)  # type: ignore[arg-type]
        begun.append(agents.read())
        real(memory, at, *fields)  # type: ignore[arg-type]

    slots._pack = torn
    slots.write(ref(2), 2.0)
    slots.write(ref(3), 3.0)
    assert begun == [
        slot_page.RunningAttempt(ref(1), 1.0, 0),
        slot_page.RunningAttempt(ref(2), 2.0, 0),
    ]


def test_spilled_output_reaches_the_slot_in_order(
    both: tuple[slot_page.SlotPage, slot_page.SlotPage],
) -> None:
    slots, agents = both
    reading, writing = os.pipe()
    for text in (b"one", b"two"):
        os.write(writing, text)
        agents.spill(reading, 100)
    assert slots.is_spilled
    assert [slots.fetch(4), slots.fetch(4), slots.fetch(4)] == [b"onet", b"wo", b""]
    assert not slots.is_spilled
    os.write(writing, b"three")
    agents.spill(reading, 100)
    assert slots.fetch(100) == b"three"
    os.close(reading)
    os.close(writing)


def test_spill_is_limited(
    both: tuple[slot_page.SlotPage, slot_page.SlotPage], monkeypatch: pytest.MonkeyPatch
) -> None:
    slots, agents = both
    monkeypatch.setattr(slot_page, "MAX_SPILLED_BYTES", 3)
    reading, writing = os.pipe()
    os.write(writing, b"much")
    room = [agents.has_room]
    agents.spill(reading, 100)
    room.append(agents.has_room)
    assert room == [True, False]
    assert slots.fetch(100) == b"much"
    os.close(reading)
    os.close(writing)
