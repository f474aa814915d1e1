"""A program in a terminal: its output, and input typed at its prompts."""

import os
import pty
import re
import select
import subprocess
from collections.abc import Mapping, Sequence

from support import waiting


class Terminal:
    """One program with a terminal as its standard input, output and error."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.shown = ""
        self._process = subprocess.Popen(
            argv,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**environment, "TERM": "xterm", "COLUMNS": "100"},
            start_new_session=True,
        )
        os.close(theirs)

    def respond(self, question: str, text: str) -> None:
        """Type a line once a prompt is shown that was not responded to yet."""
        start = len(self.shown)
        waiting.wait_until(
            lambda: question in self._read()[start:], what=f"it asks {question!r}: {self.shown}"
        )
        os.write(self._ours, f"{text}\n".encode())

    def until(self, pattern: str) -> None:
        """Wait until the output matches a regular expression."""
        try:
            waiting.wait_until(lambda: re.search(pattern, self._read()), what=f"{pattern!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.shown}") from None

    def end(self) -> int:
        """Wait for the end of the program; return its exit code."""
        waiting.wait_until(lambda: not self._read(ended=True), what="it ends", timeout_s=30)
        code = self._process.wait()
        os.close(self._ours)
        return code

    def _read(self, *, ended: bool = False) -> str:
        """Return all output so far; with `ended`, "" once the program has closed its terminal."""
        while select.select([self._ours], [], [], 0)[0]:
            try:
                some = os.read(self._ours, 65536)
            except OSError:  # the other side is closed
                return "" if ended else self.shown
            self.shown += some.decode(errors="replace")
        return self.shown or "nothing yet"
