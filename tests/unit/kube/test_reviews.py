"""Results of reviews are cached until they expire, and at most a fixed number of them."""

import asyncio
from typing import Any

import pytest

from kilnwork.api import meta
from kilnwork.kit import clock, coroutines
from kilnwork.kube import errors, reviews


async def test_results_are_cached_until_they_expire() -> None:
    now = clock.ManualClock()
    known: reviews.Remembered[int] = reviews.Remembered(now)
    asked = []

    async def ask() -> tuple[int, float]:
        asked.append(1)
        return len(asked), 10.0

    assert [await known.get("k", ask) for _ in range(3)] == [1, 1, 1]
    now.advance(11)
    assert await known.get("k", ask) == 2


async def test_oldest_results_are_evicted() -> None:
    known: reviews.Remembered[int] = reviews.Remembered(clock.ManualClock())
    asked = []

    async def ask() -> tuple[int, float]:
        asked.append(1)
        return len(asked), 10.0

    for number in range(reviews.REMEMBERED + 1):
        await known.get(number, ask)
    assert await known.get(reviews.REMEMBERED, ask) == reviews.REMEMBERED + 1
    assert await known.get(0, ask) == reviews.REMEMBERED + 2


async def test_refusals_displace_nothing_else() -> None:
    now = clock.ManualClock()
    known: reviews.Remembered[bool] = reviews.Remembered(now)
    asked = 0

    async def yes() -> tuple[bool, float]:
        nonlocal asked
        asked += 1
        return True, 10.0

    async def no() -> tuple[bool, float]:
        nonlocal asked
        asked += 1
        return False, 5.0

    await known.get("good", yes)
    for number in range(reviews.REMEMBERED + 1):
        await known.get(number, no)
    before = asked
    assert await known.get("good", yes)
    assert not await known.get(reviews.REMEMBERED, no), "a refusal is remembered too"
    assert asked == before
    now.advance(6)
    assert await known.get(reviews.REMEMBERED, yes), "for its time"


async def test_a_flood_of_questions_is_asked_a_few_at_a_time() -> None:
    known: reviews.Remembered[bool] = reviews.Remembered(clock.ManualClock())
    gate, running, most, asked = asyncio.Event(), 0, 0, 0

    async def ask() -> tuple[bool, float]:
        nonlocal running, most, asked
        running, asked = running + 1, asked + 1
        most = max(most, running)
        await gate.wait()
        running -= 1
        return False, 5.0

    background = coroutines.BackgroundWork("flood")
    waiting = [
        background.start(str(number), known.get(number // 2, ask))
        for number in range(reviews.WAITING)
    ]
    while running < reviews.AT_ONCE:
        await asyncio.sleep(0)
    with pytest.raises(errors.Unavailable, match="too many"):
        await known.get("one more", ask)
    gate.set()
    assert not any(await asyncio.gather(*waiting))
    assert most == reviews.AT_ONCE
    assert asked < reviews.WAITING, "the same is not asked again by those who wait"
    assert not await known.get("one more", ask)


class Reviewer:
    """Returns one status for every review, as a client of an API server would."""

    def __init__(self, status: meta.JsonObject) -> None:
        self._status = status

    async def create(self, _: object, body: meta.JsonObject) -> meta.JsonObject:
        return {**body, "status": self._status}


@pytest.mark.parametrize(
    ("audiences", "returned", "is_valid"),
    [
        (["kilnwork"], ["kilnwork"], True),
        (["kilnwork", "other"], ["other"], True),
        (["kilnwork"], ["other"], False),
        (["kilnwork"], None, False),
        ([], None, True),
    ],
)
async def test_token_is_valid_only_for_an_audience_that_the_server_confirms(
    audiences: list[str], returned: list[str] | None, *, is_valid: bool
) -> None:
    """An authenticator that ignores audiences accepts any token, and returns no audiences."""
    status: meta.JsonObject = {"authenticated": True, "user": {"username": "u"}}
    if returned is not None:
        status["audiences"] = returned
    reviewer: Any = Reviewer(status)
    user = await reviews.user_of(reviewer, "token", audiences=audiences)
    assert (user is not None) is is_valid
