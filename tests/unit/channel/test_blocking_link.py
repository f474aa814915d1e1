"""The blocking end of a link, against a scripted dispatcher on a real socket."""

import contextlib
import os
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import calls, task
from kilnwork.channel import blocking_link, errors, frames, messages
from kilnwork.kit import clock, ids
from kilnwork.kit import errors as kit_errors
from support import scripted_dispatcher, short_paths, sigint_injection, waiting

Dispatcher = scripted_dispatcher.ScriptedDispatcher
PAYLOAD = scripted_dispatcher.json("1")


@dataclass
class Owner:
    """Writes down what it receives, and in which thread."""

    tick_s: float | None = None
    epochs: list[int] = field(default_factory=list)
    attachments: int = 0
    again: list[frames.Sent] = field(default_factory=list)
    heard: list[Any] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    kept_back: list[frames.Sent] = field(default_factory=list)
    ticks: int = 0
    ends: list[Exception] = field(default_factory=list)
    interrupt: BaseException | None = None
    send: Callable[[frames.Sent], None] = lambda _: None

    def hello(self, epoch: int) -> messages.DriverHello:
        self.epochs.append(epoch)
        return messages.DriverHello(messages.VERSION, b"s" * 16, "token", "default", epoch)

    def attached(self, message: messages.Attached) -> list[frames.Sent]:
        self.attachments += 1
        return self.again

    def received(self, message: messages.ToDriver) -> None:
        if self.interrupt is not None:
            error, self.interrupt = self.interrupt, None
            raise error
        self.threads.append(threading.current_thread().name)
        self.heard.append(message)

    def gather(self) -> None:
        kept, self.kept_back = self.kept_back, []
        for message in kept:
            self.send(message)

    def tick(self) -> None:
        self.ticks += 1

    def link_ended(self, error: Exception) -> None:
        self.ends.append(error)

    def numbers(self) -> list[int]:
        results = [message for message in self.heard if isinstance(message, messages.Results)]
        return [item.number for each in results for item in each.items]


@pytest.fixture
def directory() -> Iterator[Path]:
    made = short_paths.directory()
    yield made
    for path in made.iterdir():
        path.unlink()
    made.rmdir()


@pytest.fixture
def dispatcher(directory: Path) -> Iterator[Dispatcher]:
    made = Dispatcher(directory)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def owner() -> Owner:
    return Owner()


def make(
    dispatcher: Dispatcher, owner: Owner, **more: Any
) -> blocking_link.Link[messages.ToDriver]:
    options: dict[str, Any] = {"connect": dispatcher.connect, "patience_s": 20.0} | more
    link: blocking_link.Link[messages.ToDriver] = blocking_link.Link(
        owner,
        decode=frames.decode_to_driver,
        clock=clock.SystemClock(),
        entropy=ids.Entropy(1),
        **options,
    )
    owner.send = link.send
    return link


@pytest.fixture
def link(dispatcher: Dispatcher, owner: Owner) -> Iterator[blocking_link.Link[messages.ToDriver]]:
    made = make(dispatcher, owner)
    made.open(timeout_s=10)
    yield made
    made.close()


def submit(number: int) -> messages.Submit:
    return messages.Submit((calls.CallItem(number, ids.new_task_id(), 1, PAYLOAD),))


def result(number: int) -> calls.CallResult:
    return calls.CallResult(number, task.State.SUCCESS, "", "", PAYLOAD)


def in_thread(call: Callable[[], object], name: str) -> threading.Thread:
    thread = threading.Thread(target=call, name=name)
    thread.start()
    return thread


def until(look: Callable[[], object], what: str) -> None:
    waiting.wait_until(look, what=what, every_s=0.002)


# connecting


def test_open_sends_hello_and_the_first_messages_of_the_owner(
    dispatcher: Dispatcher, owner: Owner
) -> None:
    owner.again = [submit(1), submit(2)]
    link = make(dispatcher, owner)
    link.open(timeout_s=10)
    dispatcher.wait_items(2)
    assert owner.epochs == [0]
    assert [item.number for item in dispatcher.items()] == [1, 2]
    link.close()
    assert owner.ends == []


def test_final_refusal_is_raised(dispatcher: Dispatcher, owner: Owner) -> None:
    dispatcher.refusal = messages.Refused("Unauthorized", "wrong token", retry=False)
    link = make(dispatcher, owner)
    with pytest.raises(errors.LinkRefused, match="wrong token"):
        link.open(timeout_s=10)
    assert dispatcher.greetings == 1
    link.close()


def test_temporary_refusal_is_retried(dispatcher: Dispatcher, owner: Owner) -> None:
    dispatcher.refusal = messages.Refused("NotYet", "starting", retry=True)
    link = make(dispatcher, owner)
    opening = in_thread(lambda: link.open(timeout_s=10), "opening")
    until(lambda: dispatcher.greetings >= 2, "the second try")
    dispatcher.refusal = None
    opening.join(timeout=30)
    assert owner.attachments == 1
    link.close()


def test_missing_dispatcher_is_a_clear_error(dispatcher: Dispatcher, owner: Owner) -> None:
    dispatcher.stop()
    link = make(dispatcher, owner)
    with pytest.raises(errors.LinkClosed, match=r"no dispatcher for 0\.05 s.*No such file"):
        link.open(timeout_s=0.05)
    link.close()


def test_kiln_error_in_connect_is_final(dispatcher: Dispatcher, owner: Owner) -> None:
    def connect() -> socket.socket:
        raise kit_errors.ConfigurationError("it ended at once")

    link = make(dispatcher, owner, connect=connect)
    with pytest.raises(kit_errors.ConfigurationError, match="ended at once"):
        link.open(timeout_s=10)
    with pytest.raises(kit_errors.ConfigurationError):
        link.wait(lambda: False)
    link.close()


# reading


def test_waiting_thread_reads_for_itself(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    begun = 0

    def once_it_waits(item: calls.CallItem) -> calls.CallResult:
        until(lambda: link.turns.begun > begun, "a thread that waits")
        return scripted_dispatcher.succeeded(item)

    dispatcher.accepts, dispatcher.respond = False, once_it_waits
    for number in range(1, 20):
        begun = link.turns.begun
        link.send(submit(number))
        assert link.wait(lambda: number in owner.numbers(), 10)  # noqa: B023
    assert set(owner.threads) == {threading.current_thread().name}


def test_each_of_many_waiting_threads_gets_its_own_message(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    dispatcher.respond = lambda _: None
    got: list[int] = []

    def wait(number: int) -> None:
        if link.wait(lambda: number in owner.numbers(), 20):
            got.append(number)

    threads = [in_thread(lambda n=n: wait(n), f"waits {n}") for n in range(8)]  # type: ignore[misc]
    for number in (5, 0, 7, 1, 2, 6, 3, 4):
        dispatcher.results(result(number))
        threads[number].join(timeout=30)
        assert got[-1] == number
    assert sorted(got) == list(range(8))


def test_background_thread_reads_when_no_thread_waits(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    dispatcher.results(result(1))
    until(lambda: owner.numbers() == [1], "the result is read")
    assert owner.threads == ["kiln link"]


def test_wait_ends_at_its_timeout(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    assert link.wait(lambda: False, 0.02) is False
    leader = in_thread(lambda: link.wait(lambda: 1 in owner.numbers(), 20), "leads")
    until(lambda: link.turns.led, "a thread leads")
    assert link.wait(lambda: False, 0.02) is False
    dispatcher.results(result(1))
    leader.join(timeout=30)
    assert not leader.is_alive()


def test_wake_makes_all_waiting_threads_check_again(
    dispatcher: Dispatcher, link: blocking_link.Link[messages.ToDriver]
) -> None:
    ready = threading.Event()
    threads = [in_thread(lambda: link.wait(ready.is_set, 20), f"waits {n}") for n in range(3)]
    until(lambda: link.turns.led, "a thread leads")
    ready.set()
    link.wake()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()


def test_thread_that_leads_for_long_is_not_disturbed(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    owner.tick_s = 0.001
    leader = in_thread(lambda: link.wait(lambda: 9 in owner.numbers(), 20), "leads")
    until(lambda: link.turns.led, "it leads")
    dispatcher.results(result(7))
    until(lambda: 7 in owner.numbers(), "it reads")
    dispatcher.results(result(8))
    until(lambda: link._thread._asleep, "the background thread sleeps")
    ticks = owner.ticks
    dispatcher.respond = lambda _: None
    for number in range(50):
        link.send(submit(number))
        dispatcher.wait_items(number + 1)
    assert owner.ticks <= ticks + 55
    dispatcher.results(result(9))
    leader.join(timeout=30)
    assert set(owner.threads) == {"leads"}
    until(lambda: owner.ticks > ticks + 60, "ticks go on when no thread waits")


# writing


def test_sent_message_is_written_soon_without_a_wait(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    link.send(submit(1))
    dispatcher.wait_items(1)
    owner.kept_back.append(submit(2))
    link.schedule_gather()
    dispatcher.wait_items(2)


def test_dispatcher_that_does_not_read_blocks_no_thread(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    dispatcher.reads.clear()
    dispatcher.respond = lambda _: None
    big = scripted_dispatcher.json('"' + "x" * 60_000 + '"')
    for number in range(1, 101):
        link.send(messages.Submit((calls.CallItem(number, ids.new_task_id(), 1, big),)))
    assert link.outbox.stuck
    dispatcher.results(result(7))
    assert link.wait(lambda: 7 in owner.numbers(), 10), "reading goes on meanwhile"
    dispatcher.reads.set()
    assert len(dispatcher.wait_items(100)) == 100
    assert [item.number for item in dispatcher.items()] == list(range(1, 101))
    assert not link.outbox.stuck


def test_oversized_message_is_refused_and_the_link_stays(
    dispatcher: Dispatcher, link: blocking_link.Link[messages.ToDriver]
) -> None:
    huge = scripted_dispatcher.json("x" * (messages.MAX_FRAME_BYTES + 1))
    with pytest.raises(errors.FrameTooLarge):
        link.send(messages.Submit((calls.CallItem(1, ids.new_task_id(), 1, huge),)))
    link.send(submit(2))
    assert dispatcher.wait_items(1)[0].number == 2


# connecting again


def test_lost_connection_is_restored_while_threads_wait(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    dispatcher.respond = lambda _: None
    threads = [
        in_thread(lambda n=n: link.wait(lambda: n in owner.numbers(), 20), f"waits {n}")  # type: ignore[misc]
        for n in (1, 2)
    ]
    until(lambda: link.turns.led, "a thread leads")
    owner.again = [submit(1)]
    dispatcher.epoch = 7
    dispatcher.drop()
    dispatcher.wait_items(1)
    dispatcher.results(result(1), result(2))
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    dispatcher.drop()
    until(lambda: owner.attachments == 3, "the third link")
    assert owner.epochs == [0, 1, 7]
    assert owner.ends == []


def test_dispatcher_with_an_older_epoch_is_not_accepted(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    dispatcher.epoch = 0
    dispatcher.drop()
    until(lambda: dispatcher.greetings >= 3, "it is tried again")
    assert owner.attachments == 1
    dispatcher.epoch = 2
    until(lambda: owner.attachments == 2, "the right one")


def test_malformed_frame_closes_only_the_connection(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    for round_, junk in enumerate((b"\xff" * 64, b"\0\0\0\0", b"\0\0\0\2\xc1\xc1"), start=2):
        dispatcher.send_raw(junk)
        until(lambda: owner.attachments == round_, "a new link")  # noqa: B023
    dispatcher.results(result(3))
    assert link.wait(lambda: 3 in owner.numbers(), 10)


def test_link_ends_after_too_long_without_a_dispatcher(
    dispatcher: Dispatcher, owner: Owner
) -> None:
    link = make(dispatcher, owner, patience_s=0.1)
    link.open(timeout_s=10)
    raised: list[Exception] = []

    def wait() -> None:
        try:
            link.wait(lambda: False, 20)
        except errors.LinkClosed as error:
            raised.append(error)

    threads = [in_thread(wait, f"waits {n}") for n in range(3)]
    dispatcher.stop()
    for thread in threads:
        thread.join(timeout=30)
    assert [type(each) for each in owner.ends] == [errors.LinkClosed]
    assert raised == owner.ends * 3
    link.send(submit(1))
    link.close()


def test_final_refusal_ends_an_open_link(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    dispatcher.send(messages.Refused("Leaving", "bye", retry=False))
    with pytest.raises(errors.LinkRefused, match="bye"):
        link.wait(lambda: False, 20)
    until(lambda: [type(each) for each in owner.ends] == [errors.LinkRefused], "it is over")


def test_final_refusal_counts_though_the_connection_closes_slowly(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    forget = link._forget

    def slowly(connection: socket.socket) -> None:
        forget(connection)
        with contextlib.suppress(
            AssertionError
        ):  # the thread that sees that there is none may be fast
            waiting.wait_until(lambda: dispatcher.greetings > 1, what="a new link", timeout_s=0.1)

    def refuse() -> None:
        until(lambda: link.turns.led, "the main thread leads")
        dispatcher.send(messages.Refused("Leaving", "bye", retry=False))

    link._forget = slowly  # type: ignore[method-assign]
    in_thread(refuse, "refuses")
    with pytest.raises(errors.LinkRefused, match="bye"):
        link.wait(lambda: False, 10)
    assert dispatcher.greetings == 1


def test_reconnect_now_skips_the_back_off(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    tries = []

    def connect() -> socket.socket:
        tries.append(1)
        if len(tries) < 40:
            raise ConnectionRefusedError
        return dispatcher.connect()

    link._connect = connect
    dispatcher.drop()

    def hurried() -> bool:
        link.reconnect_now()
        return owner.attachments == 2

    waiting.wait_until(hurried, what="a new link", timeout_s=10, every_s=0.002)


# ending


def test_close_writes_what_was_sent_and_wakes_all(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    raised: list[Exception] = []

    def wait() -> None:
        try:
            link.wait(lambda: False, 20)
        except errors.LinkClosed as error:
            raised.append(error)

    threads = [in_thread(wait, f"waits {n}") for n in range(3)]
    until(lambda: link.turns.led, "a thread leads")
    owner.kept_back.append(submit(1))
    link.close()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert len(raised) == 3
    assert owner.ends == []
    dispatcher.wait_items(1)
    link.close()
    until(lambda: link.socket is None, "the socket is closed")
    assert not [t for t in threading.enumerate() if t.name == "kiln link"]


# interruptions


def test_ctrl_c_during_a_wait_leaves_the_link_usable(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    sigint_injection.interrupt_inside(blocking_link.Link.wait)
    with pytest.raises(KeyboardInterrupt):
        link.wait(lambda: False, 60)
    assert not link.turns.led
    link.send(submit(1))
    assert link.wait(lambda: 1 in owner.numbers(), 10)
    other = in_thread(lambda: link.wait(lambda: 2 in owner.numbers(), 20), "leads")
    until(lambda: link.turns.led, "another thread leads")
    sigint_injection.interrupt_inside(blocking_link.Link.wait)
    with pytest.raises(KeyboardInterrupt):
        link.wait(lambda: False, 60)
    link.send(submit(2))
    other.join(timeout=30)
    assert not other.is_alive()
    assert owner.attachments == 1


def test_interrupt_while_handling_frames_makes_a_new_connection(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    owner.interrupt = KeyboardInterrupt()
    owner.again = [submit(1)]

    def send_result() -> None:
        until(lambda: link.turns.led, "the main thread leads")
        dispatcher.results(result(0))

    in_thread(send_result, "sends a result")
    with pytest.raises(KeyboardInterrupt):
        link.wait(lambda: 1 in owner.numbers(), 10)
    assert link.wait(lambda: 1 in owner.numbers(), 10)
    assert owner.attachments == 2


# forks


def test_forked_child_cannot_use_the_link_and_does_not_disturb_it(
    dispatcher: Dispatcher, owner: Owner, link: blocking_link.Link[messages.ToDriver]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads: our point
        child = os.fork()
    if child == 0:
        code = 1
        try:
            link.send(submit(66))
            link.flush()
            link.wait(lambda: False, 5)
        except errors.LinkForked:
            link.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    link.send(submit(1))
    assert link.wait(lambda: 1 in owner.numbers(), 10)
    assert [item.number for item in dispatcher.items()] == [1]
    assert owner.attachments == 1
