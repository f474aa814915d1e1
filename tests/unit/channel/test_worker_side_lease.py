"""A lease counts from when its renewal was sent."""

import pytest

from kilnwork.channel import worker_side_lease


def test_no_attempt_may_run_before_the_first_link() -> None:
    assert worker_side_lease.Lease().stop_at == float("-inf")


def test_work_stops_two_seconds_before_a_ten_second_lease_ends() -> None:
    held = worker_side_lease.Lease()
    held.begin(10.0, sent=100.0)
    assert held.stop_at == 108.0


def test_short_lease_has_a_short_margin() -> None:
    held = worker_side_lease.Lease()
    held.begin(1.0, sent=0.0)
    assert held.stop_at == pytest.approx(0.8)


def test_renewal_counts_from_its_request() -> None:
    held = worker_side_lease.Lease()
    held.begin(10.0, sent=0.0)
    held.sent(1, at=3.0)
    held.sent(2, at=6.0)
    assert held.stop_at == 8.0
    held.granted(1)
    assert held.stop_at == 11.0
    held.granted(2)
    assert held.stop_at == 14.0


def test_late_or_unknown_renewal_changes_nothing() -> None:
    held = worker_side_lease.Lease()
    held.begin(10.0, sent=0.0)
    held.sent(1, at=3.0)
    held.sent(2, at=6.0)
    held.granted(2)
    held.granted(1)
    held.granted(7)
    assert held.stop_at == 14.0


def test_new_link_starts_a_new_lease() -> None:
    held = worker_side_lease.Lease()
    held.begin(10.0, sent=0.0)
    held.sent(1, at=3.0)
    held.begin(2.0, sent=4.0)
    held.granted(1)
    assert held.stop_at == pytest.approx(5.6)


@pytest.mark.parametrize("absence_s", [10.0, 60.0, 3600.0])
def test_lease_covers_an_absence_that_begins_at_any_moment(absence_s: float) -> None:
    renew_s = absence_s / 3
    held = worker_side_lease.Lease()
    held.begin(worker_side_lease.length_for(absence_s, renew_s=renew_s), sent=100.0)
    gone = 100.0 + renew_s  # right before the first renewal would have been acknowledged
    assert held.stop_at >= gone + absence_s + worker_side_lease.RETURN_S
