"""Progress: silent for a second, then said once."""

import asyncio

import pytest

from kilnwork.cli import progress


async def test_nothing_is_said_when_it_is_quick(capsys: pytest.CaptureFixture[str]) -> None:
    async with progress.waiting("waiting for x"):
        pass
    assert capsys.readouterr().err == ""


async def test_each_text_is_said_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.01)
    async with progress.waiting("one") as waiting:
        await asyncio.sleep(0.05)
        waiting.say("two")
        await asyncio.sleep(0.05)
    assert capsys.readouterr().err == "one\ntwo\n"
