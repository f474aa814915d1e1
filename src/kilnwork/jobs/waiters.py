"""Waiters: calls that wait until a change of a job is on disk, and calls that watch a job.

Used by the engine and `file_job_service`, on one event loop. When the engine stops, all waiting
calls raise `JobsStopped`.
"""

import asyncio
import itertools

from kilnwork.jobs import errors, live_job_state


class Waiters:
    """Waiting calls, by job."""

    def __init__(self) -> None:
        self._settling: dict[live_job_state.Job, list[asyncio.Future[None]]] = {}
        self._unsettled: set[asyncio.Future[None]] = set()
        self._watchers: dict[tuple[bytes, bool], list[asyncio.Future[None]]] = {}

    def add_waiter(self, job: live_job_state.Job) -> asyncio.Future[None]:
        """Return a future that is done when all changes of the job so far are on disk."""
        waiter = asyncio.get_running_loop().create_future()
        self._settling.setdefault(job, []).append(waiter)
        self._unsettled.add(waiter)
        return waiter

    def take_waiters(self, job: live_job_state.Job) -> list[asyncio.Future[None]]:
        """Return and remove the waiters whose change is being written now; pass them to
        `wake_stored` afterwards."""
        return self._settling.pop(job, [])

    def wake_stored(self, waiters: list[asyncio.Future[None]]) -> None:
        """Wake the waiters whose change is on disk.

        They are removed all at once, since a callback for each would cost as much as everything
        else.
        """
        self._unsettled.difference_update(waiters)
        wake_all(waiters)

    async def wait_for_change(self, job: bytes, timeout_s: float, *, over: bool = False) -> None:
        """Wait until users can see a change of the job, or until the timeout. With `over`, wait
        until the job has ended. Raises `JobsStopped`.
        """
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
        """Wake the calls that watch a job. `over`: whether the job has ended or is deleted."""
        wake_all(self._watchers.pop((job, False), []))
        if over:
            wake_all(self._watchers.pop((job, True), []))

    def stop(self, why: errors.JobsStopped) -> None:
        """Raise an error in all waiting calls, since no job will change any more."""
        watchers = itertools.chain.from_iterable(self._watchers.values())
        for waiter in (*self._unsettled, *watchers):
            if not waiter.done():
                waiter.set_exception(why)


def wake_all(waiters: list[asyncio.Future[None]]) -> None:
    """Complete the futures of waiting calls."""
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)
