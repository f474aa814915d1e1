"""Changes by key: the newest of each, in order, from the number that a reader asks for."""

import asyncio

import pytest

from kilnwork.dispatch.hub import feed


def test_only_the_newest_change_of_a_key_is_published() -> None:
    changes: feed.Feed[str] = feed.Feed()
    start = changes.last
    changes.publish(["a", "b"])
    middle = changes.last
    changes.publish(["a"])
    assert changes.since(start) == ["b", "a"]
    assert changes.since(middle) == ["a"]
    assert changes.since(changes.last) == []
    assert changes.number("a") > changes.number("b") > changes.number("c") == 0


async def test_waiting_ends_with_the_next_change() -> None:
    changes: feed.Feed[str] = feed.Feed()
    waiters = [asyncio.ensure_future(changes.newer(changes.last)) for _ in range(3)]
    await asyncio.sleep(0)
    changes.publish([])
    await asyncio.sleep(0)
    assert not any(waiter.done() for waiter in waiters)
    changes.publish(["a"])
    await asyncio.gather(*waiters)


async def test_reading_from_the_beginning_never_waits() -> None:
    changes: feed.Feed[str] = feed.Feed()
    await changes.newer(0)
    assert changes.last != 0


async def test_failed_feed_raises_in_its_readers() -> None:
    changes: feed.Feed[str] = feed.Feed()
    waiter = asyncio.ensure_future(changes.newer(changes.last))
    await asyncio.sleep(0)
    changes.fail(RuntimeError("over"))
    with pytest.raises(RuntimeError, match="over"):
        await waiter


async def test_throttled_feed_publishes_the_first_change_at_once_then_at_intervals() -> None:
    changes: feed.ThrottledFeed[str] = feed.ThrottledFeed(every_s=0.01)
    start = changes.last
    changes.publish(["a"])
    assert changes.since(start) == ["a"]
    seen = changes.last
    for _ in range(3):
        changes.publish(["a", "b"])
    assert changes.since(seen) == []
    await changes.newer(seen)
    assert sorted(changes.since(seen)) == ["a", "b"]
    changes.publish(["c"])
    changes.fail(RuntimeError("over"))
    assert changes.number("c") == 0
