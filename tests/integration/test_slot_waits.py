"""Tasks that wait for others in real slots: announced, run in place, a thousand deep, cancelled."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import attempts, calls, task
from kilnwork.channel import messages
from kilnwork.kit import ids
from kilnwork.sdk import message_batching, session
from support import scripted_slots, waiting

SUCCEEDED, FAILED = attempts.Ending.SUCCEEDED, attempts.Ending.FAILED
LOST, STOPPED = attempts.Ending.LOST, attempts.Ending.STOPPED
F = "support.slot_functions"
C = "support.slot_coroutines"


@pytest.fixture
async def slot(hub: scripted_slots.SlotHub, tmp_path: Path) -> AsyncIterator[scripted_slots.Slot]:
    async with scripted_slots.working(hub, tmp_path):
        yield await hub.open()


def new_ref() -> attempts.AttemptRef:
    return attempts.AttemptRef(ids.new_task_id(), 1, 1)


async def last_waiting(slot: scripted_slots.Slot, ref: attempts.AttemptRef) -> messages.Waiting:
    """Return the newest Waiting message about this attempt."""

    def look() -> list[messages.Waiting]:
        newest = slot.seen[-20:]
        return [m for m in newest if isinstance(m, messages.Waiting) and m.ref == ref]

    return (await slot.until(look, what=f"{ref} waits"))[-1]


def report_end(slot: scripted_slots.Slot, child: ids.TaskId, value: Any) -> None:
    """Report the end of a watched task to the slot."""
    result = calls.CallResult(
        slot.watched[child], task.State.SUCCESS, "Succeeded", "", scripted_slots.payload(value)
    )
    slot.send(messages.Results((result,)))


async def test_waiting_task_releases_its_slot_and_resumes(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    child = ids.new_task_id()
    runs = [
        hub.run_of(slot, f"{F}:wait_for", ids.task_text(child)),
        hub.run_of(slot, f"{F}:add", 1),
        hub.run_of(slot, f"{F}:add", 2),
    ]
    slot.send(messages.Calls(tuple(runs)))
    announced = await last_waiting(slot, runs[0].ref)
    assert announced == messages.Waiting(runs[0].ref, (child,), in_place=True)
    messages_sent = [m for m in slot.seen if isinstance(m, messages.Returned | messages.Waiting)]
    assert messages_sent == [messages.Returned((runs[1].ref, runs[2].ref)), announced]
    late = hub.call(slot, f"{F}:add", 3)
    await slot.until(
        lambda: messages.Returned((late,)) in slot.seen, what="what it cannot run is returned"
    )
    report_end(slot, child, 42)
    assert await hub.result(slot, runs[0].ref) == 42
    assert slot.all_of(messages.Resumed) == [messages.Resumed(runs[0].ref)]
    assert await hub.result(slot, hub.call(slot, f"{F}:add", 1)) == 2


async def test_task_waiting_for_very_many_does_not_name_them_all(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    children = [ids.new_task_id() for _ in range(1500)]
    ref = hub.call(slot, f"{F}:wait_for_all", [ids.task_text(child) for child in children])
    announced = await last_waiting(slot, ref)
    assert announced == messages.Waiting(ref, tuple(children[:1000]), in_place=True, more=True)
    for child in children:
        report_end(slot, child, 1)
    assert await hub.result(slot, ref) == 1500


async def test_awaited_call_runs_on_top_of_the_waiting_one(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    child = new_ref()
    ref = hub.call(slot, f"{F}:wait_and_say", ids.task_text(child.task), "before", "after")
    await last_waiting(slot, ref)
    hub.call(slot, f"{F}:say_and_return", "within", 7, ref=child, in_place=True)
    assert await hub.result(slot, child) == 7
    assert slot.all_of(messages.Resumed) == []
    report_end(slot, child.task, 7)
    assert await hub.result(slot, ref) == 7
    assert bytes(slot.logs[ref]) == b"before\nafter\n"
    assert bytes(slot.logs[child]) == b"within\n"
    assert [r.ref for r in slot.all_of(messages.Resumed)] == [ref]


async def test_late_in_place_call_is_returned(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    child = new_ref()
    ref = hub.call(slot, f"{F}:wait_for", ids.task_text(child.task))
    await last_waiting(slot, ref)
    report_end(slot, child.task, 1)
    late = hub.call(slot, f"{F}:add", 1, in_place=True)
    await hub.result(slot, ref)
    await slot.until(lambda: messages.Returned((late,)) in slot.seen, what="it is returned")


async def test_thousand_calls_run_on_top_of_each_other(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    deep = 1000
    refs = [new_ref() for _ in range(deep + 1)]
    for level in range(deep):
        hub.call(
            slot,
            f"{F}:wait_for",
            ids.task_text(refs[level + 1].task),
            ref=refs[level],
            in_place=level > 0,
        )
        assert (await last_waiting(slot, refs[level])).in_place
    assert await hub.result(slot, hub.call(slot, f"{F}:depth", ref=refs[deep], in_place=True)) > 900
    for level in reversed(range(1, deep + 1)):
        report_end(slot, refs[level].task, level)
        await hub.end(slot, refs[level - 1])
    assert await hub.result(slot, refs[0]) == 1
    assert len(slot.hellos) == 1
    free = await hub.result(slot, hub.call(slot, f"{F}:depth"))
    assert 900 < free < 1100


async def test_wait_with_a_time_limit_never_runs_others(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    child = ids.new_task_id()
    ref = hub.call(slot, f"{F}:wait_for", ids.task_text(child), 0.2)
    assert not (await last_waiting(slot, ref)).in_place
    end = await hub.end(slot, ref)
    assert (end.ending, end.reason) == (FAILED, "Raised")
    assert end.message.startswith("TimeoutError: ")
    assert end.seconds >= 0.2
    assert [r.ref for r in slot.all_of(messages.Resumed)] == [ref]


@pytest.mark.parametrize(
    "function", [f"{F}:wait_in_thread", f"{C}:await_for", f"{C}:block_in_loop"]
)
async def test_threads_and_coroutines_release_but_nothing_runs_on_top(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot, function: str
) -> None:
    child = ids.new_task_id()
    ref = hub.call(slot, function, ids.task_text(child))
    assert await last_waiting(slot, ref) == messages.Waiting(ref, (child,), in_place=False)
    report_end(slot, child, 5)
    assert await hub.result(slot, ref) == 5
    assert [r.ref for r in slot.all_of(messages.Resumed)] == [ref]


async def test_children_are_counted_by_function_and_name_their_parent(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    ref = hub.call(slot, f"{F}:submit_some", 3)
    again = hub.call(slot, f"{F}:submit_some", 1)
    await hub.end(slot, again)
    items = [item for submit in slot.all_of(messages.Submit) for item in submit.items]
    assert [(i.parent, i.ordinal, i.key) for i in items] == [
        (ref, 1, None),
        (ref, 2, None),
        (ref, 3, None),
        (ref, 0, "mine"),
        (again, 1, None),
        (again, 0, "mine"),
    ]
    order = [
        type(m).__name__ for m in slot.seen if isinstance(m, messages.Submit | messages.CallsEnded)
    ]
    assert order[-1] == "CallsEnded"
    assert order.index("Submit") < order.index("CallsEnded")


async def test_call_end_is_reported_after_its_children(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    runs = [hub.run_of(slot, f"{F}:submit_beside_slow_threads") for _ in range(5_000)]
    slot.send(messages.Calls(tuple(runs)))
    await slot.until(lambda: len(slot.ends) == len(runs), what="all ends", timeout_s=100)
    parents = set[attempts.AttemptRef | None]()
    for message in slot.seen:
        if isinstance(message, messages.Submit):
            parents.update(item.parent for item in message.items)
        elif isinstance(message, messages.CallsEnded):
            assert {end.ref for end in message.ends} <= parents


async def test_submit_waits_while_too_many_calls_are_not_accepted(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    ref = hub.call(slot, f"{F}:submit_some", session.UNACCEPTED_CALLS + 1_000)
    assert (await last_waiting(slot, ref)).tasks == ()
    submits = slot.all_of(messages.Submit)
    items = [item for submit in submits for item in submit.items]
    most = session.UNACCEPTED_CALLS + message_batching.CALLS  # unsent calls do not count
    assert session.UNACCEPTED_CALLS <= len(items) < most
    slot.send(messages.Accepted(items[-1].number))
    assert (await hub.end(slot, ref)).ending is SUCCEEDED


async def test_missing_values_are_waited_for(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    one, two = ids.new_task_id(), ids.new_task_id()
    arguments = hub.arguments_with_futures(one, two)
    run = hub.run_of(slot, f"{F}:add")
    along = calls.Value(one, task.State.SUCCESS, "", "", scripted_slots.payload(40))
    run = calls.CallRun(run.ref, run.template, arguments, "", (along,))
    slot.send(messages.Calls((run,)))
    assert (await last_waiting(slot, run.ref)).tasks == (two,)
    report_end(slot, two, 2)
    assert await hub.result(slot, run.ref) == 42


# cancelled while others wait


async def test_waiting_task_is_cancelled(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    ref = hub.call(slot, f"{F}:wait_for", ids.task_text(ids.new_task_id()))
    await last_waiting(slot, ref)
    slot.send(messages.StopCall(ref, "Killed"))
    end = await hub.end(slot, ref)
    assert (end.ending, end.reason) == (STOPPED, "Killed")
    assert await hub.result(slot, hub.call(slot, f"{F}:add", 1)) == 2


async def test_cancelling_below_unwinds_the_calls_above(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot, tmp_path: Path
) -> None:
    refs = [new_ref() for _ in range(4)]
    for level in range(3):
        hub.call(
            slot,
            f"{F}:wait_for",
            ids.task_text(refs[level + 1].task),
            ref=refs[level],
            in_place=level > 0,
        )
        await last_waiting(slot, refs[level])
    hub.call(slot, f"{F}:sleep", 30, str(tmp_path / "sign"), ref=refs[3], in_place=True)
    await waiting.wait_until_async((tmp_path / "sign").exists, what="it sleeps")
    slot.send(messages.StopCall(refs[1], "TimedOut"))
    ends = [await hub.end(slot, ref) for ref in reversed(refs[1:])]
    assert [(e.ending, e.reason) for e in ends] == [
        (LOST, "TakenBack"),
        (LOST, "TakenBack"),
        (STOPPED, "TimedOut"),
    ]
    assert refs[0] not in slot.ends
    report_end(slot, refs[1].task, 9)
    assert await hub.result(slot, refs[0]) == 9


async def test_task_is_cancelled_after_its_wait(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot, tmp_path: Path
) -> None:
    child = new_ref()
    sign = str(tmp_path / "sign")
    ref = hub.call(slot, f"{F}:wait_and_sleep", ids.task_text(child.task), 30, sign)
    await last_waiting(slot, ref)
    hub.call(slot, f"{F}:add", 1, ref=child, in_place=True)
    await hub.end(slot, child)
    report_end(slot, child.task, 2)
    await waiting.wait_until_async((tmp_path / "sign").exists, what="it sleeps")
    slot.send(messages.StopCall(ref, "Killed"))
    assert (await hub.end(slot, ref)).ending is STOPPED


async def test_dying_slot_names_the_call_on_top(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    refs = [new_ref() for _ in range(2)]
    hub.call(slot, f"{F}:wait_for", ids.task_text(refs[1].task), ref=refs[0])
    await last_waiting(slot, refs[0])
    hub.call(slot, f"{F}:die_by", "exit", ref=refs[1], in_place=True)
    assert (await hub.gone(slot)).running == refs[1]


async def test_call_below_is_on_top_again(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    refs = [new_ref() for _ in range(2)]
    hub.call(slot, f"{F}:wait_for", ids.task_text(refs[1].task), ref=refs[0])
    await last_waiting(slot, refs[0])
    hub.call(slot, f"{F}:add", 1, ref=refs[1], in_place=True)
    await hub.end(slot, refs[1])
    hub.send(messages.KillSlot(slot.name))
    assert (await hub.gone(slot)).running == refs[0]


# a new connection


async def test_unacknowledged_messages_are_sent_again_after_a_reconnect(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    hub.acknowledges_slots = False
    ended = hub.call(slot, f"{F}:say", "ended")
    await hub.end(slot, ended)
    child = ids.new_task_id()
    ref = hub.call(slot, f"{F}:wait_and_say", ids.task_text(child), "before", "after")
    await last_waiting(slot, ref)
    await slot.until(lambda: slot.logs[ref] == b"before\n", what="it has said so")
    slot.seen.clear()
    slot.logs.clear()
    slot.drop()
    announced = await last_waiting(slot, ref)
    assert announced.tasks == (child,)
    assert set(slot.hellos[-1].running) == {ref, ended}
    assert [
        end.ref for end in (await hub.wait_for_messages(slot, messages.CallsEnded))[0].ends
    ] == [ended]
    assert bytes(slot.logs[ref]) == b"before\n"
    assert bytes(slot.logs[ended]) == b"ended\n"
    assert [w.task for watch in slot.all_of(messages.Watch) for w in watch.items] == [child]
    hub.acknowledges_slots = True
    report_end(slot, child, 3)
    assert await hub.result(slot, ref) == 3


async def test_acknowledged_messages_are_not_sent_again(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot
) -> None:
    await hub.end(slot, hub.call(slot, f"{F}:add", 1))
    await hub.end(slot, hub.call(slot, f"{F}:add", 2))
    slot.drop()
    await slot.until(lambda: len(slot.hellos) == 2, what="it is back")
    assert len(slot.hellos[1].running) <= 1


async def test_call_unknown_to_the_dispatcher_is_dropped(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot, tmp_path: Path
) -> None:
    hub.acknowledges_slots = False
    ended = hub.call(slot, f"{F}:add", 1)
    await hub.end(slot, ended)
    gate, sign = tmp_path / "gate", tmp_path / "sign"
    running = hub.call(slot, f"{F}:hold", str(gate), str(sign))
    queued = [hub.call(slot, f"{F}:add", n) for n in (1, 2)]
    await waiting.wait_until_async(sign.exists, what="it runs")
    slot.unknown = (ended, queued[0])
    slot.ends.clear()
    slot.drop()
    await slot.until(lambda: len(slot.hellos) == 2, what="it is back")
    gate.touch()
    assert await hub.result(slot, queued[1]) == 3
    assert set(slot.ends) == {running, queued[1]}


async def test_slot_that_runs_an_unknown_call_ends(
    hub: scripted_slots.SlotHub, slot: scripted_slots.Slot, tmp_path: Path
) -> None:
    running = hub.call(slot, f"{F}:sleep", 30, str(tmp_path / "sign"))
    await waiting.wait_until_async((tmp_path / "sign").exists, what="it sleeps")
    slot.unknown = (running,)
    slot.drop()
    gone = await hub.gone(slot)
    assert (gone.running, gone.proof) == (running, True)
