"""Other controllers wait while many keys of the first queue are ready, for a limited time."""

import asyncio

from kilnwork.controllers import controller_precedence
from kilnwork.kit import clock
from kilnwork.kube import queue


def _queue(time: clock.Clock, keys: int) -> queue.WorkQueue:
    made = queue.WorkQueue(time=time)
    for number in range(keys):
        made.add(("ns", f"config-{number}"))
    return made


async def test_few_keys_delay_no_other() -> None:
    time = clock.ManualClock()
    turn = controller_precedence.Precedence(_queue(time, controller_precedence.BEHIND), time=time)
    await asyncio.wait_for(turn.wait(), 1)


async def test_many_keys_delay_other_controllers_until_few_are_left() -> None:
    time = clock.ManualClock()
    first = _queue(time, controller_precedence.BEHIND + 1)
    waiting = asyncio.create_task(controller_precedence.Precedence(first, time=time).wait())
    await asyncio.wait({waiting}, timeout=3 * controller_precedence.LOOK_S)
    assert not waiting.done()
    await first.get()
    await asyncio.wait_for(waiting, 1)


async def test_endless_burst_delays_other_controllers_for_a_limited_time() -> None:
    time = clock.ManualClock()
    first = _queue(time, controller_precedence.BEHIND + 1)
    turn = controller_precedence.Precedence(first, time=time)
    waiting = asyncio.create_task(turn.wait())
    await asyncio.wait({waiting}, timeout=3 * controller_precedence.LOOK_S)
    assert not waiting.done()
    time.advance(controller_precedence.MAX_HELD_S)
    await asyncio.wait_for(waiting, 1)
    await asyncio.wait_for(turn.wait(), 1)


async def test_closed_queue_delays_no_other() -> None:
    time = clock.ManualClock()
    first = _queue(time, controller_precedence.BEHIND + 1)
    first.close()
    await asyncio.wait_for(controller_precedence.Precedence(first, time=time).wait(), 1)
