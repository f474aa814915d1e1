"""Answers of the API server about people are kept for their time, and not too many of them."""

from kilnwork.kit import clock
from kilnwork.kube import reviews


async def test_answers_are_remembered_for_their_time() -> None:
    now = clock.ManualClock()
    known: reviews.Remembered[int] = reviews.Remembered(now)
    asked = []

    async def ask() -> tuple[int, float]:
        asked.append(1)
        return len(asked), 10.0

    assert [await known.get("k", ask) for _ in range(3)] == [1, 1, 1]
    now.advance(11)
    assert await known.get("k", ask) == 2


async def test_the_oldest_answers_are_forgotten() -> None:
    known: reviews.Remembered[int] = reviews.Remembered(clock.ManualClock())
    asked = []

    async def ask() -> tuple[int, float]:
        asked.append(1)
        return len(asked), 10.0

    for number in range(reviews.REMEMBERED + 1):
        await known.get(number, ask)
    assert await known.get(reviews.REMEMBERED, ask) == reviews.REMEMBERED + 1
    assert await known.get(0, ask) == reviews.REMEMBERED + 2
