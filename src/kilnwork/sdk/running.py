"""Running task functions: plain, async, generators and async generators, all the same way.

Used by whoever runs calls: the worker's slots and `kilnwork.testing`. An async function gets an
event loop of its own, which is over with the call. asyncio is imported for those only.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from inspect import isasyncgen, iscoroutine
from typing import Any


def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the function returns; for an async function, what awaiting that gives."""
    value = function(*args, **kwargs)
    if iscoroutine(value):
        import asyncio  # noqa: PLC0415 - 50 ms that plain functions do not need

        return asyncio.run(value)
    return value


def iterate(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[Any]:
    """What a generator function yields. Close the iterator to close the generator."""
    made = function(*args, **kwargs)
    return _driven(made) if isasyncgen(made) else iter(made)


def _driven(source: AsyncIterator[Any]) -> Iterator[Any]:
    import asyncio  # noqa: PLC0415 - as above

    with asyncio.Runner() as runner:
        try:
            while True:
                try:
                    value = runner.run(_next(source))
                except StopAsyncIteration:
                    return
                yield value
        finally:
            runner.run(source.aclose())  # type: ignore[attr-defined]


async def _next(source: AsyncIterator[Any]) -> Any:
    return await anext(source)
