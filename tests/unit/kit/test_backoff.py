"""Back-off: exponential, capped, spread."""

import random

from kilnwork.kit import backoff


def test_delays_double_up_to_the_cap() -> None:
    policy = backoff.Backoff(base_s=1, max_s=5)
    assert [policy.delay_s(n) for n in range(6)] == [0, 1, 2, 4, 5, 5]


def test_jitter_stays_within_its_fraction() -> None:
    policy = backoff.Backoff(base_s=10, max_s=10, jitter=0.2)
    delays = [policy.delay_s(1, entropy=random.Random(seed)) for seed in range(200)]
    assert min(delays) >= 8
    assert max(delays) <= 12
    assert max(delays) - min(delays) > 2


def test_many_failures_do_not_overflow() -> None:
    assert backoff.Backoff(base_s=1, max_s=60).delay_s(100_000) == 60
