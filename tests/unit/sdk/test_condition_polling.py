"""Waiting for something of a server to be over."""

import pytest

from kilnwork.kit import clock
from kilnwork.sdk import condition_polling


@pytest.mark.parametrize("timeout_s", [None, 0.0, 60.0])
def test_finished_job_is_polled_once(timeout_s: float | None) -> None:
    asked = list[bool]()

    def done() -> bool:
        asked.append(True)
        return True

    assert condition_polling.wait_until(done, timeout_s, time=clock.SystemClock())
    assert asked == [True]


def test_condition_is_checked_once_with_timeout_zero() -> None:
    assert not condition_polling.wait_until(lambda: False, 0.0, time=clock.SystemClock())


def test_condition_is_polled_until_it_is_true() -> None:
    responses = iter([False, False, True])
    assert condition_polling.wait_until(lambda: next(responses), None, time=clock.SystemClock())
