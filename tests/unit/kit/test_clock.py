"""Times as Kubernetes writes and reads them."""

import pytest

from kilnwork.kit import clock


def test_times_are_written_as_kubernetes_does() -> None:
    assert clock.rfc3339(1_700_000_000.9) == "2023-11-14T22:13:20Z"
    assert clock.rfc3339_micro(1_700_000_000.25) == "2023-11-14T22:13:20.250000Z"


@pytest.mark.parametrize("text", ["2023-11-14T22:13:20Z", "2023-11-14T23:13:20+01:00"])
def test_times_are_read_with_any_zone(text: str) -> None:
    assert clock.parse_rfc3339(text) == 1_700_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2023-11-14T22:13:20.25Z", 1_700_000_000.25),
        ("2023-11-14T22:13:20.250000Z", 1_700_000_000.25),
        ("2023-11-14T22:13:20.250000999Z", 1_700_000_000.25),
        ("2023-11-14T21:43:20.5-00:30", 1_700_000_000.5),
    ],
)
def test_fractions_of_a_second_are_read_to_the_microsecond(text: str, seconds: float) -> None:
    assert clock.parse_rfc3339(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "2026-W01-1T03:04:05Z",
        "20260102T030405Z",
        "2026-01-02 03:04:05Z",
        "2026-01-02t03:04:05Z",
        "2026-01-02T03:04:05z",
        "2026-01-02T03Z",
        "2026-01-02T03:04Z",
        "2026-01-02T03:04:05,5Z",
        "2026-01-02T03:04:05.Z",
        "2026-01-02T03:04:05+01",
        "2026-01-02T03:04:05+0100",
        "2026-01-02T03:04:05+01:00:30",
        "2026-01-02T03:04:05+24:00",
        "2026-01-02T24:00:00Z",
        "2026-02-30T03:04:05Z",
        "2026-01-02T03:04:05Z\n",
        "2026-01-0\u0662T03:04:05Z",
    ],
)
def test_what_is_not_rfc_3339_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        clock.parse_rfc3339(text)


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
