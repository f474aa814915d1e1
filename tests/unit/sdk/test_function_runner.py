"""Task functions run the same way, whatever kind they are."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from kilnwork.sdk import function_runner


async def later(x: int) -> int:
    await asyncio.sleep(0)
    return x + 1


def up_to(n: int) -> Iterator[int]:
    yield from range(n)


def test_plain_and_async_functions_return_values() -> None:
    assert function_runner.call(int, ("7",), {"base": 8}) == 7
    assert function_runner.call(later, (1,), {}) == 2


def test_generators_of_both_kinds_yield_and_are_closed() -> None:
    closed = []

    async def slowly(n: int) -> AsyncIterator[int]:
        try:
            for number in range(n):
                await asyncio.sleep(0)
                yield number
        finally:
            await asyncio.sleep(0)
            closed.append(n)

    assert list(function_runner.iterate(up_to, (3,), {})) == [0, 1, 2]
    assert list(function_runner.iterate(slowly, (3,), {})) == [0, 1, 2]
    early = function_runner.iterate(slowly, (5,), {})
    assert next(early) == 0
    early.close()  # type: ignore[attr-defined]
    assert closed == [3, 5]


def test_error_of_a_generator_is_raised_by_its_iterator() -> None:
    async def fails() -> AsyncIterator[int]:
        yield 1
        raise ValueError("here")

    values = function_runner.iterate(fails, (), {})
    assert next(values) == 1
    with pytest.raises(ValueError, match="here"):
        next(values)


@pytest.mark.parametrize(("value", "count"), [((1, 2), 2), ([1, 2, 3], 3), ("ab", 1), (None, 1)])
def test_as_many_results_as_were_promised(value: object, count: int) -> None:
    function_runner.check_returns(value, count)


@pytest.mark.parametrize("value", [(1,), "ab", None, {1: 1, 2: 2}])
def test_another_number_of_results_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"returns=2, but .*: return a tuple of 2"):
        function_runner.check_returns(value, 2)
