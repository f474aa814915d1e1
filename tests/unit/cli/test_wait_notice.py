"""Notices: silent for a second, then printed once."""

import asyncio

import pytest

from kilnwork.cli import wait_notice
from support import waiting


async def test_short_wait_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async with wait_notice.waiting("waiting for x"):
        pass
    assert capsys.readouterr().err == ""


async def test_each_text_is_printed_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_notice, "PATIENCE_S", 0.01)
    said = ""

    def heard() -> str:
        nonlocal said
        said += capsys.readouterr().err
        return said

    async with wait_notice.waiting("one") as shown:
        await waiting.wait_until_async(lambda: heard() == "one\n", what="the first text")
        shown.say("two")
        await waiting.wait_until_async(lambda: heard() == "one\ntwo\n", what="the second")
        await asyncio.sleep(0.05)
    assert heard() == "one\ntwo\n"
