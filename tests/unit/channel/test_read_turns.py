"""Leader and followers: one reads, the others sleep until it is their turn or they are done."""

import threading
from collections.abc import Callable

from kilnwork.channel import read_turns
from support import waiting


class Wait:
    """One thread in `enter`; `led` is what it returned."""

    def __init__(self, who: read_turns.Turns, done: Callable[[], bool] = lambda: False) -> None:
        self.turn = read_turns.Turn(done)
        self.led: bool | None = None
        self._who = who
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.turn.thread = threading.get_ident()
        self.led = self._who.enter(self.turn, None)

    def asleep(self) -> bool:
        return self.turn.gate is not None and self.led is None

    def over(self) -> bool | None:
        self._thread.join(timeout=30)
        assert not self._thread.is_alive()
        return self.led


def opened() -> read_turns.Turns:
    who = read_turns.Turns()
    who.open()
    return who


def never() -> bool:
    return False


def asleep(*waits: Wait) -> None:
    waiting.wait_until(
        lambda: all(each.asleep() for each in waits), what="all sleep", every_s=0.001
    )


def test_lead_passes_on_in_order_of_arrival() -> None:
    who, first = opened(), read_turns.Turn(never)
    assert who.enter(first, None)
    second = Wait(who)
    asleep(second)
    third = Wait(who)
    asleep(third)
    who.leave(first)
    assert second.over() is True
    assert third.asleep()
    who.leave(second.turn)
    assert third.over() is True
    who.leave(third.turn)
    assert not who.led


def test_thread_whose_condition_is_true_wakes_without_the_lead() -> None:
    who, first, there = opened(), read_turns.Turn(never), threading.Event()
    assert who.enter(first, None)
    done, other = Wait(who, there.is_set), Wait(who)
    asleep(done, other)
    there.set()
    who.look()
    assert done.over() is False
    assert other.asleep()
    who.leave(done.turn)
    who.leave(first)
    assert other.over() is True


def elsewhere(done: Callable[[], bool] = never) -> read_turns.Turn:
    turn = read_turns.Turn(done)
    turn.thread = -1
    return turn


def test_condition_that_became_true_before_the_sleep_is_seen() -> None:
    who, first = opened(), read_turns.Turn(never)
    assert who.enter(first, None)
    assert who.enter(elsewhere(lambda: True), None) is False


def test_follower_that_times_out_passes_the_lead_on() -> None:
    who, first, late = opened(), read_turns.Turn(never), elsewhere()
    assert who.enter(first, None)
    assert who.enter(late, 0.01) is False
    other = Wait(who)
    asleep(other)
    who.leave(late)
    who.leave(first)
    assert other.over() is True


def test_lead_received_too_late_is_passed_on_by_leave() -> None:
    who, first = opened(), read_turns.Turn(never)
    assert who.enter(first, None)
    late = Wait(who)
    asleep(late)
    other = Wait(who)
    asleep(other)
    who.leave(first)
    assert late.over() is True
    who.leave(late.turn)
    assert other.over() is True


def test_no_thread_leads_without_a_connection() -> None:
    who = read_turns.Turns()
    early = Wait(who)
    asleep(early)
    assert not who.led
    who.open()
    assert early.over() is True
    who.shut()
    who.leave(early.turn)
    assert not who.led
    assert not who.lead_if_free(read_turns.Turn(never))


def test_background_thread_leads_only_if_no_other_does() -> None:
    who, reader = opened(), read_turns.Turn(never)
    assert who.lead_if_free(reader)
    waits = Wait(who)
    asleep(waits)
    assert not who.lead_if_free(read_turns.Turn(never))
    begun = who.begun
    who.leave(reader)
    assert waits.over() is True
    assert who.begun == begun + 1


def test_signal_handler_leads_in_place_of_the_interrupted_turn() -> None:
    who, below, handler = opened(), read_turns.Turn(never), read_turns.Turn(never)
    assert who.enter(below, None)
    follower = Wait(who)
    asleep(follower)
    assert who.enter(handler, None)
    who.leave(handler)
    assert who.led
    assert follower.asleep()
    who.leave(below)
    assert follower.over() is True


def test_leave_is_idempotent() -> None:
    who, first = opened(), read_turns.Turn(never)
    assert who.enter(first, None)
    second = Wait(who)
    asleep(second)
    who.leave(first)
    who.leave(first)
    assert second.over() is True
    assert who.led


def test_finish_wakes_all_threads() -> None:
    who, first = opened(), read_turns.Turn(never)
    assert who.enter(first, None)
    waits = [Wait(who) for _ in range(3)]
    asleep(*waits)
    who.finish()
    assert [each.over() for each in waits] == [False, False, False]
    who.leave(first)
    assert who.enter(read_turns.Turn(never), None) is False
