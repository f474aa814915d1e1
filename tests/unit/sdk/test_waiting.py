"""gather, wait, as_completed: order, failures, deadlines, cost."""

import asyncio
import itertools
import pickle
import threading
import time
from collections.abc import Iterable
from typing import Any

import pytest

from kilnwork.api import calls, task
from kilnwork.channel import messages
from kilnwork.kit import ids
from kilnwork.sdk import call_map, driver_session, errors, futures, serialization
from kilnwork.sdk import waiting as kiln
from support import scripted_dispatcher, waiting
from support.scripted_session import ended_result, failed_result, open_driver, submit

Dispatcher = scripted_dispatcher.ScriptedDispatcher
json = scripted_dispatcher.json
ERROR = serialization.pack_error(ValueError("no"))


def until(look: Any, what: str) -> None:
    waiting.wait_until(look, what=what, every_s=0.002)


def success(number: int, text: str = "1") -> calls.CallResult:
    return calls.CallResult(number, task.State.SUCCESS, "", "", json(text))


@pytest.fixture
def silent(dispatcher: Dispatcher) -> Dispatcher:
    """Says nothing of a call until the test does."""
    dispatcher.respond = lambda _: None
    return dispatcher


def three(silent: Dispatcher, session: driver_session.Driver) -> list[futures.CallFuture[Any]]:
    made = [submit(session) for _ in range(3)]
    session.link.flush()
    silent.wait_items(3)
    return made


def later(silent: Dispatcher, session: driver_session.Driver, *items: calls.CallResult) -> None:
    """Push results once a thread waits."""

    def push() -> None:
        until(lambda: session.link.turns.led, "a thread waits")
        silent.results(*items)

    threading.Thread(target=push).start()


# gather


def test_gather_is_a_future_of_all_results_in_order(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    first, second, third = three(silent, session)
    whole = kiln.gather(first, second, third)
    assert not whole.done()
    assert "gather of 3 pending" in repr(whole)
    later(silent, session, success(3, "3"), success(1, "1"), success(2, "2"))
    assert whole.result(30) == [1, 2, 3]
    assert whole.done()
    assert kiln.gather(first, kiln.gather(second, third)).result() == [1, [2, 3]]


def test_gather_of_no_or_done_futures_is_done(session: driver_session.Driver) -> None:
    assert kiln.gather().result() == []
    done = submit(session, "7")
    done.result(30)
    assert kiln.gather(done, done).result(0) == [7, 7]


def test_gather_fails_with_the_first_failure(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    whole = kiln.gather(*three(silent, session))
    later(silent, session, failed_result(2, ERROR))
    with pytest.raises(ValueError, match="no"):
        whole.result(30)
    assert whole.failed()
    assert not whole.cancelled()
    assert isinstance(whole.exception(), ValueError)


def test_gather_with_exceptions_in_the_list(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    whole = kiln.gather(*three(silent, session), return_exceptions=True)
    later(silent, session, failed_result(2, ERROR), success(1), ended_result(3, task.State.KILLED))
    one, two, three_ = whole.result(30)
    assert one == 1
    assert isinstance(two, ValueError)
    assert isinstance(three_, errors.Cancelled)


def test_a_gather_is_cancelled_and_has_no_id(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    items = three(silent, session)
    whole = kiln.gather(*items)
    with pytest.raises(AttributeError, match="not one task"):
        _ = whole.id
    assert whole.cancel()
    silent.wait_for(messages.Cancel, 3)
    later(silent, session, ended_result(1, task.State.KILLED))
    with pytest.raises(errors.Cancelled):
        whole.result(30)
    assert whole.cancelled()
    assert whole.cancel(), "two of them are not over"


def test_a_gather_travels_as_a_list_of_values_or_as_a_gather(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    items = three(silent, session)
    payload, needs = serialization.pack_arguments((kiln.gather(*items),), {}, session.blobs)
    assert needs == tuple(each.task for each in items)
    args, _ = serialization.unpack_arguments(payload, session.blobs, lambda t, _: needs.index(t))
    assert args == ([0, 1, 2],)
    again = pickle.loads(pickle.dumps(kiln.gather(*items)))  # noqa: S301  our own
    numbers = [each.number for each in silent.wait_for(messages.Watch).items]
    silent.results(*(success(number, str(number)) for number in numbers))
    assert again.result(30) == numbers


async def test_a_gather_can_be_awaited(silent: Dispatcher, session: driver_session.Driver) -> None:
    whole = kiln.gather(*three(silent, session))
    threading.Timer(0.01, silent.results, [success(n, str(n)) for n in (1, 2, 3)]).start()
    assert await whole == [1, 2, 3]


def test_a_gather_of_two_sessions(silent: Dispatcher, session: driver_session.Driver) -> None:
    with open_driver(silent) as other:
        here, there = submit(session), submit(other)
        whole = kiln.gather(here, there)
        silent.wait_items(2)
        later(silent, session, success(1))
        assert whole.result(30) == [1, 1]


# wait


def test_wait_for_all(silent: Dispatcher, session: driver_session.Driver) -> None:
    first, second, third = three(silent, session)
    later(silent, session, failed_result(2, ERROR), success(1), success(3))
    done, not_done = kiln.wait([first, second, third, first], timeout=10)
    assert (done, not_done) == ({first, second, third}, set())


def test_wait_until_the_time_is_up(silent: Dispatcher, session: driver_session.Driver) -> None:
    first, second, third = three(silent, session)
    silent.results(success(1))
    first.result(30)
    for _ in range(3):
        assert kiln.wait([first, second, third], timeout=0.005) == ({first}, {second, third})
    assert not second._hooks, "a waiter after its timeout is not notified"
    assert kiln.wait([], timeout=0) == (set(), set())


def test_wait_for_the_first(silent: Dispatcher, session: driver_session.Driver) -> None:
    first, second, third = three(silent, session)
    later(silent, session, success(2))
    found = kiln.wait([first, second, third], 10, return_when=kiln.FIRST_COMPLETED)
    assert found == ({second}, {first, third})
    assert kiln.wait({second, third}, return_when="FIRST_COMPLETED").done == {second}


def test_wait_for_the_first_exception(silent: Dispatcher, session: driver_session.Driver) -> None:
    first, second, third = three(silent, session)
    silent.results(success(1))
    first.result(30)
    later(silent, session, failed_result(3, ERROR))
    found = kiln.wait([first, second, third], 10, return_when=kiln.FIRST_EXCEPTION)
    assert found == ({first, third}, {second})
    silent.results(success(2))
    assert kiln.wait([first, second], 10, return_when="FIRST_EXCEPTION").not_done == set()


@pytest.mark.parametrize("turned", [False, True])
def test_wait_for_futures_of_two_sessions(
    silent: Dispatcher, session: driver_session.Driver, *, turned: bool
) -> None:
    with open_driver(silent) as other:
        items = [submit(session), submit(other)]
        leader = session
        if turned:
            items.reverse()
            leader = other
        silent.wait_items(2)
        later(silent, leader, success(1))
        assert kiln.wait(items, 10).not_done == set()


# as_completed


def test_as_completed_gives_each_when_it_ends(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    items = three(silent, session)
    silent.results(success(2))
    items[1].result(30)
    order = []
    for future in kiln.as_completed([*items, items[0]], timeout=10):
        order.append(items.index(future))  # type: ignore[arg-type]
        silent.results(success(3 if len(order) == 1 else 1))
    assert order == [1, 2, 0]


def test_as_completed_has_a_deadline(silent: Dispatcher, session: driver_session.Driver) -> None:
    items = three(silent, session)
    silent.results(success(1))
    items[0].result(30)
    seen: list[futures.Future[Any]] = []
    with pytest.raises(TimeoutError, match="2 futures"):
        seen.extend(kiln.as_completed(items, timeout=0.02))
    assert seen == [items[0]]
    assert not items[1]._hooks


def test_as_completed_can_be_left(silent: Dispatcher, session: driver_session.Driver) -> None:
    items = three(silent, session)
    silent.results(success(1))
    for _ in kiln.as_completed(items, timeout=10):
        break
    assert not items[1]._hooks
    assert list(kiln.as_completed([])) == []


async def test_as_completed_in_a_loop(silent: Dispatcher, session: driver_session.Driver) -> None:
    items = three(silent, session)
    order = []
    silent.results(success(2))
    async for future in kiln.as_completed(items, timeout=10):
        order.append(items.index(future))  # type: ignore[arg-type]
        silent.results(success(3 if len(order) == 1 else 1))
    assert order == [1, 2, 0]
    with pytest.raises(TimeoutError, match="1 futures"):
        async for _ in kiln.as_completed([submit(session)], timeout=0.02):
            pass


async def test_as_completed_leaves_the_loop_free(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    items = three(silent, session)
    ticks: list[int] = []

    async def tick() -> None:
        while len(ticks) < 3:
            ticks.append(1)
            await asyncio.sleep(0.001)
        silent.results(*(success(number) for number in (1, 2, 3)))

    async with asyncio.TaskGroup() as group:
        group.create_task(tick())
        async for _ in kiln.as_completed(items, timeout=10):
            assert len(ticks) == 3


def test_waiting_when_the_dispatcher_is_lost(silent: Dispatcher) -> None:
    with open_driver(silent, patience_s=0.05) as lasting:
        items = three(silent, lasting)
        silent.stop()
        done, _ = kiln.wait(items, timeout=10)
        assert done == set(items)
        for future in kiln.as_completed(items):
            assert isinstance(future.exception(), errors.DispatcherLost)
        with pytest.raises(errors.DispatcherLost):
            kiln.gather(*items).result()


def test_each_completion_costs_the_same_however_many_wait(session: driver_session.Driver) -> None:
    def cost(count: int) -> float:
        items = [submit(session) for _ in range(count)]
        started_s = time.thread_time()  # work of this thread: a busy machine changes nothing
        assert sum(1 for _ in kiln.as_completed(items, timeout=30)) == count
        return (time.thread_time() - started_s) / count

    cost(100)
    small = min(cost(500) for _ in range(5))
    assert cost(20_000) < 10 * small


# the slots' side of it: what `block` is passed


def test_slots_report_the_tasks_that_are_waited_for(
    silent: Dispatcher, session: driver_session.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls_seen: list[tuple[tuple[ids.TaskId, ...], bool]] = []
    block = session.block

    def tell(done: Any, timeout_s: float | None, tasks: Any, *, first: bool = False) -> bool:
        calls_seen.append((tuple(tasks), first))
        return block(done, timeout_s, tasks)

    monkeypatch.setattr(session, "in_slot", True, raising=False)
    monkeypatch.setattr(
        session, "suspended", lambda tasks: calls_seen.append((tuple(tasks), False))
    )
    monkeypatch.setattr(session, "block", tell)
    items = three(silent, session)
    names = tuple(each.task for each in items)
    whole = kiln.gather(*items)
    for wait in (
        lambda: items[0].result(0.001),
        lambda: whole.result(0.001),
        lambda: list(kiln.as_completed(items, timeout=0.001)),
        lambda: asyncio.run(asyncio.wait_for(_awaited(whole), 0.01)),
    ):
        with pytest.raises(TimeoutError):
            wait()
    kiln.wait(items, 0.001)
    kiln.wait(items, 0.001, return_when=kiln.FIRST_COMPLETED)
    kiln.wait(items, 0.001, return_when=kiln.FIRST_EXCEPTION)
    kiln.wait([whole, items[0]], 0.001, return_when=kiln.FIRST_COMPLETED)
    assert calls_seen == [
        (names[:1], False),
        (names, False),
        (names, True),
        (names, False),
        (names, False),
        (names, True),
        (names, False),  # one is enough only if it fails
        ((*names, names[0]), False),  # a gather needs more than one
    ]


async def _awaited(future: futures.Future[Any]) -> Any:
    return await future


# maps that grow


def grown(
    session: driver_session.Driver,
    rows: Iterable[int],
    *,
    in_background: bool = True,
    **limits: Any,
) -> futures.Futures[Any]:
    """A map with limits whose calls return their row."""
    limits = {"max_in_flight": None, "max_failed": None} | limits
    return call_map.run(
        (((row,), {}) for row in rows),
        lambda row: submit(session, str(row[0][0])),
        call_map.Limits(of="tests:nothing", **limits),
        in_background=in_background,
    )


@pytest.mark.parametrize("in_background", [True, False])
def test_as_completed_of_a_map_without_end(
    session: driver_session.Driver, *, in_background: bool
) -> None:
    many = grown(session, itertools.count(), in_background=in_background, max_in_flight=3)
    seen = [each.result() for each in itertools.islice(kiln.as_completed(many, timeout=30), 200)]
    assert len(set(seen)) == 200
    assert max(seen) < 210


@pytest.mark.parametrize("in_background", [True, False])
def test_as_completed_of_a_map_with_limits(
    session: driver_session.Driver, *, in_background: bool
) -> None:
    many = grown(session, range(100), in_background=in_background, max_in_flight=7)
    assert sorted(each.result() for each in kiln.as_completed(many, 30)) == list(range(100))
    assert sorted(each.result() for each in kiln.as_completed(many, 30)) == list(range(100))


async def test_as_completed_of_a_map_with_limits_in_a_loop(session: driver_session.Driver) -> None:
    many = grown(session, range(100), max_in_flight=7)
    seen = [each.result() async for each in kiln.as_completed(many, 30)]
    assert sorted(seen) == list(range(100))


async def test_a_wake_up_that_comes_late_ends_no_wait(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    """The link's thread may fill in a future that is taken at once, and only then wake the loop."""
    completed = kiln.as_completed(three(silent, session), timeout=30)
    loop = asyncio.get_running_loop()
    loop.call_later(0.05, completed._arrivals._tell)
    loop.call_later(0.1, silent.results, success(2, "2"))
    first = await anext(aiter(completed))
    assert first.result() == 2


def test_slow_call_does_not_hold_up_other_results(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    dispatcher.respond = lambda item: (
        None if item.number == 1 else scripted_dispatcher.succeeded(item)
    )
    many = grown(session, range(50), max_in_flight=2)
    completed = iter(kiln.as_completed(many, timeout=30))
    assert [next(completed).result() for _ in range(49)] == list(range(1, 50))
    dispatcher.results(success(1, "0"))
    assert [each.result() for each in completed] == [0]


def test_a_map_that_was_stopped_says_so_at_the_end(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    dispatcher.respond = lambda item: failed_result(item.number, ERROR)
    many = grown(session, itertools.count(), max_in_flight=2, max_failed=5)
    seen: list[futures.Future[Any]] = []
    with pytest.raises(errors.TooManyFailed):
        seen.extend(kiln.as_completed(many, timeout=30))
    assert len(seen) >= 6
