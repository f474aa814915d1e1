"""What a session's threads share: those that submit and cancel, and the one that reads."""

import sys
import threading
from collections.abc import Iterator

import pytest

from kilnwork.channel import errors as channel_errors
from kilnwork.channel import messages
from kilnwork.kit import ids
from kilnwork.sdk import driver_session, errors, futures
from support import scripted_dispatcher, waiting
from support.scripted_session import submit

Dispatcher = scripted_dispatcher.ScriptedDispatcher


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_keyed_calls_are_submitted_while_earlier_are_accepted(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    dispatcher.accepts = False
    problems: list[BaseException] = []
    over = threading.Event()

    def accept() -> None:
        try:
            while not over.is_set():
                session.received(messages.Accepted(0))
        except BaseException as error:  # noqa: BLE001  raised in the test's own thread
            problems.append(error)

    reader = threading.Thread(target=accept)
    reader.start()
    made = [submit(session, str(n), key=f"key-{n}") for n in range(10_000)]
    over.set()
    reader.join(60)
    assert problems == []
    assert [each.result(60) for each in made] == list(range(10_000))
    assert len(session._unconfirmed) == 10_000
    session.received(messages.Accepted(10_000))
    assert not session._unconfirmed


@pytest.mark.usefixtures("hasty_threads")
def test_threads_submit_and_cancel_while_results_arrive(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    problems: list[BaseException] = []

    def work(mine: int) -> None:
        try:
            for n in range(150):
                made = [submit(session, "1", key=f"{mine}-{n}-{each}") for each in range(20)]
                session.cancel([ids.new_task_id() for _ in range(20)])
                session.cancel([each.known_task for each in made])
                assert [each.result(60) for each in made] == [1] * 20
        except BaseException as error:  # noqa: BLE001  raised in the test's own thread
            problems.append(error)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert session.link.failure is None
    assert dispatcher.greetings == 1, "the connection was never dropped"


class Ending(driver_session.Driver):
    """The link ends while a call is being submitted, after `submit` has looked at it."""

    def parent(self, function: str, *, keyed: bool) -> tuple[None, int]:
        self.link.end(channel_errors.LinkClosed("cut"))
        return None, 0


def test_a_call_submitted_while_the_link_ends_fails_at_once(dispatcher: Dispatcher) -> None:
    lasting = Ending(connect=dispatcher.connect, credential=lambda: "token")
    lasting.open(timeout_s=10)
    future = submit(lasting)
    assert future.done()
    with pytest.raises(errors.DispatcherLost, match="cut"):
        future.result()
    with pytest.warns(RuntimeWarning, match=r"lost \(cut\) and that may never run: 1"):
        lasting.close()


def test_failing_callback_does_not_keep_other_futures_open(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    dispatcher.respond = lambda _: None
    made = [submit(session) for _ in range(3)]
    dispatcher.wait_items(3)

    def fail(_: futures.Future[object]) -> None:
        raise ZeroDivisionError

    waiting.wait_until(session.all_accepted, what="the calls are accepted")
    made[0].when_done(fail)
    session.link.end(channel_errors.LinkClosed("cut"))
    assert all(each.done() for each in made)
    with pytest.raises(errors.DispatcherLost, match="cut"):
        made[2].result(30)


def test_error_in_the_link_thread_is_the_cause_in_every_future(
    dispatcher: Dispatcher, session: driver_session.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatcher.accepts, dispatcher.respond = False, lambda _: None
    made = [submit(session) for _ in range(3)]
    dispatcher.wait_items(3)

    def fail(number: int) -> None:
        raise ZeroDivisionError(f"no {number}")

    monkeypatch.setattr(session, "_accepted", fail)
    dispatcher.send(messages.Accepted(1))
    waiting.wait_until(made[2].done, what="the link's end")
    for each in made:
        with pytest.raises(errors.DispatcherLost, match="no 1") as caught:
            each.result(30)
        link_closed = caught.value.__cause__
        assert link_closed is not None
        assert isinstance(link_closed.__cause__, ZeroDivisionError)
    with pytest.warns(RuntimeWarning, match="may never run: 3"):
        session.close()
