"""Tidings for event loops: together in one wake-up, none for a loop that is closed."""

import asyncio
import functools
import gc
import threading

import pytest

from kilnwork.sdk import loops


async def test_what_comes_together_takes_one_wake_up() -> None:
    bell = loops.bell()
    assert loops.bell() is bell
    woken: list[int] = []
    loop = asyncio.get_running_loop()
    calls: list[object] = []
    call_soon = loop.call_soon_threadsafe

    def count(call: object, *more: object, **options: object) -> asyncio.Handle:
        calls.append(call)
        return call_soon(call, *more, **options)  # type: ignore[arg-type]

    loop.call_soon_threadsafe = count  # type: ignore[method-assign, assignment]

    def ring() -> None:
        for number in range(100):
            bell.ring(functools.partial(woken.append, number))

    thread = threading.Thread(target=ring)
    thread.start()
    thread.join()
    assert woken == []
    await asyncio.sleep(0)
    assert woken == list(range(100))
    assert len(calls) == 1


def test_a_closed_loop_hears_nothing() -> None:
    bells: list[loops.Bell] = []

    async def take() -> None:
        bells.append(loops.bell())

    asyncio.run(take())
    bells[0].ring(lambda: pytest.fail("in a closed loop"))
    gc.collect()
    bells[0].ring(lambda: pytest.fail("in a loop that is gone"))


def test_without_a_loop_it_says_so() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        loops.Waiter()
