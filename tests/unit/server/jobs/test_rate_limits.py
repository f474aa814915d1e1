"""Limits of requests per user and of parallel transfers."""

import contextlib

import pytest

from kilnwork.kit import clock
from kilnwork.server import errors
from kilnwork.server.jobs import rate_limits, settings


def _limits(
    time: clock.Clock | None = None,
    *,
    posts_per_second: float | None = None,
    burst: int = 100,
    uploads: int = 64,
    downloads: int = 256,
) -> rate_limits.RequestLimits:
    chosen = settings.JobsApiSettings(
        posts_per_second=posts_per_second, burst=burst, uploads=uploads, downloads=downloads
    )
    return rate_limits.RequestLimits(chosen, time or clock.ManualClock())


def test_without_a_rate_every_request_is_admitted() -> None:
    found = _limits(burst=1)
    for _ in range(5):
        found.admit("ann")


def test_burst_is_admitted_then_one_per_interval() -> None:
    time = clock.ManualClock()
    found = _limits(time, posts_per_second=0.5, burst=2)
    found.admit("ann")
    found.admit("ann")
    with pytest.raises(errors.TooManyRequests) as caught:
        found.admit("ann")
    assert caught.value.headers == ((b"retry-after", b"2"),)
    found.admit("bob")
    time.advance(2)
    found.admit("ann")
    with pytest.raises(errors.TooManyRequests):
        found.admit("ann")


def test_bucket_never_exceeds_the_burst() -> None:
    time = clock.ManualClock()
    found = _limits(time, posts_per_second=1, burst=1)
    found.admit("ann")
    time.advance(100)
    found.admit("ann")
    with pytest.raises(errors.TooManyRequests):
        found.admit("ann")


def test_one_user_gets_three_quarters_of_transfers() -> None:
    found = _limits(uploads=4, downloads=4)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(found.upload("ann"))
        with pytest.raises(errors.TooManyRequests, match="of yours"), found.upload("ann"):
            pass
        with found.download("ann"):
            pass
        stack.enter_context(found.upload("bob"))
        with pytest.raises(errors.TooManyRequests, match="4 uploads are"), found.upload("eve"):
            pass
    with found.upload("eve"):
        pass


def test_single_transfer_is_granted_to_any_user() -> None:
    with _limits(uploads=1).upload("ann"):
        pass
