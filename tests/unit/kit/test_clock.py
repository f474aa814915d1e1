"""Times as Kubernetes writes and reads them."""

import pytest

from kilnwork.kit import clock


def test_times_are_written_as_kubernetes_does() -> None:
    assert clock.rfc3339(1_700_000_000.9) == "2023-11-14T22:13:20Z"
    assert clock.rfc3339_micro(1_700_000_000.25) == "2023-11-14T22:13:20.250000Z"


@pytest.mark.parametrize("text", ["2023-11-14T22:13:20Z", "2023-11-14T23:13:20+01:00"])
def test_times_are_read_with_any_zone(text: str) -> None:
    assert clock.parse_rfc3339(text) == 1_700_000_000


@pytest.mark.parametrize("text", ["2023-11-14T22:13:20", "tomorrow", ""])
def test_a_time_without_zone_or_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        clock.parse_rfc3339(text)


@pytest.mark.parametrize(
    "text",
    ["9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+14:00"],
)
def test_a_time_that_could_not_be_written_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="in no year from 1 to 9999"):
        clock.parse_rfc3339(text)


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
def test_the_first_and_the_last_time_are_written_as_they_were_read(text: str) -> None:
    assert clock.rfc3339(clock.parse_rfc3339(text)) == text


def test_a_manual_clock_moves_only_by_a_call() -> None:
    hand = clock.ManualClock()
    before = hand.monotonic(), hand.wall()
    hand.advance(2.5)
    assert (hand.monotonic() - before[0], hand.wall() - before[1]) == (2.5, 2.5)
