"""Runs task functions of all kinds: plain, async, generators and async generators.

Used by the code that runs calls: the worker's slots, `kilnwork.testing` and `jobs.work`. An async
function gets an event loop of its own, which is closed after the call. asyncio is imported for
async functions only.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from inspect import isasyncgen, iscoroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

NewLoop = Callable[[], "asyncio.AbstractEventLoop"]


def call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    new_loop: NewLoop | None = None,
) -> Any:
    """Call the function and return its result; the result of an async function is awaited.

    `new_loop`: returns the event loop for an async function; None: a default loop.
    """
    value = function(*args, **kwargs)
    if iscoroutine(value):
        with _runner(new_loop) as runner:
            return runner.run(value)
    return value


def iterate(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    new_loop: NewLoop | None = None,
) -> Iterator[Any]:
    """Return an iterator over the values that a generator function yields.

    Closing it closes the generator.
    """
    made = function(*args, **kwargs)
    return _driven(made, new_loop) if isasyncgen(made) else iter(made)


def check_returns(value: Any, count: int) -> None:
    """Raise ValueError unless `value` can be unpacked into `count` items (`returns=`)."""
    several = isinstance(value, tuple | list)
    if count > 1 and not (several and len(value) == count):
        kind = type(value).__name__
        got = f"a {kind} of {len(value)}" if several else kind
        raise ValueError(
            f"the task has returns={count}, but its function returned {got}: return a tuple of "
            f"{count}"
        )


def _runner(new_loop: NewLoop | None) -> "asyncio.Runner":
    import asyncio  # noqa: PLC0415 - 50 ms that plain functions do not need

    return asyncio.Runner(loop_factory=new_loop)


def _driven(source: AsyncIterator[Any], new_loop: NewLoop | None) -> Iterator[Any]:
    with _runner(new_loop) as runner:
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
