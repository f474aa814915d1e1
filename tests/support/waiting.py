"""Polling for a condition with a deadline and a description; never a bare sleep."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")


def wait_until(
    look: Callable[[], T], *, what: str, timeout_s: float = 30.0, every_s: float = 0.02
) -> T:
    """Return the first truthy result of `look`; fail with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        response = look()
        if response:
            return response
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s} s; last seen: {response!r}")
        time.sleep(every_s)


@overload
async def wait_until_async(
    look: Callable[[], Awaitable[T]], *, what: str, timeout_s: float = 30.0
) -> T: ...


@overload
async def wait_until_async(look: Callable[[], T], *, what: str, timeout_s: float = 30.0) -> T: ...


async def wait_until_async(look: Callable[[], Any], *, what: str, timeout_s: float = 30.0) -> Any:
    """Wait as `wait_until` does, in a running event loop; `look` may be a coroutine function."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = look()
        response = await found if isinstance(found, Awaitable) else found
        if response:
            return response
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout_s} s; last seen: {response!r}")
        await asyncio.sleep(0.02)
