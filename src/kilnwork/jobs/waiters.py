"""Waiters: calls that return when a change of a job is on disk, and calls that watch a job.

Used by the engine and the service. One loop. Decides nothing. Those who wait when file jobs stop
get `JobsStopped`.
"""

import asyncio
import itertools

from kilnwork.jobs import errors, records


class Waiters:
    """The waiters of all jobs."""

    def __init__(self) -> None:
        self._settling: dict[records.Job, list[asyncio.Future[None]]] = {}
        self._unsettled: set[asyncio.Future[None]] = set()
        self._watchers: dict[tuple[bytes, bool], list[asyncio.Future[None]]] = {}

    def settling(self, job: records.Job) -> asyncio.Future[None]:
        """Return a future that is over when all that is known of the job now is on disk."""
        waiter = asyncio.get_running_loop().create_future()
        self._settling.setdefault(job, []).append(waiter)
        self._unsettled.add(waiter)
        return waiter

    def taken(self, job: records.Job) -> list[asyncio.Future[None]]:
        """Return those whose change is being written now: they are `settled` afterwards."""
        return self._settling.pop(job, [])

    def settled(self, waiters: list[asyncio.Future[None]]) -> None:
        """End waits for what is on disk now. All at once: a callback of each would cost as much as
        the rest."""
        self._unsettled.difference_update(waiters)
        release(waiters)

    async def changed(self, job: bytes, timeout_s: float, *, over: bool = False) -> None:
        """Return when people see something new of it, or after the timeout. `over`: only when it
        has ended."""
        waiter = asyncio.get_running_loop().create_future()
        watchers = self._watchers.setdefault((job, over), [])
        watchers.append(waiter)
        try:
            await asyncio.wait_for(waiter, timeout_s)
        except TimeoutError:
            return
        finally:
            if waiter in watchers:
                watchers.remove(waiter)
            if not watchers and self._watchers.get((job, over)) is watchers:
                del self._watchers[job, over]

    def notify(self, job: bytes, *, over: bool) -> None:
        """Wake those who watch a job. `over`: it has ended, or is deleted."""
        release(self._watchers.pop((job, False), []))
        if over:
            release(self._watchers.pop((job, True), []))

    def stop(self, why: errors.JobsStopped) -> None:
        """End all waits with an error: nothing will be new any more."""
        watchers = itertools.chain.from_iterable(self._watchers.values())
        for waiter in (*self._unsettled, *watchers):
            if not waiter.done():
                waiter.set_exception(why)


def release(waiters: list[asyncio.Future[None]]) -> None:
    """End these waits."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
