"""A buffer of output that passes on whole lines only, to a destination that others write to as
well.

Used by `attempt_output` (commands), `slot_output` (slots) and `slots` (slots that died). A partial
line is kept until its end arrives, it grows longer than `MAX_LINE_BYTES`, or its task ends.
"""

from typing import Protocol

MAX_LINE_BYTES = 16 * 1024
"""Maximum bytes of a partial line; a longer one is passed on in pieces, as container runtimes
do.
"""


class Sink(Protocol):
    """Receiver of whole lines: any number per call, also none, each with its newline."""

    def write(self, data: bytes) -> None: ...


class Lines:
    """Splitter of the output of one attempt into lines."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._begun = b""

    def write(self, data: bytes) -> None:
        """Pass on all complete lines of the data; keep the beginning of an incomplete last line."""
        text = self._begun + data
        end = text.rfind(b"\n") + 1
        if len(text) - end > MAX_LINE_BYTES:
            self._sink.write(text + b"\n")
            self._begun = b""
            return
        self._sink.write(text[:end])
        self._begun = text[end:]

    def close(self) -> None:
        """Pass on the rest of the output: a last line without a newline."""
        if self._begun:
            self._sink.write(self._begun + b"\n")
        self._begun = b""
