"""What a slot holds, from arrival to acknowledgement."""

from kilnwork.api import attempts, calls
from kilnwork.channel import messages
from kilnwork.kit import ids
from kilnwork.worker import slot_call_table

NOTHING = attempts.Payload(attempts.JSON, b"[[],{}]")


def ref(number: int) -> attempts.AttemptRef:
    return attempts.AttemptRef(ids.TaskId(bytes([number]) * 16), 1, 1)


def run(number: int, *, in_place: bool = False) -> calls.CallRun:
    return calls.CallRun(ref(number), 1, NOTHING, "", in_place=in_place)


def end(number: int) -> calls.CallEnd:
    return calls.CallEnd(ref(number), attempts.Ending.SUCCEEDED, "Succeeded", "", None, 0.0, 0.0)


def running(
    held: slot_call_table.SlotCalls, number: int, *, waits: bool = False
) -> slot_call_table.StackLevel:
    level = slot_call_table.StackLevel(run(number), 1.0)
    held.stack.append(level)
    if waits:
        level.waits = 1
        level.announced = messages.Waiting(ref(number), (), in_place=True)
    return level


def test_calls_are_queued_unless_the_running_call_waits() -> None:
    held = slot_call_table.SlotCalls()
    assert held.take_in([run(1), run(2)]) == []
    running(held, 3)
    assert held.take_in([run(4), run(5, in_place=True)]) == [ref(5)]
    running(held, 6, waits=True)
    assert held.take_in([run(7), run(8, in_place=True)]) == [ref(7)]
    assert [each.ref for each in held.queue] == [ref(1), ref(2), ref(4)]
    assert [each.ref for each in held.placed] == [ref(8)]
    assert held.refs() == (ref(3), ref(6), ref(8), ref(1), ref(2), ref(4))
    assert held.return_all() == [ref(8), ref(1), ref(2), ref(4)]
    assert held.return_all() == []


def test_newest_call_is_taken_back_first() -> None:
    held = slot_call_table.SlotCalls()
    held.take_in([run(1), run(2), run(3)])
    assert held.take_back(2) == [ref(3), ref(2)]
    assert held.take_back(2) == [ref(1)]
    assert held.take_back(2) == []


def test_only_queued_calls_can_be_withdrawn() -> None:
    held = slot_call_table.SlotCalls()
    held.take_in([run(1), run(2)])
    level = running(held, 3)
    assert held.withdraw(ref(2))
    assert not held.withdraw(ref(2))
    assert not held.withdraw(ref(3))
    assert held.level(ref(3)) is level
    assert held.level(ref(1)) is None


def test_reports_are_kept_until_they_are_acknowledged() -> None:
    held = slot_call_table.SlotCalls()
    assert held.report_ends() is None
    held.ends += [end(1), end(2)]
    first = held.report_ends()
    assert first == messages.CallsEnded(1, (end(1), end(2)))
    started = held.report_start(running(held, 3))
    held.ends.append(end(3))
    last = held.report_ends()
    assert [started.serial, last and last.serial] == [2, 3]
    held.acknowledged(1)
    assert held.reports() == [started, last]
    assert held.refs() == (ref(3),)
    held.acknowledged(3)
    assert held.reports() == []


def test_unknown_attempts_are_dropped_except_from_the_stack() -> None:
    held = slot_call_table.SlotCalls()
    held.ends += [end(1), end(2)]
    held.report_ends()
    held.ends += [end(3), end(4)]
    held.take_in([run(5), run(6)])
    assert not held.drop({ref(1), ref(3), ref(5), ref(99)})
    assert held.refs() == (ref(6), ref(4), ref(2))
    assert held.reports() == [messages.CallsEnded(1, (end(2),))]
    held.report_start(running(held, 7))
    assert held.drop({ref(7)})
    assert held.reports() == [messages.CallsEnded(1, (end(2),))]
