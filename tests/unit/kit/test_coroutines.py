"""Background work: owned, stopped together, never failing in silence."""

import asyncio

from kilnwork.kit import coroutines


async def test_a_failure_reaches_the_owner() -> None:
    seen: list[str] = []
    notified = asyncio.Event()

    def on_failure(name: str, error: BaseException) -> None:
        seen.append(f"{name}: {error}")
        notified.set()

    async def fail() -> None:
        raise ValueError("no")

    background = coroutines.BackgroundWork("test", on_failure=on_failure)
    background.start("fail", fail())
    await asyncio.wait_for(notified.wait(), 30)
    assert seen == ["test/fail: no"]
    assert len(background) == 0


async def test_stop_ends_every_member() -> None:
    background = coroutines.BackgroundWork("test")
    members = [background.start(str(n), asyncio.Event().wait()) for n in range(3)]
    await background.stop()
    assert all(m.cancelled() for m in members)
    assert len(background) == 0
