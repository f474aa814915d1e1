"""Futures: what they say, raise, unpack and call, and how they travel."""

import asyncio
import gc
import logging
import pickle
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from kilnwork.api import attempts, calls, task
from kilnwork.channel import messages
from kilnwork.kit import ids
from kilnwork.sdk import driver_session, errors, futures, serialization
from support import scripted_dispatcher, sigint_injection, waiting
from support.scripted_session import ended_result, failed_result, open_driver, submit

Dispatcher = scripted_dispatcher.ScriptedDispatcher
json = scripted_dispatcher.json


def until(look: Any, what: str) -> None:
    waiting.wait_until(look, what=what, every_s=0.002)


def success(number: int, text: str = "1") -> calls.CallResult:
    return calls.CallResult(number, task.State.SUCCESS, "", "", json(text))


@pytest.fixture
def silent(dispatcher: Dispatcher) -> Dispatcher:
    """Says nothing of a call until the test does."""
    dispatcher.respond = lambda _: None
    return dispatcher


# outcomes


def test_before_and_after_the_result(silent: Dispatcher, session: driver_session.Driver) -> None:
    future = submit(session)
    assert not future.done()
    assert not future.cancelled()
    assert not future.failed()
    assert "pending" in repr(future)
    assert future.id in repr(future)
    silent.wait_items(1)
    silent.results(success(1, "[1, 2]"))
    assert future.result(30) == [1, 2]
    assert future.result() is future.result()
    assert future.exception() is None
    assert future.done()
    assert "done" in repr(future)


def test_a_result_without_a_value_is_none(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    future = submit(session)
    silent.wait_items(1)
    silent.results(ended_result(1, task.State.SUCCESS))
    assert future.result(30) is None


def test_result_raises_the_error_of_the_task(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    future = submit(session)
    silent.wait_items(1)
    silent.results(failed_result(1, serialization.pack_error(ValueError("no such shard"))))
    with pytest.raises(ValueError, match="no such shard") as raised:
        future.result(30)
    assert future.exception() is raised.value
    assert future.failed()
    assert not future.cancelled()
    assert "failed" in repr(future)


@pytest.mark.parametrize(
    ("state", "reason", "kind"),
    [
        (task.State.FAILED, "TimedOut", errors.TaskTimedOut),
        (task.State.FAILED, "LostTooOften", errors.TaskLost),
        (task.State.FAILED, "SlotDied", errors.TaskFailed),
        (task.State.KILLED, "Killed", errors.Cancelled),
    ],
)
def test_reason_without_an_exception_selects_the_error_class(
    silent: Dispatcher,
    session: driver_session.Driver,
    state: task.State,
    reason: str,
    kind: type[errors.TaskError],
) -> None:
    future = submit(session)
    silent.wait_items(1)
    silent.results(ended_result(1, state, reason, "so it was"))
    with pytest.raises(kind, match="so it was"):
        future.result(30)
    assert future.cancelled() is (state is task.State.KILLED)
    assert isinstance(future.exception(), kind)
    assert future.cancelled() is (state is task.State.KILLED)


def test_a_result_that_takes_too_long(silent: Dispatcher, session: driver_session.Driver) -> None:
    future = submit(session)
    with pytest.raises(TimeoutError, match=future.id):
        future.result(0.01)
    with pytest.raises(TimeoutError):
        future.exception(timeout=0)
    silent.results(success(1))
    assert future.result(30) == 1


def test_large_result_is_read_on_demand(silent: Dispatcher, session: driver_session.Driver) -> None:
    value = "x" * 200_000
    payload = serialization.pack_value(value, session.blobs)
    assert payload.digest is not None
    lost = submit(session)
    future = submit(session)
    silent.wait_items(2)
    missing = attempts.Payload(attempts.JSON, b"", b"\0" * 32, 1)
    silent.results(
        calls.CallResult(1, task.State.SUCCESS, "", "", missing),
        calls.CallResult(2, task.State.SUCCESS, "", "", payload),
    )
    assert future.result(30) == value
    for _ in range(2):
        with pytest.raises(errors.KilnError, match="blob"):
            lost.result(30)
    assert lost.exception() is None, "the task did not fail"


def test_an_exception_does_not_keep_its_future_alive(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    future = submit(session)
    silent.wait_items(1)
    silent.results(failed_result(1, serialization.pack_error(ValueError("no"))))
    with pytest.raises(ValueError, match="no"):
        future.result(30)
    kept = weakref.ref(future)
    gc.disable()
    try:
        del future
        assert kept() is None
    finally:
        gc.enable()


def test_futures_are_small(silent: Dispatcher, session: driver_session.Driver) -> None:
    future = submit(session)
    assert not hasattr(future, "__dict__")
    assert sys.getsizeof(future) <= 96


# callbacks


def test_callbacks_run_once_in_order_in_a_thread_of_their_own(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    future = submit(session)
    silent.wait_items(1)
    called: list[tuple[int, str, Any]] = []
    for number in range(3):
        future.add_done_callback(
            lambda f, n=number: called.append((n, threading.current_thread().name, f.result()))  # type: ignore[misc]
        )
    silent.results(success(1))
    assert future.result(30) == 1
    until(lambda: len(called) == 3, "all are called")
    silent.results(success(1))
    assert submit(session).done() is False
    assert called == [(number, "kiln callbacks", 1) for number in range(3)]


def test_callback_of_a_done_future_is_called_at_once(session: driver_session.Driver) -> None:
    future = submit(session)
    future.result(30)
    called: list[threading.Thread] = []
    future.add_done_callback(lambda _: called.append(threading.current_thread()))
    assert called == [threading.current_thread()]


def test_callbacks_are_called_although_no_thread_waits(session: driver_session.Driver) -> None:
    called = threading.Event()
    submit(session).add_done_callback(lambda _: called.set())
    assert called.wait(10)


def test_error_of_a_callback_is_logged_and_the_next_is_called(
    silent: Dispatcher, session: driver_session.Driver, caplog: pytest.LogCaptureFixture
) -> None:
    future = submit(session)
    called = threading.Event()

    def fail(_: Any) -> None:
        raise KeyError("in a callback")

    future.add_done_callback(fail)
    future.add_done_callback(lambda _: called.set())
    silent.wait_items(1)
    with caplog.at_level(logging.ERROR):
        silent.results(success(1))
        assert called.wait(10)
        future.add_done_callback(fail)
    assert [record.message for record in caplog.records] == ["a callback of a future failed"] * 2
    assert "in a callback" in caplog.text


def test_a_callback_may_wait_for_another_future(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    first, second = submit(session), submit(session)
    got: list[int] = []
    first.add_done_callback(lambda _: got.append(second.result(30)))
    silent.wait_items(2)
    silent.results(success(1))
    assert first.result(30) == 1
    silent.results(success(2, "2"))
    until(lambda: got == [2], "the callback goes on")


def test_callbacks_and_results_race_without_loss(session: driver_session.Driver) -> None:
    called: list[int] = []
    for _ in range(30):
        many = [submit(session, str(number)) for number in range(100)]
        session.link.flush()
        for each in many:
            each.when_done(lambda future: called.append(future.result()))
        for each in many:
            each.result(30)
    until(lambda: len(called) == 3000, "each is called")
    assert sorted(called) == sorted(list(range(100)) * 30)


# asyncio


async def test_a_future_can_be_awaited(session: driver_session.Driver) -> None:
    before = threading.active_count()
    assert await submit(session, "5") == 5
    done = submit(session, "6")
    assert await done == 6
    assert await done == 6
    many = [submit(session, str(number)) for number in range(500)]
    assert await asyncio.gather(*many) == list(range(500))
    assert threading.active_count() == before


async def test_awaiting_raises_the_error_of_the_task(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    future = submit(session)
    silent.wait_items(1)
    silent.results(failed_result(1, serialization.pack_error(ValueError("no"))))
    with pytest.raises(ValueError, match="no"):
        await future


async def test_cancelling_a_waiting_coroutine_does_not_cancel_the_task(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    future = submit(session)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await future
    assert not future._hooks
    silent.wait_items(1)
    silent.results(success(1))
    assert await future == 1
    assert silent.all_of(messages.Cancel) == []


def test_several_event_loops_can_await_the_same_future(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    future = submit(session)
    got: list[int] = []

    async def use() -> None:
        got.append(await future)

    threads = [threading.Thread(target=lambda: asyncio.run(use())) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: future._hooks is not None and len(future._hooks) == 3, "all await")
    silent.results(success(1))
    for thread in threads:
        thread.join(timeout=30)
    assert got == [1, 1, 1]


def test_closed_event_loop_does_not_disturb_other_waiters(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    future = submit(session)

    async def await_with_timeout() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_awaited(future), 0.01)

    asyncio.run(await_with_timeout())
    silent.wait_items(1)
    silent.results(success(1))
    assert future.result(30) == 1


async def _awaited(future: futures.Future[Any]) -> Any:
    return await future


def test_future_is_done_when_its_waiters_wake(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    future, seen = submit(session), list[int]()
    future.when_done(lambda *_: seen.append(session.unfinished))
    assert session.unfinished == 1
    silent.wait_items(1)
    silent.results(success(1))
    assert future.result(30) == 1
    assert seen == [0]


# interruptions


def test_ctrl_c_in_result_leaves_everything_usable(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    first, second = submit(session), submit(session)
    sigint_injection.interrupt_inside(futures.Future.result)
    with pytest.raises(KeyboardInterrupt):
        first.result()

    def respond(item: calls.CallItem | calls.Watched) -> calls.CallResult:
        return success(item.number, str(item.number))

    # If it hit while something was read, that link is closed, and the next one asks.
    silent.respond, silent.watch = respond, respond
    silent.results(success(1, "1"), success(2, "2"))
    assert (first.result(30), second.result(30)) == (1, 2)


# a signal may also hit a finalizer, where Python swallows what its handler raises
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_storm_of_ctrl_c_loses_no_result(dispatcher: Dispatcher) -> None:
    """Signals hit anywhere: in submits, writes, reads, settling. What is open comes in the end."""
    done: dict[ids.TaskId, attempts.Payload] = {}

    def respond(item: calls.CallItem) -> calls.CallResult:
        done[item.task] = item.arguments
        return scripted_dispatcher.succeeded(item)

    def watch(item: calls.Watched) -> calls.CallResult:
        if item.task not in done:
            return ended_result(item.number, task.State.PENDING)
        return calls.CallResult(item.number, task.State.SUCCESS, "", "", done[item.task])

    dispatcher.respond, dispatcher.watch = respond, watch
    interrupts = Interrupts()
    with open_driver(dispatcher) as stormy:
        for _ in range(100):
            made: list[tuple[int, futures.Future[Any]]] = []
            try:
                interrupts.arm()
                made.extend((number, submit(stormy, str(number))) for number in range(200))
                for _, each in made:
                    each.result(30)
                interrupts.armed = False
            except KeyboardInterrupt:
                interrupts.count += 1
            for number, each in made:
                assert each.result(30) == number
        signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, interrupts.before)
    assert interrupts.count > 20


class Interrupts:
    """One KeyboardInterrupt at some moment of the next two milliseconds, while `armed`."""

    def __init__(self) -> None:
        self.count = 0
        self.armed = False
        self.before = signal.signal(signal.SIGALRM, self._raise)
        self._entropy = ids.Entropy(4)

    def arm(self) -> None:
        self.armed = True
        signal.setitimer(signal.ITIMER_REAL, self._entropy.uniform(0.0001, 0.002))

    def _raise(self, *_: object) -> None:
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt


# several returns


def test_the_items_of_a_tuple_are_futures(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    whole = submit(session)
    first, second = whole.parts(2)
    assert not first.done()
    assert first.id == whole.id
    silent.wait_items(1)
    silent.results(success(1, '["a", "b"]'))
    assert (first.result(30), second.result(30)) == ("a", "b")
    assert whole.part(1).result() == "b"
    assert "[1]" in repr(second)


def test_a_failure_is_that_of_each_item(silent: Dispatcher, session: driver_session.Driver) -> None:
    first, second = submit(session).parts(2)
    silent.wait_items(1)
    silent.results(failed_result(1, serialization.pack_error(ValueError("no"))))
    with pytest.raises(ValueError, match="no"):
        first.result(30)
    assert second.failed()
    assert isinstance(second.exception(), ValueError)


def test_cancelling_an_item_cancels_the_task(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    part = submit(session).part(0)
    assert part.cancel()
    silent.wait_for(messages.Cancel)
    silent.results(ended_result(1, task.State.KILLED))
    with pytest.raises(errors.Cancelled):
        part.result(30)
    assert part.cancelled()


# travelling


def test_a_pickled_future_is_found_again_by_the_current_session(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    future = submit(session)
    again, part = pickle.loads(pickle.dumps((future, future.part(1))))  # noqa: S301  our own
    watched = silent.wait_for(messages.Watch).items
    assert [each.task for each in watched] == [future.task, future.task]
    for number in (each.number for each in watched):
        silent.results(success(number, "[3, 4]"))
    assert again.result(30) == [3, 4]
    assert part.result(30) == 4


def test_futures_in_arguments_are_needed_and_become_values(
    silent: Dispatcher, session: driver_session.Driver
) -> None:
    one, two = submit(session), submit(session)
    many = futures.Futures([one, two])
    payload, needs = serialization.pack_arguments(
        ({"a": [one, two.part(1)]}, many), {}, session.blobs
    )
    assert needs == (one.task, two.task)
    values: dict[tuple[ids.TaskId, int | None], str] = {
        (one.task, None): "one",
        (two.task, None): "two",
        (two.task, 1): "two[1]",
    }
    resolve: Callable[[ids.TaskId, int | None], str] = lambda t, i: values[t, i]  # noqa: E731
    args, _ = serialization.unpack_arguments(payload, session.blobs, resolve)
    assert args == ({"a": ["one", "two[1]"]}, ["one", "two"])


def test_a_sequence_of_futures(silent: Dispatcher, session: driver_session.Driver) -> None:
    many = futures.Futures(submit(session, str(number)) for number in range(4))
    assert len(many) == 4
    assert many[1] is list(many)[1]
    assert isinstance(many[1:3], futures.Futures)
    assert len(many[1:3]) == 2
    assert repr(many) == "<Futures: 0 of 4 done>"


def test_sequences_of_futures_add_up(silent: Dispatcher, session: driver_session.Driver) -> None:
    one, two, three = (submit(session, str(number)) for number in range(3))
    first, second = futures.Futures([one, two]), futures.Futures([three])
    for both in (first + second, first + [three]):  # noqa: RUF005 - that is tested
        assert isinstance(both, futures.Futures)
        assert list(both) == [one, two, three]
    listed: list[futures.Future[Any]] = [one, two]
    listed += second
    assert type(listed) is list
    assert list(sum([first, second], futures.Futures(()))) == [one, two, three]
    assert len(first) == 2, "they stay"
    for other in (3, "ab", [3], None):
        with pytest.raises(TypeError, match="unsupported operand"):
            first + other  # type: ignore[operator]


# speed, as work of this thread, so that a busy machine changes nothing


def test_ids_and_submits_are_cheap(dispatcher: Dispatcher, session: driver_session.Driver) -> None:
    started_s = time.thread_time()
    many = [submit(session, str(number)) for number in range(5000)]
    submitted_s = time.thread_time()
    assert [each.result(30) for each in many] == list(range(5000))
    assert submitted_s - started_s < 1  # a tenth of it on the slowest machine seen
    assert time.thread_time() - submitted_s < 4
