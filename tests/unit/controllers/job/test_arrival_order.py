"""The order in which Jobs are handed in."""

from kilnwork.controllers.job import arrival_order

A, B, C = ("default", "a"), ("default", "b"), ("default", "c")
ELSEWHERE = ("other", "a")


def test_first_job_in_an_empty_queue_does_not_wait() -> None:
    line = arrival_order.ArrivalOrder()
    assert not line.must_wait(A)
    assert line.leave(A) is None
    assert len(line) == 0


def test_later_job_waits_for_a_job_being_patched() -> None:
    line = arrival_order.ArrivalOrder()
    line.enter(A)
    assert line.must_wait(B)
    assert not line.must_wait(ELSEWHERE)
    assert not line.must_wait(A)
    assert line.leave(A) == B
    assert not line.must_wait(B)
    assert line.leave(B) is None
    assert len(line) == 0


def test_positions_follow_the_order_of_the_first_passes() -> None:
    line = arrival_order.ArrivalOrder()
    for key in (A, B, C):
        line.enter(key)
    assert line.must_wait(C)
    assert line.must_wait(B)
    line.enter(A)
    assert line.leave(A) == B
    assert line.leave(B) == C


def test_job_being_patched_is_not_returned_as_next() -> None:
    line = arrival_order.ArrivalOrder()
    line.enter(A)
    line.enter(B)
    assert line.must_wait(C)
    assert line.leave(A) is None
    assert line.leave(B) == C


def test_leaving_from_the_middle_delays_no_other() -> None:
    line = arrival_order.ArrivalOrder()
    line.enter(A)
    assert line.must_wait(B)
    assert line.must_wait(C)
    assert line.leave(B) is None
    assert line.leave(B) is None
    assert line.leave(A) == C
