"""Keys reconciled side by side, each alone, and again when it went wrong."""

import asyncio
import collections

import pytest

from kilnwork.kit import backoff
from kilnwork.kube import controller, errors, objects, queue

A, B = ("x", "a"), ("x", "b")


def _queue() -> queue.WorkQueue:
    return queue.WorkQueue(retries=backoff.Backoff(base_s=0.001, max_s=0.01))


async def test_every_key_is_reconciled_but_never_twice_at_once() -> None:
    inside: collections.Counter[objects.Key] = collections.Counter()
    most: collections.Counter[objects.Key] = collections.Counter()
    both = asyncio.Event()
    seen: list[objects.Key] = []

    async def reconcile(key: objects.Key) -> None:
        inside[key] += 1
        most[key] = max(most[key], inside[key])
        if len(seen) < 2 and inside.total() == 2:
            both.set()
        await both.wait()
        work.add(key) if len(seen) < 4 else None
        await asyncio.sleep(0)
        inside[key] -= 1
        seen.append(key)

    work = _queue()
    loop = controller.Controller("test", reconcile, work, workers=4)
    await loop.start()
    work.add(A)
    work.add(B)
    async with asyncio.timeout(30):
        while len(seen) < 6:
            await asyncio.sleep(0)
    await loop.stop()
    assert set(most.values()) == {1}
    assert set(seen) == {A, B}


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (errors.Conflict(409, "Conflict", "changed"), "DEBUG"),
        (errors.Unavailable(503, "", "down"), "WARNING"),
        (ValueError("a bug"), "ERROR"),
    ],
)
async def test_whatever_fails_is_tried_again(
    error: Exception, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "kilnwork.kube.controller")
    left = [error, error]
    done = asyncio.Event()

    async def reconcile(_: objects.Key) -> None:
        if left:
            raise left.pop()
        done.set()

    loop = controller.Controller("test", reconcile, _queue())
    await loop.start()
    loop.queue.add(A)
    await asyncio.wait_for(done.wait(), 30)
    await loop.stop()
    assert [r.levelname for r in caplog.records] == [level, level]


async def test_retry_after_is_the_least_wait(caplog: pytest.LogCaptureFixture) -> None:
    failed = asyncio.Event()

    async def reconcile(_: objects.Key) -> None:
        failed.set()
        raise errors.TooManyRequests(429, "TooManyRequests", "busy", retry_after_s=77)

    loop = controller.Controller("test", reconcile, _queue())
    await loop.start()
    loop.queue.add(A)
    await asyncio.wait_for(failed.wait(), 30)
    await loop.stop()
    assert [vars(r)["again_in_s"] for r in caplog.records] == [77]


async def test_a_reconciler_may_ask_to_be_called_again() -> None:
    times = 0
    done = asyncio.Event()

    async def reconcile(_: objects.Key) -> float | None:
        nonlocal times
        times += 1
        if times < 3:
            return 0.001
        done.set()
        return None

    loop = controller.Controller("test", reconcile, _queue())
    await loop.start()
    loop.queue.add(A)
    await asyncio.wait_for(done.wait(), 30)
    await loop.stop()
    assert times == 3


async def test_stop_lets_running_reconciles_finish() -> None:
    begun, go_on, finished = asyncio.Event(), asyncio.Event(), False

    async def reconcile(_: objects.Key) -> None:
        nonlocal finished
        begun.set()
        await go_on.wait()
        finished = True

    loop = controller.Controller("test", reconcile, _queue())
    await loop.start()
    loop.queue.add(A)
    await begun.wait()
    loop.queue.add(B)
    stopping = asyncio.create_task(loop.stop())
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait_for(stopping, 30)
    assert finished


async def test_stop_cancels_reconciles_that_hang() -> None:
    begun = asyncio.Event()

    async def reconcile(_: objects.Key) -> None:
        begun.set()
        await asyncio.Event().wait()

    loop = controller.Controller("test", reconcile, _queue())
    await loop.start()
    loop.queue.add(A)
    await begun.wait()
    await asyncio.wait_for(loop.stop(grace_s=0.01), 30)
