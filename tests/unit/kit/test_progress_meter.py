"""How far, how fast, how long: as one line."""

import pytest

from kilnwork.kit import progress_meter


def count(number: float) -> str:
    return f"{number:,.0f}"


def test_before_anything_is_done_there_is_no_rate() -> None:
    one = progress_meter.Meter(200, count, unit=" records")
    one.at(0, now_s=10.0)
    assert one.text() == "[..........]   0%  0 of 200 records"
    assert one.rate is None
    assert one.left_s is None


def test_the_rate_is_that_of_the_last_seconds() -> None:
    one = progress_meter.Meter(10_000, count)
    for second in range(40):
        one.at(second * (10 if second < 20 else 100), now_s=float(second))
    assert one.rate == pytest.approx(100, rel=0.01)
    assert one.left_s == pytest.approx((10_000 - 3_900) / 100, rel=0.01)


def test_half_of_it_is_half_a_bar() -> None:
    one = progress_meter.Meter(200, count, unit=" records")
    one.at(0, now_s=0.0)
    one.at(100, now_s=2.0)
    assert one.text() == "[#####.....]  50%  100 of 200 records  2 s left  50/s"
    assert one.text(left_s=185).endswith("3:05 min left  50/s")


def test_an_unknown_total_has_no_bar_and_no_end() -> None:
    one = progress_meter.Meter(None, count, unit=" bytes")
    one.at(0, now_s=0.0)
    one.at(100, now_s=2.0)
    assert one.text() == "100 bytes  50/s"


def test_a_lower_count_restarts_the_rate() -> None:
    one = progress_meter.Meter(100, count)
    one.at(0, now_s=0.0)
    one.at(90, now_s=1.0)
    one.at(10, now_s=2.0)
    assert one.rate is None


def test_nothing_to_do_is_done() -> None:
    one = progress_meter.Meter(0, count)
    one.at(0, now_s=0.0)
    assert "100%" in one.text()
    assert "left" not in one.text()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (59, "59 s"), (61, "1:01 min"), (3599.4, "59:59 min"), (7_300, "2:01 h")],
)
def test_a_duration_is_written_short(seconds: float, text: str) -> None:
    assert progress_meter.format_duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (950, "950"), (12_500, "12,500"), (531_000, "531k"), (1_250_000, "1.25M"),
     (99_999, "99,999"), (10_000_000, "10M"), (2.5e9, "2.5G"), (123_456_789, "123M")],
)  # fmt: skip
def test_a_count_is_written_short(number: float, text: str) -> None:
    assert progress_meter.format_count(number) == text
