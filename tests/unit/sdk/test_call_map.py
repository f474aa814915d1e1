"""Maps with limits: so many at a time, and no more after so many failures."""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import kilnwork as kiln
from kilnwork.kit import ids
from kilnwork.sdk import call_map, futures

TASK = ids.TaskId(b"t" * 16)


@kiln.task
def half(x: int) -> int:
    if x % 2:
        raise ValueError(f"{x} is odd")
    return x // 2


@kiln.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@pytest.fixture
def session() -> Iterator[kiln.testing.InlineSession]:
    with kiln.testing.inline() as made:
        yield made


def states(session: kiln.testing.InlineSession) -> list[str]:
    return [str(each.state) for each in session.tasks]


def counted(limit: int) -> tuple[list[int], Iterator[int]]:
    """An iterable, and how far it was read."""
    read: list[int] = []

    def rows() -> Iterator[int]:
        for number in itertools.count():
            if number == limit:
                return
            read.append(number)
            yield 2 * number

    return read, rows()


def test_without_limits_everything_is_submitted_at_once(
    session: kiln.testing.InlineSession,
) -> None:
    mapped = half.map(range(0, 200, 2))
    assert len(session.tasks) == len(mapped) == 100
    assert [each.result() for each in mapped] == list(range(100))


def test_keys_come_from_the_arguments(session: kiln.testing.InlineSession) -> None:
    first = half.map([0, 2], key=lambda x: f"half-{x}")
    again = half.map([2, 4], key=lambda x: f"half-{x}")
    assert [each.key for each in session.tasks] == ["half-0", "half-2", "half-4"]
    assert first[1].id == again[0].id
    with pytest.raises(kiln.BadOption, match="key=3: must be a string"):
        half.map([3], key=lambda x: x)


def test_no_more_than_max_in_flight_are_open(session: kiln.testing.InlineSession) -> None:
    read, rows = counted(20)
    mapped = half.map(rows, max_in_flight=3)
    assert len(session.tasks) == 3
    assert len(read) == 3, "the iterable is read as calls are submitted"
    for number, future in enumerate(mapped):
        open_now = sum(not each.final for each in session.tasks)
        assert open_now <= 3
        assert future.result() == number
    assert (len(mapped), len(read)) == (20, 20)


def test_an_endless_iterable_is_fine(session: kiln.testing.InlineSession) -> None:
    mapped = half.map(itertools.count(0, 2), max_in_flight=4)
    got = [future.result() for future in itertools.islice(mapped, 10)]
    assert got == list(range(10))
    assert len(session.tasks) <= 14


def test_a_growing_map_can_be_used_as_any_sequence(session: kiln.testing.InlineSession) -> None:
    mapped = half.map(range(0, 20, 2), max_in_flight=2)
    assert mapped[3].result() == 3
    assert mapped[-1].result() == 9
    assert [each.result() for each in mapped[2:4]] == [2, 3]
    with pytest.raises(IndexError):
        mapped[10]
    assert total.submit(half.map(range(0, 20, 2), max_in_flight=2)).result() == 45
    done = kiln.as_completed(half.map(range(0, 20, 2), max_in_flight=2))
    assert sorted(each.result() for each in done) == list(range(10))


def test_fail_fast_cancels_the_rest_and_says_why(session: kiln.testing.InlineSession) -> None:
    mapped = half.map([0, 2, 3, 4, 6], fail_fast=True)
    assert [mapped[0].result(), mapped[1].result()] == [0, 1]
    with pytest.raises(ValueError, match="3 is odd"):
        mapped[2].result()
    for future in mapped[3:]:
        with pytest.raises(kiln.Cancelled) as caught:
            future.result()
        assert str(caught.value.__cause__) == "3 is odd"
    assert len(mapped) == 5, "all were submitted, so the sequence is whole"
    assert states(session) == ["Success", "Success", "Failed", "Killed", "Killed"]


def test_so_many_may_fail(session: kiln.testing.InlineSession) -> None:
    mapped = half.map([1, 3, 4, 5, 6], max_failed=2)
    errors = [future.exception() for future in mapped]
    assert [type(error).__name__ for error in errors] == [
        "ValueError",
        "ValueError",
        "NoneType",
        "ValueError",
        "Cancelled",
    ]


def test_a_map_that_stops_early_ends_with_why(session: kiln.testing.InlineSession) -> None:
    mapped = half.map(itertools.count(1), max_in_flight=2, max_failed=1)
    seen: list[type] = []
    with pytest.raises(
        kiln.TooManyFailed, match=r"after 2 failed calls \(max_failed=1\)"
    ) as caught:
        seen.extend(type(future.exception()) for future in mapped)
    assert isinstance(caught.value.__cause__, ValueError)
    assert seen.count(ValueError) == 2
    assert len(session.tasks) == len(seen)
    with pytest.raises(kiln.TooManyFailed):
        len(mapped)
    with pytest.raises(kiln.TooManyFailed):
        total.submit(mapped)


def test_error_of_the_iterable_is_raised_while_the_map_is_read(
    session: kiln.testing.InlineSession,
) -> None:
    def rows() -> Iterator[int]:
        yield from (0, 2, 4)
        raise OSError("the file ends here")

    mapped = half.map(rows(), max_in_flight=2)
    got: list[int] = []
    with pytest.raises(OSError, match="the file ends here"):
        got.extend(future.result() for future in mapped)
    assert len(session.tasks) == 3
    with pytest.raises(OSError, match="ends here"):
        half.map(rows())


@pytest.mark.parametrize("limits", [{"max_in_flight": 0}, {"max_failed": -1}, {"max_failed": "1"}])
def test_bad_limits_are_refused(
    session: kiln.testing.InlineSession, limits: dict[str, Any]
) -> None:
    name = next(iter(limits))
    with pytest.raises(kiln.BadOption, match=f"{name}=.*: must be an integer of at least"):
        half.map([1], **limits)


def test_within_a_task_the_task_itself_feeds(session: kiln.testing.InlineSession) -> None:
    threads = set()

    def rows() -> Iterator[int]:
        for number in range(0, 20, 2):
            threads.add(threading.get_ident())
            yield number

    @kiln.task
    def parent() -> int:
        return sum(future.result() for future in half.map(rows(), max_in_flight=2))

    assert parent.submit().result() == 45
    assert threads == {threading.get_ident()}
    parents = {each.parent.function for each in session.tasks if each.parent is not None}
    assert parents == {f"{__name__}:{parent.__qualname__}"}


class Owner:
    """What futures need of a session."""

    in_slot = False

    class link:  # noqa: N801 - an object, not a class
        flush = staticmethod(lambda: None)

    def call_back(self, callback: Callable[[Any], object], future: Any) -> None:
        callback(future)


def test_driver_submits_further_calls_while_no_caller_waits() -> None:
    owner: Any = Owner()
    open_now: set[int] = set()
    most = 0
    with ThreadPoolExecutor(3) as pool:

        def submit(row: tuple[Any, ...]) -> futures.CallFuture[int]:
            nonlocal most
            future: futures.CallFuture[int] = futures.CallFuture(owner, row[0], TASK)
            open_now.add(row[0])
            most = max(most, len(open_now))
            pool.submit(end, future, row[0])
            return future

        def end(future: futures.CallFuture[int], number: int) -> None:
            open_now.discard(number)
            future.settle(futures.VALUE, number)
            if number == 999:
                over.set()

        over = threading.Event()
        limits = call_map.Limits(of="f", max_in_flight=3, max_failed=None)
        mapped = call_map.run(((n,) for n in range(1000)), submit, limits, in_background=True)
        assert over.wait(30)
    assert [future.result() for future in mapped] == list(range(1000))
    assert 1 < most <= 3


def test_too_many_failures_are_raised_while_the_map_is_read() -> None:
    owner: Any = Owner()

    def submit(row: tuple[Any, ...]) -> futures.CallFuture[int]:
        future: futures.CallFuture[int] = futures.CallFuture(owner, row[0], TASK)
        future.settle(futures.ERROR, ValueError("over at once"))
        return future

    limits = call_map.Limits(of="f", max_in_flight=2, max_failed=1)
    mapped = call_map.run(((n,) for n in itertools.count()), submit, limits, in_background=True)
    seen: list[BaseException | None] = []
    with pytest.raises(kiln.TooManyFailed, match=r"after 2 failed calls \(max_failed=1\)"):
        seen.extend(future.exception() for future in mapped)
    assert [type(error) for error in seen[:2]] == [ValueError, ValueError]
