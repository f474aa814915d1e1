"""Calls wait until a change is on disk, or until a job changes."""

import asyncio

import pytest

from kilnwork.jobs import errors, waiters
from support import index_records

JOB = b"j" * 16


async def test_stored_change_wakes_all_its_waiters() -> None:
    every, job = waiters.Waiters(), index_records.job()
    first, second = every.add_waiter(job), every.add_waiter(job)
    taken = every.take_waiters(job)
    later = every.add_waiter(job)
    every.wake_stored(taken)
    assert (first.done(), second.done(), later.done()) == (True, True, False)
    assert every.take_waiters(index_records.job()) == []


async def test_notify_wakes_watchers() -> None:
    every = waiters.Waiters()
    new = asyncio.create_task(every.wait_for_change(JOB, 30))
    over = asyncio.create_task(every.wait_for_change(JOB, 30, over=True))
    await asyncio.sleep(0)
    every.notify(JOB, over=False)
    await new
    assert not over.done()
    every.notify(b"other", over=True)
    every.notify(JOB, over=True)
    await over


async def test_watcher_returns_after_timeout() -> None:
    every = waiters.Waiters()
    await every.wait_for_change(JOB, 0.001)
    assert every._watchers == {}


async def test_stop_fails_all_waits() -> None:
    every = waiters.Waiters()
    settling = every.add_waiter(index_records.job())
    watching = asyncio.create_task(every.wait_for_change(JOB, 30))
    await asyncio.sleep(0)
    every.stop(errors.JobsStopped("it stops"))
    for one in (settling, watching):
        with pytest.raises(errors.JobsStopped):
            await one
