"""Async functions that real slots run by name in tests."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kilnwork.kit import ids
from kilnwork.sdk import session


async def add_later(a: int, b: int) -> int:
    await asyncio.sleep(0.001)
    return a + b


async def count_to_later(n: int) -> AsyncIterator[int]:
    for number in range(n):
        await asyncio.sleep(0)
        yield number


async def sleep_later(seconds: float, sign: str) -> str:
    Path(sign).touch()
    await asyncio.sleep(seconds)
    return "slept"


async def await_for(task: str) -> Any:
    return await session.current().future(ids.task_id(task))


async def block_in_loop(task: str) -> Any:
    """Block the event loop, as no coroutine should."""
    return session.current().future(ids.task_id(task)).result()
