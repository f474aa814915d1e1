"""Calls in event loops: several share one wake-up, and calls to a closed loop are dropped."""

import asyncio
import functools
import gc
import threading

import pytest

from kilnwork.sdk import loop_wakeups


async def test_calls_in_a_row_share_one_wake_up() -> None:
    batcher = loop_wakeups.batcher()
    assert loop_wakeups.batcher() is batcher
    woken: list[int] = []
    loop = asyncio.get_running_loop()
    calls: list[object] = []
    call_soon = loop.call_soon_threadsafe

    def count(call: object, *more: object, **options: object) -> asyncio.Handle:
        calls.append(call)
        return call_soon(call, *more, **options)  # type: ignore[arg-type]

    loop.call_soon_threadsafe = count  # type: ignore[method-assign, assignment]

    def schedule() -> None:
        for number in range(100):
            batcher.schedule(functools.partial(woken.append, number))

    thread = threading.Thread(target=schedule)
    thread.start()
    thread.join()
    assert woken == []
    await asyncio.sleep(0)
    assert woken == list(range(100))
    assert len(calls) == 1


def test_calls_to_a_closed_loop_are_dropped() -> None:
    batchers: list[loop_wakeups.WakeupBatcher] = []

    async def take() -> None:
        batchers.append(loop_wakeups.batcher())

    asyncio.run(take())
    batchers[0].schedule(lambda: pytest.fail("in a closed loop"))
    gc.collect()
    batchers[0].schedule(lambda: pytest.fail("in a loop that is gone"))


def test_running_without_a_loop_raises() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        loop_wakeups.Waiter()
