"""A program for type checkers that asserts the type of each expression. Checked, never run.

`make check` runs mypy on it; `tests/unit/sdk/test_typing.py` also runs pyright if it is installed.
"""

import datetime
import itertools
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from typing import Any, assert_type

import kilnwork as kiln


@kiln.task
def count(shard: str, scale: int = 1) -> int:
    """A task without options."""
    return len(shard) * scale


@kiln.task(retries=3, retry_on=(ConnectionError, TimeoutError), timeout=60)
def total(parts: list[int]) -> int:
    """A task with options."""
    return sum(parts)


@kiln.task
def mapreduce(path: str) -> kiln.Future[int]:
    """A task that delegates."""
    return total.submit(count.map([path]))


@kiln.task
def hop(n: int) -> int | kiln.Future[int]:
    """A task that may delegate."""
    return hop.submit(n - 1) if n else 0


@kiln.task
async def later(n: int) -> str:
    """An async task."""
    return str(n)


@kiln.task(priority=3)
async def later_still(n: int) -> str | None:
    """An async task with options."""
    return None if n else ""


@kiln.task
def up_to(n: int) -> Iterator[int]:
    """A generator."""
    yield from range(n)


@kiln.task(name="generator")
def down_from(n: int) -> Generator[int, None, str]:
    """A generator by its full name."""
    yield n
    return ""


@kiln.task
async def slowly(n: int) -> AsyncIterator[str]:
    """An async generator."""
    yield str(n)


@kiln.task(returns=2)
def divide(a: int, b: int) -> tuple[int, str]:
    """A task with two results."""
    return a // b, ""


@kiln.task(returns=3)
async def three() -> tuple[int, str, float]:
    """An async one with three."""
    return 1, "", 1.0


@kiln.task(returns=7)
def seven() -> list[int]:
    """One with more than have types of their own."""
    return []


@kiln.task
def nothing() -> None:
    """A task without a result."""


async def calls() -> None:
    """Calling a task is calling its function."""
    assert_type(count("a"), int)
    assert_type(hop(1), int | kiln.Future[int])
    coroutine: Coroutine[Any, Any, str] = later(1)
    assert_type(await coroutine, str)
    assert_type(up_to(1), Iterator[int])
    assert_type(slowly(1), AsyncIterator[str])
    assert_type(divide(1, 2), tuple[int, str])


def submits(path: str) -> None:
    """Submitting gives the future of the result."""
    assert_type(count.submit("a", scale=2), kiln.Future[int])
    assert_type(total.submit(count.map([path])), kiln.Future[int])
    assert_type(total.submit([count.submit(path), 3]), kiln.Future[int])
    assert_type(mapreduce.submit(path), kiln.Future[int])
    assert_type(hop.submit(3), kiln.Future[int])
    assert_type(later.submit(1), kiln.Future[str])
    assert_type(later_still.submit(1), kiln.Future[str | None])
    assert_type(nothing.submit(), kiln.Future[None])
    assert_type(count.submit(path).result(), int)
    assert_type(count.options(key="k", retries=1).submit(path), kiln.Future[int])
    assert_type(kiln.task(len, retries=1).submit(path), kiln.Future[int])


async def streams() -> None:
    """Generators are futures that can be iterated."""
    assert_type(up_to.submit(3), kiln.Stream[int])
    assert_type(down_from.submit(3), kiln.Stream[int])
    assert_type(slowly.submit(3), kiln.Stream[str])
    assert_type(up_to.submit(3).result(), list[int])
    for value in up_to.submit(3):
        assert_type(value, int)
    async for text in slowly.submit(3):
        assert_type(text, str)
    assert_type(total.submit(up_to.submit(3)), kiln.Future[int])


def several() -> None:
    """Several results are several futures."""
    assert_type(divide.submit(7, 2), tuple[kiln.Future[int], kiln.Future[str]])
    assert_type(three.submit(), tuple[kiln.Future[int], kiln.Future[str], kiln.Future[float]])
    assert_type(seven.submit(), tuple[kiln.Future[Any], ...])


def many(paths: list[str]) -> None:
    """A map is a sequence of futures."""
    assert_type(count.map(paths, itertools.repeat(2)), kiln.Futures[int])
    assert_type(hop.map([1], max_in_flight=2, fail_fast=True), kiln.Futures[int])
    assert_type(later.map([1])[0], kiln.Future[str])
    assert_type(up_to.map([1])[0].result(), list[int])
    assert_type(kiln.gather(*count.map(paths)), kiln.Future[list[int]])
    done, not_done = kiln.wait(count.map(paths), timeout=1)
    assert_type(done, set[kiln.Future[int]])
    assert_type(not_done, set[kiln.Future[int]])
    for future in kiln.as_completed(count.map(paths)):
        assert_type(future.result(), int)


def templates() -> None:
    """Tasks without a function have results of the type that is named."""
    book = kiln.manifest("", success_condition=".status.done", json_path=".n", result=int)
    assert_type(book.submit(n=count.submit("a")), kiln.Future[int])
    assert_type(book.options(retries=1)(n=1), int)
    assert_type(kiln.workflow({}).submit().result(), dict[str, str])
    assert_type(kiln.http({}, result=list[str]).submit(), kiln.Future[list[str]])
    assert_type(kiln.function({}, result=int).submit(), kiln.Future[int])
    assert_type(kiln.manifest("", success_condition="").submit(), kiln.Future[Any])


@kiln.job(schedule="@daily", timezone="Europe/Zurich", retries=1)
def report(day: datetime.date | None = None) -> str:
    """A job with options."""
    return str(day)


@kiln.job
async def asynchronous() -> int:
    """A job that is an async function."""
    return 1


@kiln.job(parallel={"city": ["bern"]})
def everywhere(matrix: dict[str, str], index: int) -> str:
    """A job with an index set."""
    return matrix["city"]


def jobs() -> None:
    """Runs of a job have its result."""
    assert_type(report(), str)
    assert_type(report.submit(datetime.date(2026, 1, 2)), kiln.JobRun[str])
    assert_type(report.options(priority=1, depends_on=["a"]).submit().result(), str)
    assert_type(asynchronous.submit().result(timeout=1), int)
    assert_type(everywhere({"city": "bern"}, 0), str)
    assert_type(everywhere.submit().result(), Any)
    assert_type(everywhere.submit().results(), Iterator[Any])
    assert_type(kiln.job("report"), kiln.DeployedJob)
    assert_type(kiln.job("report").submit(day=None), kiln.JobRun[Any])
    assert_type(kiln.job(kiln.http({}, result=int), name="a").submit(x=1).result(), int)
    assert_type(kiln.job("report").submit().status().phase, str)


async def awaits() -> None:
    """Futures can be awaited."""
    assert_type(await count.submit("a"), int)
    assert_type(await kiln.gather(count.submit("a")), list[int])
    async for future in kiln.as_completed(later.map([1])):
        assert_type(await future, str)


def values() -> None:
    """Values that are put are references."""
    assert_type(kiln.put([1]), kiln.Ref[list[int]])
    assert_type(kiln.get(kiln.put("a")), str)
    assert_type(kiln.get(count.submit("a")), int)
    assert_type(kiln.split("words.txt", 3), list[kiln.Part])
    assert_type(kiln.context().attempt, int)
    with kiln.testing.inline() as session:
        assert_type(session, kiln.testing.InlineSession)
        assert_type(session.clock, kiln.testing.VirtualClock)
