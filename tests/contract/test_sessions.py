"""The meaning of tasks is the same in a real session and in an inline one."""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import kilnwork as kiln


@pytest.fixture(scope="module", params=["inline", "local"])
def session(request: pytest.FixtureRequest) -> Iterator[kiln.Session]:
    made: Any = kiln.testing.inline() if request.param == "inline" else kiln.start(slots=2)
    with made as opened:
        yield opened


pytestmark = pytest.mark.usefixtures("session")


class Refused(Exception):
    """An error whose constructor takes other arguments than it passes to its base class."""

    def __init__(self, host: str, *, port: int) -> None:
        super().__init__(f"{host}:{port} refused")
        self.port = port


@kiln.task
def add(*numbers: int) -> int:
    return sum(numbers)


@kiln.task
def half(x: int) -> int:
    if x % 2:
        raise ValueError(f"{x} is odd")
    return x // 2


@kiln.task
def refuses() -> None:
    raise Refused("host", port=80)


@kiln.task(retries=3, retry_on=OSError, retry_delay=0)
def flaky(times: int, error: type[Exception]) -> int:
    if kiln.context().attempt <= times:
        raise error("again")
    return kiln.context().attempt


@kiln.task(timeout=0.3)
def sleeps(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@kiln.task
async def sleeps_async(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


@kiln.task
def counts(n: int) -> Iterator[int]:
    yield from range(n)


@kiln.task
async def counts_async(n: int) -> AsyncIterator[int]:
    for number in range(n):
        await asyncio.sleep(0.001)
        yield number


@kiln.task(returns=2)
def divide(a: int, b: int) -> tuple[int, int]:
    return divmod(a, b)


@kiln.task
def delegates(n: int) -> kiln.Future[int]:
    return half.submit(n)


@kiln.task
def nests(left: int) -> int:
    return nests.submit(left - 1).result() + 1 if left else 0


@kiln.task
async def waits_async(n: int) -> list[int]:
    return list(await asyncio.gather(*(half.submit(2 * each) for each in range(n))))


@kiln.task
def maps(n: int) -> int:
    return sum(future.result() for future in half.map(range(0, 2 * n, 2), max_in_flight=3))


@kiln.task(accept_failures=True)
def describes(value: Any) -> str:
    return f"{type(value).__name__}: {value}"


@kiln.task
def hides_a_lock() -> Any:
    return {"deep": [threading.Lock()]}


def test_arguments_and_results_round_trip() -> None:
    assert add.submit(1, 2, 3).result(30) == 6
    assert add.submit(*add.map([1, 2], [3, 4])).result(30) == 10
    assert kiln.task(sum).submit([add.submit(1), add.submit(2)]).result(30) == 3
    local = {"n": 3}
    assert kiln.task(lambda x: x * local["n"]).submit(7).result(30) == 21


def test_exception_of_a_task_keeps_its_type_and_attributes() -> None:
    with pytest.raises(Refused) as caught:
        refuses.submit().result(30)
    assert (str(caught.value), caught.value.port) == ("host:80 refused", 80)
    remote = str(caught.value.__cause__)
    assert remote.count("  File ") == 1, "our frames are left out"
    assert "in refuses" in remote


def test_unpicklable_result_is_named_by_its_path() -> None:
    with pytest.raises(kiln.NotPicklable, match=r"^result\['deep'\]\[0\]: TypeError"):
        hides_a_lock.submit().result(30)


def test_exceptions_of_retry_on_are_retried() -> None:
    assert flaky.submit(2, ConnectionError).result(30) == 3
    with pytest.raises(ConnectionError):
        flaky.submit(4, ConnectionError).result(30)
    with pytest.raises(ValueError, match="again"):
        flaky.submit(1, ValueError).result(30)
    assert flaky.options(retry_on=ValueError).submit(1, ValueError).result(30) == 2


def test_task_over_its_timeout_raises_task_timed_out() -> None:
    assert sleeps.options(timeout=60).submit(0.001).result(30) == 0.001
    with pytest.raises(kiln.TaskTimedOut):
        sleeps.submit(20).result(30)
    assert sleeps_async.submit(0.01).result(30) == 0.01


def test_failed_input_fails_a_task_that_does_not_accept_failures() -> None:
    error = add.submit(add.submit(half.submit(3))).exception(30)
    assert isinstance(error, kiln.InputFailed)
    assert isinstance(error.__cause__, ValueError), "of a chain of failures the first one counts"
    assert describes.submit(half.submit(3)).result(30) == "ValueError: 3 is odd"
    assert describes.submit(half.submit(4)).result(30) == "int: 2"


def test_tasks_may_return_futures_and_wait_for_children() -> None:
    assert delegates.submit(8).result(30) == 4
    with pytest.raises(ValueError, match="7 is odd"):
        delegates.submit(7).result(30)
    assert nests.submit(60).result(30) == 60
    assert waits_async.submit(4).result(30) == [0, 1, 2, 3]
    assert maps.submit(10).result(30) == 45


def test_generator_task_yields_its_values() -> None:
    assert list(counts.submit(4)) == list(counts_async.submit(4)) == [0, 1, 2, 3]
    assert counts.submit(3).result(30) == [0, 1, 2]
    assert kiln.task(sum).submit(counts.submit(5)).result(30) == 10


def test_task_with_several_results_has_a_future_for_each() -> None:
    quotient, rest = divide.submit(17, 5)
    assert (quotient.result(30), rest.result(30)) == (3, 2)
    assert add.submit(quotient, rest).result(30) == 5
    with pytest.raises(ValueError, match="returned a tuple of 2"):
        kiln.task(returns=3)(lambda: (1, 2)).submit()[0].result(30)


def test_calls_with_one_key_are_one_task() -> None:
    first = add.options(key="mine").submit(1)
    assert add.options(key="mine").submit(1).id == first.id
    assert isinstance(add.options(key="mine").submit(2).exception(30), kiln.KeyTaken)
    assert isinstance(half.options(key="mine").submit(1).exception(30), kiln.KeyTaken)
    assert kiln.future(first.id).result(30) == 1


def test_waiting_task_is_cancelled() -> None:
    before = sleeps.options(timeout=60).submit(60)
    waiting = add.submit(add.submit(before))
    assert waiting.cancel()
    with pytest.raises(kiln.Cancelled):
        waiting.result(30)
    assert waiting.cancelled()
    assert not waiting.cancel()
    assert before.cancel()


def test_map_honours_max_in_flight_and_max_failed() -> None:
    mapped = half.map(range(0, 100, 2), max_in_flight=4)
    assert [future.result(30) for future in mapped] == list(range(50))
    with pytest.raises(kiln.TooManyFailed, match="after 3 failed calls") as caught:
        [f.exception(30) for f in half.map(itertools.count(1), max_in_flight=2, max_failed=2)]
    assert isinstance(caught.value.__cause__, ValueError)


def test_wait_as_completed_and_gather() -> None:
    futures = [half.submit(n) for n in range(6)]
    done, not_done = kiln.wait(futures, timeout=30)
    assert (len(done), len(not_done)) == (6, 0)
    assert [type(f.exception()).__name__ for f in futures] == ["NoneType", "ValueError"] * 3
    assert sorted(f.result() for f in kiln.as_completed(half.map([0, 2, 4]))) == [0, 1, 2]
    with pytest.raises(ValueError, match="1 is odd"):
        kiln.gather(half.submit(2), half.submit(1)).result(30)


def test_large_arguments_and_results_round_trip() -> None:
    text = "x" * 300_000
    assert kiln.task(len).submit(text).result(30) == 300_000
    assert kiln.task(str.upper).submit(text).result(30) == text.upper()
    held = kiln.put(list(range(50_000)))
    assert kiln.task(sum).submit(held).result(30) == sum(range(50_000))


async def test_futures_are_awaitable() -> None:
    assert await asyncio.wait_for(add.submit(1, 2), 30) == 3
    assert await asyncio.gather(*half.map([0, 2, 4])) == [0, 1, 2]
    got = [await future async for future in kiln.as_completed(half.map([2, 4]))]
    assert sorted(got) == [1, 2]
    assert [value async for value in counts.submit(3)] == [0, 1, 2]
