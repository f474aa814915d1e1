"""Whole lines of output on their way to a place that others write to as well.

Used by `attempt_output` (commands) and `slot_output` (slots). The end of a line comes, or the line
is too long, or its task is over: until then it is kept here.
"""

from typing import Protocol

MAX_LINE_BYTES = 16 * 1024
"""A line that grows longer is passed on in pieces, as container runtimes do."""


class Sink(Protocol):
    """Where lines go: several, each with its end."""

    def write(self, data: bytes) -> None: ...


class Lines:
    """The lines of one attempt."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._begun = b""

    def write(self, data: bytes) -> None:
        """Pass on all whole lines; keep the beginning of the last."""
        text = self._begun + data
        end = text.rfind(b"\n") + 1
        if len(text) - end > MAX_LINE_BYTES:
            self._sink.write(text + b"\n")
            self._begun = b""
            return
        self._sink.write(text[:end])
        self._begun = text[end:]

    def close(self) -> None:
        """Pass on a last line that has no end."""
        if self._begun:
            self._sink.write(self._begun + b"\n")
        self._begun = b""
