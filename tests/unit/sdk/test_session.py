"""Sessions: what they send, keep, send again and release."""

import gc
import os
import threading
import time
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import attempts, calls, task
from kilnwork.channel import errors as channel_errors
from kilnwork.channel import link_thread, messages
from kilnwork.kit import ids
from kilnwork.sdk import driver_session, errors, message_batching, session
from kilnwork.sdk import session as session_module
from support import scripted_dispatcher, waiting
from support.scripted_session import SPEC, ended_result, open_driver, submit

Dispatcher = scripted_dispatcher.ScriptedDispatcher
json = scripted_dispatcher.json


def until(look: Any, what: str) -> None:
    waiting.wait_until(look, what=what, every_s=0.002)


# submitting


def test_a_call_comes_back_with_its_value(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    assert submit(session, '{"a": [1, null]}').result(30) == {"a": [1, None]}


def test_the_welcome_says_where_the_session_is(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    assert (session.namespace, session.cluster) == ("default", "default")
    assert session.blobs.directory == dispatcher.blobs
    named = open_driver(dispatcher, namespace="other", cluster="big")
    assert (named.namespace, named.cluster) == ("other", "big")
    named.close()


def test_calls_made_together_are_sent_together(
    dispatcher: Dispatcher, session: driver_session.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LINGER_MS", "NAP_MS"):
        monkeypatch.setattr(link_thread, name, 600_000)  # however slow we are, what waits stays
    dispatcher.accepts, dispatcher.respond = False, lambda _: None  # what is read sends what waits
    futures = [submit(session, str(number)) for number in range(1000)]
    session.link.flush()
    items = dispatcher.wait_items(1000)
    assert [len(each.items) for each in dispatcher.all_of(messages.Submit)] == [256, 256, 256, 232]
    results = messages.Results(tuple(map(scripted_dispatcher.succeeded, items)))
    dispatcher.send(messages.Accepted(items[-1].number), results)
    assert [each.result(30) for each in futures] == list(range(1000))


def test_single_call_is_sent_although_no_thread_waits(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    future = submit(session)
    until(future.done, "it is done")


def test_large_calls_are_sent_in_frames_that_hold_them(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    text = '"' + "x" * 60_000 + '"'
    futures = [submit(session, text) for _ in range(40)]
    assert all(each.result(30) == "x" * 60_000 for each in futures)
    assert max(len(each.items) for each in dispatcher.all_of(messages.Submit)) <= 4


def test_a_call_that_fits_into_no_frame_is_refused_at_once(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    needs = tuple(ids.new_task_id() for _ in range(50_000))
    with pytest.raises(ValueError, match=r"takes 50000 futures .* put tasks between"):
        submit(session, needs=needs)
    assert submit(session, needs=needs[:40_000]).result(30) == 1


def test_equal_specs_share_one_template_number(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    same = task.TaskSpec(call=task.Call(function="tests:nothing"))
    other = task.TaskSpec(call=task.Call(function="tests:other"))
    assert session.template(SPEC) == session.template(same) == 1
    assert session.template(other) == 2
    for spec in (SPEC, same, other):
        submit(session, spec=spec).result(30)
    assert [each.number for each in dispatcher.all_of(messages.Template)] == [1, 2]
    assert [item.template for item in dispatcher.items()] == [1, 1, 2]


def test_many_specs_in_a_row_do_not_pile_up(session: driver_session.Driver) -> None:
    for _ in range(3):
        for seconds in range(1, 1001):
            timeouts = task.Timeouts(running_seconds=seconds)
            session.template(task.TaskSpec(call=SPEC.call, timeouts=timeouts))
    assert len(session._templates) == 1000
    assert len(session._known_specs) <= 1024


def test_templates_that_are_not_used_are_forgotten_by_both_sides(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    def spec(seconds: int) -> task.TaskSpec:
        return task.TaskSpec(call=SPEC.call, timeouts=task.Timeouts(running_seconds=seconds))

    kept = session.template(SPEC)
    for seconds in range(1, 10_000):
        session.template(spec(seconds))
        if seconds % 100 == 0:
            submit(session)
    assert len(session._templates) <= 2100
    assert kept in session._templates
    known = {each.number for each in dispatcher.all_of(messages.Template)}
    forgotten = {number for each in dispatcher.all_of(messages.Forget) for number in each.numbers}
    until(lambda: len(dispatcher.all_of(messages.Forget)) >= 7, "they are forgotten")
    assert forgotten <= known
    with pytest.raises(session_module.TemplateForgotten):
        session.submit(2, function="tests:nothing", arguments=json("1"))
    assert submit(session, spec=spec(1)).result(30) == 1
    dispatcher.seen.clear()
    dispatcher.drop()
    until(lambda: len(dispatcher.all_of(messages.Template)) >= len(session._templates), "again")


def test_threads_submit_at_once_and_numbers_still_rise(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    got: list[list[int]] = [[] for _ in range(4)]

    def work(mine: int) -> None:
        futures = [submit(session, str(mine * 1000 + n)) for n in range(500)]
        got[mine] = [each.result(30) for each in futures]

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert got == [list(range(mine * 1000, mine * 1000 + 500)) for mine in range(4)]
    numbers = [item.number for item in dispatcher.items()]
    assert numbers == list(range(1, 2001))
    tasks = [item.task for item in dispatcher.items()]
    assert tasks == sorted(set(tasks))


def test_too_many_calls_that_are_not_accepted_block_submit(
    dispatcher: Dispatcher, session: driver_session.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kilnwork.sdk.session.UNACCEPTED_CALLS", 512)
    dispatcher.accepts = False
    count = []

    def work() -> None:
        for number in range(1000):
            submit(session, str(number))
            count.append(number)

    thread = threading.Thread(target=work)
    thread.start()
    dispatcher.wait_items(512)
    most = 512 + message_batching.CALLS  # what is not sent yet does not count
    until(lambda: session.link.turns.led and 512 <= len(count) <= most, "submit waits")
    dispatcher.accepts = True
    dispatcher.send(messages.Accepted(512))
    thread.join(timeout=30)
    assert len(count) == 1000
    until(session.all_accepted, "all is accepted")


def test_heavy_calls_block_submit_before_there_are_many(
    dispatcher: Dispatcher, session: driver_session.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kilnwork.sdk.session.UNACCEPTED_BYTES", 1_000_000)
    dispatcher.stop()
    text = '"' + "x" * 50_000 + '"'
    count = []

    def work() -> None:
        for number in range(60):
            submit(session, text)
            count.append(number)

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: len(count) == 20, "submit waits")
    assert session._heavy_bytes >= 1_000_000
    dispatcher.start()
    thread.join(timeout=30)
    assert len(count) == 60
    until(session.all_accepted, "all is accepted")
    assert session._heavy_bytes == 0


# ids


def test_the_id_is_there_at_once(dispatcher: Dispatcher, session: driver_session.Driver) -> None:
    dispatcher.respond = lambda _: None
    dispatcher.accepts = False
    future = submit(session)
    assert future.id == ids.task_text(future.task)
    assert dispatcher.wait_items(1)[0].task == future.task
    dispatcher.send(messages.Accepted(1))


def test_id_is_returned_only_after_its_call_was_sent(
    dispatcher: Dispatcher, session: driver_session.Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slot wrote the id of a child into a file, and the driver that read it asked for the child
    before the slot had sent it."""
    for name in ("LINGER_MS", "NAP_MS"):
        monkeypatch.setattr(link_thread, name, 600_000)
    dispatcher.respond = lambda _: None
    future = submit(session)
    task_id = future.id
    assert [ids.task_text(item.task) for item in dispatcher.wait_items(1)] == [task_id]


def test_with_a_key_the_id_is_that_of_the_call_that_exists(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    dispatcher.respond = lambda _: None
    dispatcher.accepts = False
    existing = ids.new_task_id()
    future = submit(session, key="once")
    number = dispatcher.wait_items(1)[0].number
    asked: list[str] = []
    thread = threading.Thread(target=lambda: asked.append(future.id))
    thread.start()
    until(lambda: session.link.turns.led, "id waits")
    dispatcher.send(messages.FoundCall(number, existing), messages.Accepted(number))
    thread.join(timeout=30)
    assert asked == [ids.task_text(existing)]
    fresh = submit(session, key="twice")
    minted = fresh.known_task
    dispatcher.wait_items(2)
    dispatcher.send(messages.Accepted(number + 1))
    assert fresh.task == minted


@pytest.mark.parametrize("result_first", [True, False])
def test_results_come_before_or_after_the_call_is_found(
    dispatcher: Dispatcher, session: driver_session.Driver, *, result_first: bool
) -> None:
    dispatcher.respond = lambda _: None
    dispatcher.accepts = False
    future = submit(session, key="once")
    number, existing = dispatcher.wait_items(1)[0].number, ids.new_task_id()
    result = messages.Results((calls.CallResult(number, task.State.SUCCESS, "", "", json("5")),))
    found = messages.FoundCall(number, existing)
    dispatcher.send(*((result, found) if result_first else (found, result)))
    assert future.result(30) == 5
    assert future.task == existing
    dispatcher.send(messages.Accepted(number))
    until(session.all_accepted, "it is accepted")
    assert not session._unconfirmed


def test_task_of_another_session_is_watched(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    wanted = ids.new_task_id()
    future = session.future(wanted)
    watched = dispatcher.wait_for(messages.Watch).items[0]
    assert watched.task == wanted == future.task
    dispatcher.results(calls.CallResult(watched.number, task.State.SUCCESS, "", "", json("3")))
    assert future.result(30) == 3


def test_unknown_task_raises_lookup_error(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    future = session.future(ids.new_task_id())
    number = dispatcher.wait_for(messages.Watch).items[0].number
    dispatcher.results(ended_result(number, task.State.PENDING))
    with pytest.raises(LookupError, match=future.id):
        future.result(30)


# connecting again


def test_reconnect_sends_open_calls_watches_and_cancels_again(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    dispatcher.respond = lambda _: None
    accepted = submit(session, "1")
    over = submit(session, "2")
    dispatcher.wait_items(2)
    dispatcher.results(calls.CallResult(2, task.State.SUCCESS, "", "", json("2")))
    assert over.result(30) == 2
    until(session.all_accepted, "both are accepted")
    watched = session.future(ids.new_task_id())
    dispatcher.wait_for(messages.Watch)
    dispatcher.accepts = False
    kept = submit(session, "4")
    dispatcher.wait_items(3)
    dispatcher.seen.clear()
    dispatcher.drop()
    again = dispatcher.wait_for(messages.Watch)
    assert {each.number: each.task for each in again.items} == {
        1: accepted.known_task,
        3: watched.known_task,
    }
    assert [each.number for each in dispatcher.all_of(messages.Template)] == [1]
    assert [(item.number, item.task) for item in dispatcher.items(again=True)] == [
        (4, kept.known_task)
    ]
    assert dispatcher.items(again=False) == []
    order = [type(each) for each in dispatcher.seen]
    assert order == [messages.DriverHello, messages.Template, messages.Submit, messages.Watch]
    dispatcher.results(
        *(calls.CallResult(n, task.State.SUCCESS, "", "", json("7")) for n in (1, 3, 4))
    )
    dispatcher.send(messages.Accepted(4))
    assert [each.result(30) for each in (accepted, watched, kept)] == [7, 7, 7]


def test_calls_made_while_there_is_no_link_are_sent_on_the_next(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    dispatcher.stop()
    until(lambda: session.link.socket is None, "the link is gone")
    futures = [submit(session, str(number)) for number in range(600)]
    dispatcher.start()
    assert [each.result(30) for each in futures] == list(range(600))
    assert len({item.number for item in dispatcher.items()}) == 600


def test_a_burst_survives_links_that_are_cut_again_and_again(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    """Each result arrives, wherever its link was cut: a watched task gets its result again, as from
    a dispatcher that has it."""
    done: dict[ids.TaskId, attempts.Payload] = {}

    def respond(item: calls.CallItem) -> calls.CallResult:
        done[item.task] = item.arguments
        return scripted_dispatcher.succeeded(item)

    def watch(item: calls.Watched) -> calls.CallResult:
        return calls.CallResult(item.number, task.State.SUCCESS, "", "", done[item.task])

    dispatcher.respond, dispatcher.watch = respond, watch
    stop = threading.Event()

    def cut() -> None:
        while not stop.wait(0.02):
            dispatcher.drop()

    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        while dispatcher.greetings < 8:
            futures = [submit(session, str(number)) for number in range(1000)]
            assert [each.result(30) for each in futures] == list(range(1000))
    finally:
        stop.set()
        cutter.join()


def test_cancel_is_sent_again_until_the_task_has_finished(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    dispatcher.respond = lambda _: None
    future = submit(session)
    assert future.cancel()
    assert dispatcher.wait_for(messages.Cancel) == messages.Cancel((future.task,))
    assert len(dispatcher.items()) == 1, "the call is sent before its cancel"
    dispatcher.seen.clear()
    dispatcher.drop()
    assert dispatcher.wait_for(messages.Cancel).tasks == (future.task,)
    dispatcher.results(ended_result(1, task.State.KILLED))
    with pytest.raises(errors.Cancelled):
        future.result(30)
    assert not future.cancel()
    dispatcher.seen.clear()
    dispatcher.drop()
    dispatcher.wait_for(messages.Template)
    submit(session)
    dispatcher.wait_items(1)
    assert dispatcher.all_of(messages.Cancel) == []


def test_cancelling_tasks_without_futures_keeps_nothing(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    for _ in range(20):
        session.cancel([ids.new_task_id() for _ in range(1000)], recursive=False)
    assert len(session._cancelling) <= 2000
    dispatcher.wait_for(messages.Cancel, 20)
    assert not any(each.recursive for each in dispatcher.all_of(messages.Cancel))


# the end


def test_when_the_dispatcher_stays_away_all_futures_fail(dispatcher: Dispatcher) -> None:
    dispatcher.respond = lambda _: None
    lasting = open_driver(dispatcher, patience_s=0.05)
    futures = [submit(lasting) for _ in range(3)]
    called = threading.Event()
    futures[0].add_done_callback(lambda _: called.set())
    dispatcher.wait_items(3)
    dispatcher.stop()
    for future in futures:
        with pytest.raises(errors.DispatcherLost, match=r"no dispatcher for 0\.05 s"):
            future.result(30)
        assert future.done()
        assert not future.cancelled()
    assert called.wait(10)
    with pytest.raises(errors.DispatcherLost):
        submit(lasting)
    with pytest.raises(errors.DispatcherLost):
        lasting.future(ids.new_task_id())
    lasting.close()


def test_unreferenced_futures_are_released(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    kept = weakref.ref(submit(session))
    until(lambda: not session._open, "it is over")
    gc.collect()
    assert kept() is None
    assert not session._unaccepted
    assert not session._batch


def test_session_fails_in_a_forked_child_and_works_in_the_parent(
    dispatcher: Dispatcher, session: driver_session.Driver
) -> None:
    done = submit(session, "1")
    assert done.result(30) == 1
    dispatcher.respond = lambda _: None
    waits = submit(session)
    dispatcher.wait_items(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads: our point
        child = os.fork()
    if child == 0:
        code = 1
        try:
            assert done.result() == 1
            for use in (lambda: submit(session), waits.result, waits.cancel):
                with pytest.raises(errors.NoSession, match="forked"):
                    use()
            session.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    dispatcher.results(calls.CallResult(2, task.State.SUCCESS, "", "", json("2")))
    assert waits.result(30) == 2
    assert len(dispatcher.items()) == 2
    assert dispatcher.greetings == 1


# the current one


def test_innermost_open_session_is_the_current_session(dispatcher: Dispatcher) -> None:
    with pytest.raises(errors.NoSession, match=r"kiln\.start"):
        session.current()
    with open_driver(dispatcher) as outer:
        with open_driver(dispatcher) as inner:
            assert session.current() is inner
            inner.close()
            assert session.current() is outer
        assert session.current() is outer
    with pytest.raises(errors.NoSession):
        session.current()


def test_close_sends_submitted_calls_and_waits_until_accepted(
    dispatcher: Dispatcher,
) -> None:
    dispatcher.respond = lambda _: None
    closed: list[int] = []
    with open_driver(dispatcher, on_close=lambda: closed.append(1)) as made:
        future = submit(made)
        assert repr(made) == "<Session open: namespace default, cluster default>"
    assert repr(made) == "<Session closed: namespace default, cluster default>"
    assert len(dispatcher.items()) == 1
    made.close()
    assert closed == [1]
    assert not future.cancel()
    with pytest.raises(errors.DispatcherLost, match="closed"):
        future.result()


def test_close_warns_of_the_number_of_unaccepted_calls(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver_session, "QUIET_S", 0.02)
    dispatcher.accepts = False
    dispatcher.respond = lambda _: None
    made = open_driver(dispatcher, close_timeout=0.05)
    for _ in range(3):
        submit(made)
    with pytest.warns(RuntimeWarning, match=r"not accepted within 0.05 s .*may never run: 3\."):
        made.close()
    assert "the dispatcher is to accept 3 calls; waiting up to 0.05 s" in caplog.text
    assert made.link.failure is not None
    with pytest.raises(errors.NoSession):
        session.current()


def test_close_waits_on_while_calls_are_accepted(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_session, "QUIET_S", 0.1)
    dispatcher.accepts = False
    dispatcher.respond = lambda _: None
    made = open_driver(dispatcher, close_timeout=1.5)
    for _ in range(6):
        submit(made)
    closing = threading.Thread(target=made.close)
    closing.start()
    dispatcher.wait_items(6)
    for number in range(1, 7):
        assert closing.is_alive()
        time.sleep(0.3)
        dispatcher.send(messages.Accepted(number))
    closing.join()


def test_close_tells_of_calls_that_were_not_accepted_when_the_link_was_lost(
    dispatcher: Dispatcher,
) -> None:
    dispatcher.accepts = False
    dispatcher.respond = lambda _: None
    made = open_driver(dispatcher, patience_s=0.05)
    future = submit(made)
    dispatcher.wait_items(1)
    dispatcher.stop()
    until(future.done, "the link is over")
    with pytest.warns(RuntimeWarning, match=r"no dispatcher for 0\.05 s.*may never run: 1\."):
        made.close()


def test_silent_dispatcher_is_logged_once_with_the_wait(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(link_thread, "SILENCE_S", 0.1)
    dispatcher.respond = lambda _: None
    with open_driver(dispatcher, patience_s=30.0) as made:
        submit(made)
        dispatcher.wait_items(1)
        dispatcher.stop()
        until(lambda: "no dispatcher for" in caplog.text, "it is logged")
        time.sleep(0.3)
        dispatcher.start()
        until(lambda: "the dispatcher is back after" in caplog.text, "the link is back")
    assert caplog.text.count("no dispatcher for") == 1
    assert "if it is not back 30 s after the link was lost" in caplog.text


def test_a_session_that_could_not_be_opened_is_closed(
    dispatcher: Dispatcher, tmp_path: Path
) -> None:
    dispatcher.refusal = messages.Refused("Unauthorized", "wrong token", retry=False)
    closed: list[int] = []
    with pytest.raises(channel_errors.LinkRefused, match="wrong token"):
        open_driver(dispatcher, on_close=lambda: closed.append(1))
    assert closed == [1]
    with pytest.raises(errors.NoSession):
        session.current()


async def test_a_session_can_be_closed_in_a_running_loop(dispatcher: Dispatcher) -> None:
    async with open_driver(dispatcher) as made:
        assert await submit(made, "4") == 4
    with pytest.raises(errors.DispatcherLost):
        submit(made)
