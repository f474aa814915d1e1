"""Time of inline sessions."""

import asyncio

from kilnwork.testing import clock


def test_a_sleep_takes_no_time_and_never_goes_back() -> None:
    time = clock.VirtualClock()
    start = time.monotonic()
    time.sleep(3600.0)
    time.sleep(-5.0)
    assert time.monotonic() == start + 3600.0


def test_a_loop_that_waits_for_timers_alone_lets_virtual_time_pass() -> None:
    time = clock.VirtualClock()
    start = time.monotonic()
    loop = clock.VirtualLoop(time.monotonic, time.sleep)
    try:
        loop.run_until_complete(asyncio.sleep(3600.0))
    finally:
        loop.close()
    assert 3600.0 <= time.monotonic() - start < 3601.0
