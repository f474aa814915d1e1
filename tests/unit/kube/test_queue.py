"""Keys in line, in hand and due later."""

import asyncio

import hypothesis
from hypothesis import strategies

from kilnwork.kit import backoff, clock
from kilnwork.kube import objects, queue

A, B = ("x", "a"), ("x", "b")


def test_a_key_is_in_line_once() -> None:
    ledger = queue.Ledger()
    for key in (A, B, A):
        ledger.add(key)
    assert [ledger.take(0), ledger.take(0), ledger.take(0)] == [A, B, None]


def test_a_key_in_hand_is_not_given_out_again_until_done() -> None:
    ledger = queue.Ledger()
    ledger.add(A)
    assert ledger.take(0) == A
    ledger.add(A)
    ledger.add(A)
    assert ledger.take(0) is None
    ledger.done(A)
    assert ledger.take(0) == A
    ledger.done(A)
    assert ledger.take(0) is None


def test_a_key_becomes_ready_when_due_and_the_earlier_time_counts() -> None:
    ledger = queue.Ledger()
    ledger.add_at(A, 10)
    ledger.add_at(A, 5)
    ledger.add_at(A, 7)
    ledger.add_at(B, 6)
    assert ledger.next_due() == 5
    assert [ledger.take(4.9), ledger.take(5), ledger.take(5)] == [None, A, None]
    assert ledger.next_due() == 6
    ledger.done(A)
    assert [ledger.take(100), ledger.take(100)] == [B, None]
    assert ledger.next_due() is None


def test_a_time_that_is_cancelled_does_not_count() -> None:
    ledger = queue.Ledger()
    ledger.add_at(A, 5)
    ledger.cancel(A)
    ledger.cancel(B)
    assert ledger.next_due() is None
    ledger.add_at(A, 7)
    assert [ledger.take(6), ledger.take(7)] == [None, A]
    assert ledger.next_due() is None


def test_a_key_that_is_due_while_in_hand_comes_after() -> None:
    ledger = queue.Ledger()
    ledger.add(A)
    assert ledger.take(0) == A
    ledger.add_at(A, 1)
    assert ledger.take(2) is None
    ledger.done(A)
    assert ledger.take(2) == A


async def test_failures_in_a_row_wait_longer_and_success_forgets() -> None:
    work = queue.WorkQueue(
        time=clock.ManualClock(), retries=backoff.Backoff(base_s=1, max_s=5, jitter=0)
    )
    assert [work.retry(A) for _ in range(5)] == [1, 2, 4, 5, 5]
    assert work.retry(B, at_least_s=9) == 9
    work.forget(A)
    assert work.retry(A) == 1
    work.close()


async def test_waiting_takers_are_served_in_turn() -> None:
    work = queue.WorkQueue()
    takers = [asyncio.create_task(work.get()) for _ in range(3)]
    await asyncio.sleep(0)
    work.add(A)
    work.add(B)
    assert await takers[0] == A
    assert await takers[1] == B
    assert not takers[2].done()
    work.close()
    assert await takers[2] is None
    assert await work.get() is None


async def test_cancelled_get_passes_its_key_to_the_next_waiter() -> None:
    work = queue.WorkQueue()
    first, second = (asyncio.create_task(work.get()) for _ in range(2))
    await asyncio.sleep(0)
    work.add(A)
    first.cancel()
    assert await asyncio.wait_for(second, 30) == A
    work.close()


async def test_a_later_key_wakes_a_taker_by_itself() -> None:
    work = queue.WorkQueue()
    taker = asyncio.create_task(work.get())
    await asyncio.sleep(0)
    work.add(B, after_s=60)
    work.add(A, after_s=0.005)
    assert await asyncio.wait_for(taker, 30) == A
    work.done(A)
    work.close()
    assert len(work) == 0


KEYS = strategies.sampled_from([A, B, ("y", "a")])
STEPS = strategies.lists(
    strategies.one_of(
        strategies.tuples(strategies.just("add"), KEYS, strategies.just(0.0)),
        strategies.tuples(strategies.just("add"), KEYS, strategies.floats(0.1, 5)),
        strategies.tuples(strategies.just("take"), KEYS, strategies.just(0.0)),
        strategies.tuples(strategies.just("done"), KEYS, strategies.just(0.0)),
        strategies.tuples(strategies.just("wait"), KEYS, strategies.floats(0.1, 5)),
    )
)


@hypothesis.given(STEPS)
def test_no_key_is_lost_and_none_is_twice_in_hand(
    steps: list[tuple[str, objects.Key, float]],
) -> None:
    ledger, now = queue.Ledger(), 0.0
    in_hand: set[objects.Key] = set()
    owed: set[objects.Key] = set()

    def take() -> bool:
        key = ledger.take(now)
        if key is None:
            return False
        assert key not in in_hand
        in_hand.add(key)
        owed.discard(key)
        return True

    for verb, key, seconds in steps:
        if verb == "add":
            owed.add(key)
            ledger.add_at(key, now + seconds) if seconds else ledger.add(key)
        elif verb == "take":
            take()
        elif verb == "done" and key in in_hand:
            in_hand.discard(key)
            ledger.done(key)
        elif verb == "wait":
            now += seconds
    for key in list(in_hand):
        in_hand.discard(key)
        ledger.done(key)
    now += 10
    while take():
        pass
    assert owed == set()
