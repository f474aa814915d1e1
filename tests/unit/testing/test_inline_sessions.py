"""Inline sessions keep the rules of the real ones, in no time."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import kilnwork as kiln
from kilnwork.testing import InlineSession

pytest_plugins = ["kilnwork.testing.plugin"]


@kiln.task
def add(*numbers: int) -> int:
    return sum(numbers)


@kiln.task
def fails() -> int:
    raise ZeroDivisionError("by zero")


@pytest.fixture
def session(kiln_inline: InlineSession) -> InlineSession:
    return kiln_inline


def states(session: InlineSession) -> list[tuple[str, str]]:
    return [(each.function.rpartition(":")[2], str(each.state)) for each in session.tasks]


def test_no_task_runs_before_a_future_is_waited_for(session: InlineSession) -> None:
    ran: list[int] = []
    note = kiln.task(ran.append)
    first, second = note.submit(1), note.submit(2)
    assert (ran, first.done()) == ([], False)
    second.result()
    assert ran == [1, 2]
    assert first.done()
    note.submit(3)
    session.run()
    assert ran == [1, 2, 3]


def test_the_function_itself_runs_but_its_arguments_are_copies(session: InlineSession) -> None:
    seen: list[Any] = []

    @kiln.task
    def change(items: list[int]) -> list[int]:
        items.append(9)
        seen.append(items)
        return items

    mine = [1]
    result = change.submit(mine).result()
    assert (mine, result, seen) == ([1], [1, 9], [[1, 9]])
    assert result is not seen[0]


def test_unpicklable_argument_raises(session: InlineSession) -> None:
    with pytest.raises(kiln.NotPicklable, match=r"arguments\[0\]: TypeError"):
        add.submit(threading.Lock())
    with pytest.raises(kiln.NotPicklable, match=r"result\[0\]: TypeError"):
        kiln.task(locks).submit().result()


def locks() -> Any:
    return [threading.Lock()]


def test_priorities_then_order(session: InlineSession) -> None:
    ran: list[str] = []
    note = kiln.task(ran.append)
    note.submit("a")
    note.options(priority=5).submit("b")
    note.options(priority=-5).submit("c")
    last = note.submit("d")
    last.result()
    session.run()
    assert ran == ["b", "a", "d", "c"]


def test_retries_wait_their_delays_in_no_time(session: InlineSession) -> None:
    at: list[float] = []

    @kiln.task(retries=3, retry_delay=10, retry_factor=3, retry_max_delay=50, retry_on=OSError)
    def flaky(times: int) -> int:
        at.append(session.clock.monotonic())
        if kiln.context().attempt <= times:
            raise ConnectionError("again")
        return kiln.context().attempt

    began = time.perf_counter()
    assert flaky.submit(3).result() == 4
    assert at == [0, 10, 40, 90]
    assert time.perf_counter() - began < 30  # not 90
    with pytest.raises(ConnectionError):
        flaky.submit(4).result()


def test_only_what_retry_on_names_is_retried(session: InlineSession) -> None:
    @kiln.task(retries=3, retry_on=(OSError,))
    def wrong() -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once") as caught:
        wrong.submit().result()
    assert isinstance(caught.value.__cause__, kiln.RemoteTraceback)
    assert session.tasks[0].attempts == 1


def test_sleeping_takes_no_time_and_timeouts_are_kept(session: InlineSession) -> None:
    @kiln.task(timeout=5, retries=1, retry_delay=0)
    def sleeps(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    assert sleeps.submit(4).result() == 4
    assert session.clock.monotonic() == 4
    with pytest.raises(kiln.TaskTimedOut, match="it ran longer than timeout=5"):
        sleeps.submit(3600).result()
    assert session.tasks[1].attempts == 2
    assert session.clock.monotonic() == 14


def test_async_tasks_sleep_in_no_time_too(session: InlineSession) -> None:
    @kiln.task(timeout=100)
    async def sleeps(seconds: float) -> float:
        await asyncio.gather(asyncio.sleep(seconds), asyncio.sleep(seconds))
        return seconds

    @kiln.task
    async def ticks(n: int) -> AsyncIterator[int]:
        for number in range(n):
            await asyncio.sleep(60)
            yield number

    assert sleeps.submit(50).result() == 50
    assert list(ticks.submit(3)) == [0, 1, 2]
    assert session.clock.monotonic() == pytest.approx(230)
    with pytest.raises(kiln.TaskTimedOut):
        sleeps.submit(101).result()


def test_threads_of_a_task_are_waited_for_in_real_time(session: InlineSession) -> None:
    @kiln.task
    async def works() -> str:
        return await asyncio.wait_for(asyncio.to_thread(lambda: "done"), timeout=30)

    assert works.submit().result() == "done"


def test_total_and_pending_timeouts(session: InlineSession) -> None:
    @kiln.task(total_timeout=25, retries=9, retry_delay=10, retry_factor=1)
    def never() -> None:
        raise OSError("again")

    @kiln.task(pending_timeout=5)
    def late(value: int) -> int:
        return value

    @kiln.task
    def slow() -> int:
        time.sleep(60)
        return 1

    with pytest.raises(kiln.TaskTimedOut):
        never.submit().result()
    assert session.tasks[0].attempts == 3
    with pytest.raises(kiln.TaskTimedOut):
        late.submit(slow.submit()).result()


def test_result_may_time_out_while_the_task_goes_on(session: InlineSession) -> None:
    @kiln.task(retries=1, retry_delay=60)
    def second() -> int:
        if kiln.context().attempt == 1:
            raise OSError("once")
        return 2

    future = second.submit()
    with pytest.raises(TimeoutError):
        future.result(timeout=30)
    assert session.clock.monotonic() == 30
    assert future.result() == 2


def test_a_failed_input_fails_what_needs_it_with_the_cause(session: InlineSession) -> None:
    error = add.submit(1, add.submit(fails.submit(), 1)).exception()
    assert isinstance(error, kiln.InputFailed)
    assert isinstance(error.__cause__, ZeroDivisionError)

    @kiln.task(accept_failures=True)
    def judge(value: Any) -> str:
        return type(value).__name__

    assert judge.submit(fails.submit()).result() == "ZeroDivisionError"


def test_returning_a_future_delegates(session: InlineSession) -> None:
    @kiln.task
    def later(n: int) -> Any:
        return add.submit(n, 1) if n < 5 else fails.submit()

    @kiln.task
    def several() -> Any:
        return kiln.gather(add.submit(1), add.submit(2))

    assert later.submit(3).result() == 4
    with pytest.raises(ZeroDivisionError):
        later.submit(5).result()
    assert several.submit().result() == [1, 2]


def test_a_thousand_levels_of_waiting(session: InlineSession) -> None:
    @kiln.task
    def depth(left: int) -> int:
        return depth.submit(left - 1).result() + 1 if left else 0

    assert depth.submit(1000).result() == 1000


def test_long_chains_of_delegations_and_of_inputs(session: InlineSession) -> None:
    @kiln.task
    def pass_on(left: int) -> Any:
        return pass_on.submit(left - 1) if left else fails.submit()

    one = add.submit(pass_on.submit(1000))
    for _ in range(1000):
        one = add.submit(one)
    assert isinstance(one.exception(), kiln.InputFailed)


def test_a_repeated_parent_finds_its_children(session: InlineSession) -> None:
    runs: list[int] = []

    @kiln.task
    def child(n: int) -> int:
        runs.append(n)
        return n

    @kiln.task(retries=100)
    def hopeless() -> None:
        raise OSError("always")

    @kiln.task(retries=1)
    def parent() -> int:
        first = child.submit(1).result()
        second = child.options(key="second").submit(2).result()
        third = child.submit(kiln.context().attempt * 10).result()
        if kiln.context().attempt == 1:
            hopeless.submit()
            raise OSError("once")
        return first + second + third

    assert parent.submit().result() == 23
    assert runs == [1, 2, 10, 20], "the third differs, so it is another one"
    (dropped,) = (each for each in session.tasks if "hopeless" in each.function)
    assert (str(dropped.state), dropped.reason) == ("Killed", "Replaced"), (
        "it was not submitted again"
    )


def test_cancel_ends_what_it_has_spawned(session: InlineSession) -> None:
    @kiln.task
    def parent() -> None:
        add.submit(1)
        add.submit(2)
        grandparent.cancel()
        time.sleep(1)
        raise AssertionError("it went on")

    grandparent = parent.submit()
    pending = add.submit(3)
    assert pending.cancel()
    add.submit(4)
    with pytest.raises(kiln.Cancelled):
        grandparent.result()
    assert grandparent.cancelled()
    assert states(session) == [
        (parent.__qualname__, "Killed"),
        ("add", "Killed"),
        ("add", "Pending"),
        ("add", "Killed"),
        ("add", "Killed"),
    ]
    assert not grandparent.cancel()


def test_a_cancelled_task_may_clean_up(session: InlineSession) -> None:
    cleaned: list[bool] = []

    @kiln.task
    def tidy() -> None:
        itself.cancel()
        try:
            time.sleep(10)
        finally:
            cleaned.append(kiln.context().cancelled)

    itself = tidy.submit()
    with pytest.raises(kiln.Cancelled):
        itself.result()
    assert cleaned == [True]


def test_task_that_waits_for_itself_raises(session: InlineSession) -> None:
    @kiln.task
    def waits_for_itself() -> int:
        return itself.result()

    itself = waits_for_itself.submit()
    with pytest.raises(RuntimeError, match="this would wait for ever"):
        itself.result()


def test_waiting_for_many(session: InlineSession) -> None:
    futures = [add.submit(n) for n in range(5)]
    done, not_done = kiln.wait(futures, return_when=kiln.FIRST_COMPLETED)
    assert (len(done), len(not_done)) == (1, 4)
    assert sorted(future.result() for future in kiln.as_completed(futures)) == [0, 1, 2, 3, 4]
    called: list[int] = []
    future = add.submit(7)
    future.add_done_callback(lambda done: called.append(done.result()))
    future.result()
    assert called == [7]


async def test_awaiting_in_a_running_loop(session: InlineSession) -> None:
    @kiln.task
    async def sleeps(n: int) -> int:
        await asyncio.sleep(n)
        return n

    @kiln.task
    async def parent() -> int:
        return sum(await asyncio.gather(sleeps.submit(1), sleeps.submit(2)))

    assert await add.submit(1, 2) == 3
    assert await asyncio.wait_for(parent.submit(), 30) == 3
    got = [future.result() async for future in kiln.as_completed([add.submit(1), add.submit(2)])]
    assert got == [1, 2]


def test_progress_and_names_can_be_looked_at(session: InlineSession) -> None:
    @kiln.task(name="slow one")
    def slow() -> str:
        kiln.context().progress(0.5, "half")
        return kiln.context().name

    assert slow.submit().result() == "slow one"
    (record,) = session.tasks
    assert (record.name, record.progress, record.attempts) == ("slow one", (0.5, "half"), 1)


def test_after_the_block_nothing_runs_and_time_is_real() -> None:
    with kiln.testing.inline():
        left = add.submit(1)
        before = time.sleep
    assert isinstance(left.exception(), kiln.NoSession)
    assert time.sleep is not before
    with pytest.raises(kiln.NoSession):
        add.submit(1)


def test_outside_of_tasks_time_is_real(session: InlineSession) -> None:
    began = time.perf_counter()
    time.sleep(0.01)
    assert time.perf_counter() - began >= 0.01
    assert session.clock.monotonic() == 0


def test_values_before_the_failure_of_a_generator_arrive(session: InlineSession) -> None:
    @kiln.task(retries=1, retry_delay=5)
    def shaky() -> Iterator[int]:
        yield 1
        yield 2
        if kiln.context().attempt == 1:
            raise OSError("once")
        yield 3

    assert list(shaky.submit()) == [1, 2, 3]
    assert session.clock.monotonic() == 5


@kiln.task(env={"KIND": "task"}, cache="1h")
def kind() -> str | None:
    return os.environ.get("KIND")


def test_variables_are_there_while_a_call_runs_and_every_call_runs() -> None:
    with kiln.testing.inline() as session:
        assert [kind.submit().result() for _ in range(2)] == ["task", "task"]
        assert os.environ.get("KIND") is None
        assert [each.reason for each in session.tasks] == ["Succeeded", "Succeeded"]
        secret = kind.options(env={"KIND": kiln.SecretKey("db", "kind")})
        with pytest.raises(kiln.BadOption, match="no Secrets"):
            secret.submit()
