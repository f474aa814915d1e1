"""Streams give values while their generator runs."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import kilnwork as kiln
from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.kit import ids
from kilnwork.sdk import serialization, streams

TASK = ids.TaskId(b"t" * 16)


class Scripted:
    """A session that waits until something has happened, and lets the next thing happen."""

    in_slot = False
    blobs: Any = None

    def __init__(self, *events: Any) -> None:
        self.stream: streams.Stream[Any] = streams.Stream(self, 1, TASK)  # type: ignore[arg-type]
        self.link = self
        self.events = list(events)
        self.waits = 0

    def flush(self) -> None:
        """Nothing is kept back."""

    def happen(self) -> None:
        event = self.events.pop(0)
        if isinstance(event, tuple):
            self.stream.yielded(event[0], serialization.pack_value(event[1], self.blobs))
        elif isinstance(event, Exception):
            payload = serialization.pack_error(event)
            self.end(api_task.State.FAILED, "Raised", payload)
        else:
            values = [serialization.pack_value(value, self.blobs) for value in event]
            self.end(api_task.State.SUCCESS, "", serialization.pack_stream(values, self.blobs))

    def end(self, state: api_task.State, reason: str, payload: attempts.Payload) -> None:
        self.stream.settle(calls.CallResult(1, state, reason, "", payload))

    def block(self, done: Any, timeout_s: Any, tasks: Any, *, first: bool = False) -> bool:
        self.waits += 1
        while not done():
            self.happen()
        return True

    def suspended(self, tasks: Any) -> None:
        threading.Thread(target=self.happen).start()

    def resumed(self) -> None:
        """It goes on."""


def test_values_are_unpacked_one_by_one_on_demand() -> None:
    session = Scripted((0, "a"), (1, "b"), ["a", "b"])
    values = iter(session.stream)
    assert (next(values), len(session.events)) == ("a", 2)
    assert (next(values), len(session.events)) == ("b", 1)
    assert list(values) == []
    assert session.stream.result() == ["a", "b"]
    assert list(session.stream) == ["a", "b"], "it can be iterated again"


def test_values_that_were_missed_come_with_the_result() -> None:
    assert list(Scripted((1, "b"), ["a", "b", "c"]).stream) == ["a", "b", "c"]
    assert list(Scripted(["a", "b"]).stream) == ["a", "b"]
    assert list(Scripted([]).stream) == []


def test_a_repeated_attempt_gives_nothing_twice() -> None:
    session = Scripted((0, "a"), (1, "b"), (0, "a"), (1, "b"), (2, "c"), ["a", "b", "c"])
    assert list(session.stream) == ["a", "b", "c"]


def test_failure_is_raised_after_the_earlier_values() -> None:
    values = iter(Scripted((0, "a"), ValueError("broken")).stream)
    assert next(values) == "a"
    with pytest.raises(ValueError, match="broken"):
        next(values)


async def test_a_stream_can_be_awaited_and_iterated_in_a_loop() -> None:
    async def collected(session: Scripted) -> list[Any]:
        return [value async for value in session.stream]

    session = Scripted((0, "a"), (1, "b"), ["a", "b", "c"])
    assert await asyncio.wait_for(collected(session), 30) == ["a", "b", "c"]
    assert await session.stream == ["a", "b", "c"]
    with pytest.raises(ValueError, match="broken"):
        await asyncio.wait_for(collected(Scripted((0, "a"), ValueError("broken"))), 30)


@kiln.task
def counting(n: int) -> Iterator[int]:
    yield from range(n)


def test_an_endless_generator_can_be_left() -> None:
    @kiln.task
    def endless() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    with kiln.testing.inline():
        stream = endless.submit()
        for number in stream:
            if number == 5:
                stream.cancel()
                break
        with pytest.raises(kiln.Cancelled):
            stream.result()


def test_a_stream_is_a_future_like_any_other() -> None:
    @kiln.task
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    with kiln.testing.inline():
        assert total.submit(counting.submit(4)).result() == 6
        assert kiln.gather(counting.submit(2), counting.submit(3)).result() == [[0, 1], [0, 1, 2]]
        (first,) = kiln.as_completed([counting.submit(2)])
        assert first.result() == [0, 1]
        assert [stream.result() for stream in counting.map([1, 2])] == [[0], [0, 1]]
