"""Notices that say what a command waits for, shown once it has waited for a second.

In a terminal one line is rewritten (rich, imported only then); otherwise a plain line is printed
when the text changes. Everything goes to standard error, so that the output stays clean. Used by
commands that wait.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from typing import Any, Protocol

import click

from kilnwork.cli import lazy_import
from kilnwork.kit import coroutines

PATIENCE_S = 1.0
"""How long a command waits before it shows a notice."""


class _Display(Protocol):
    def show(self, text: str) -> None: ...
    def close(self) -> None: ...


class _Lines:
    """Display of a notice in plain lines: prints a text when it differs from the last one."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, text: str) -> None:
        if text != self._last:
            click.echo(text, err=True)
            self._last = text

    def close(self) -> None:
        """Do nothing, because printed lines stay."""


class _Spinner:
    """Display of a notice in one line that rich animates and removes at the end."""

    def __init__(self) -> None:
        self._console: Any = lazy_import.load("rich.console", "Console")(stderr=True)
        self._status: Any = lazy_import.load("rich.status", "Status")("", console=self._console)
        self._status.start()

    def show(self, text: str) -> None:
        room = max(20, self._console.width - 4)
        line = text if len(text) <= room else f"{text[: room - 1]}…"
        self._status.update(lazy_import.load("rich.text", "Text")(line))

    def close(self) -> None:
        self._status.stop()


class WaitNotice:
    """Notice with a text about the current wait; call `say` whenever the text changes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def say(self, text: str) -> None:
        """Set the text that says what the command waits for."""
        self.text = text


@contextlib.asynccontextmanager
async def waiting(text: str, *, every_s: float | None = None) -> AsyncIterator[WaitNotice]:
    """Show a notice while a `with` block takes longer than a second.

    `every_s`: seconds between plain lines; None: print one whenever the text changes.
    """
    current = WaitNotice(text)
    background = coroutines.BackgroundWork("progress")
    background.start("show", _show(current, every_s))
    try:
        yield current
    finally:
        await background.stop()


async def _show(current: WaitNotice, every_s: float | None) -> None:
    await asyncio.sleep(PATIENCE_S)
    moves = sys.stderr.isatty()
    display: _Display = _Spinner() if moves else _Lines()
    try:
        while True:
            display.show(current.text)
            await asyncio.sleep(PATIENCE_S / 4 if moves or every_s is None else every_s)
    finally:
        display.close()
