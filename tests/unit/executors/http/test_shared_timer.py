"""Calls after a delay that is the same for all of them."""

import asyncio

from kilnwork.executors.http import shared_timer


class Caller:
    """Notes that it was called."""

    def __init__(self, waiting: shared_timer.DelayedCalls | None = None) -> None:
        self.called = asyncio.Event()
        self.calls = 0
        self.waiting = waiting
        self.others: list[Caller] = []

    def call(self) -> None:
        self.calls += 1
        self.called.set()
        for other in self.others:
            assert self.waiting is not None
            self.waiting.cancel(other.call)


async def called(caller: Caller) -> None:
    await asyncio.wait_for(caller.called.wait(), 5)


async def test_each_is_called_once_and_not_before_its_time() -> None:
    waiting, loop = shared_timer.DelayedCalls(0.01), asyncio.get_running_loop()
    began, callers = loop.time(), [Caller() for _ in range(3)]
    for caller in callers:
        waiting.add(caller.call)
    for caller in callers:
        await called(caller)
    assert loop.time() - began >= 0.01
    later = Caller()
    waiting.add(later.call)
    await called(later)
    assert [caller.calls for caller in callers] == [1, 1, 1]


async def test_cancelled_call_is_not_made_and_others_are() -> None:
    waiting, first, second = shared_timer.DelayedCalls(0.01), Caller(), Caller()
    waiting.add(first.call)
    waiting.add(second.call)
    waiting.cancel(first.call)
    await called(second)
    assert first.calls == 0


async def test_call_may_cancel_another_due_call() -> None:
    waiting = shared_timer.DelayedCalls(0.0)
    first, second, third = Caller(waiting), Caller(), Caller()
    first.others = [second]
    for caller in (first, second, third):
        waiting.add(caller.call)
    await called(third)
    assert (first.calls, second.calls) == (1, 0)


async def test_none_is_called_after_the_end() -> None:
    waiting, caller, loop = shared_timer.DelayedCalls(0.0), Caller(), asyncio.get_running_loop()
    waiting.add(caller.call)
    waiting.close()
    passed = loop.create_future()
    loop.call_later(0.01, passed.set_result, None)
    await passed
    assert caller.calls == 0
