"""Budgets and delays."""

import random

import pytest

from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import retries


@pytest.mark.parametrize(
    ("on", "reason", "exit_code", "requested", "expected"),
    [
        ((), "NonZeroExit", 1, False, True),
        (("exit:1",), "NonZeroExit", 1, False, True),
        (("exit:2",), "NonZeroExit", 1, False, False),
        (("exit:2",), "RetryRequested", 75, True, True),
        (("timeout",), "TimedOut", 143, False, True),
        (("exit:143",), "TimedOut", 143, False, False),
        (("timeout",), "InvalidResult", 0, False, False),
    ],
)
def test_which_failures_are_retried(
    *, on: tuple[str, ...], reason: str, exit_code: int, requested: bool, expected: bool
) -> None:
    retry = api_task.Retry(max_attempts=2, on=on)
    again = retries.retries_failure(
        retry, failures=1, reason=reason, exit_code=exit_code, requested=requested
    )
    assert again is expected


def test_nothing_is_retried_beyond_the_budget() -> None:
    retry = api_task.Retry(max_attempts=2)
    assert not retries.retries_failure(
        retry, failures=2, reason="NonZeroExit", exit_code=75, requested=True
    )


def test_losses_have_a_budget_of_their_own() -> None:
    retry = api_task.Retry(max_losses=2)
    assert [retries.retries_loss(retry, losses=n) for n in (1, 2, 3)] == [True, True, False]


def test_delays_grow_up_to_their_cap() -> None:
    retry = api_task.Retry(delay_seconds=1, factor=3, max_delay_seconds=5, jitter=0)
    entropy = random.Random(1)
    assert [retries.failure_delay_s(retry, n, entropy) for n in (1, 2, 3)] == [1, 3, 5]
    assert [retries.loss_delay_s(retry, n, entropy) for n in (1, 2, 3)] == [0, 1, 3]


def test_jitter_spreads_delays_both_ways() -> None:
    retry = api_task.Retry(delay_seconds=10, jitter=0.2)
    entropy = random.Random(1)
    delays = [retries.failure_delay_s(retry, 1, entropy) for _ in range(200)]
    assert 8 <= min(delays) < 9
    assert 11 < max(delays) <= 12
