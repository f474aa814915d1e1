"""A progress line for many calls: counts, remaining calls, rate, and failures as they happen.

Used by `Task.map`, `gather` and `as_completed` with `progress=True`. The line is shown on a
terminal and in a notebook only, not in a file or a pipe. The numbers come from the futures, in
whatever thread settles them; a separate thread rewrites the line, so that it moves while no caller
waits.
"""

import atexit
import contextlib
import shutil
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any, Self, TextIO

from kilnwork.kit import clock, progress_meter
from kilnwork.sdk import futures

REFRESH_S = 0.1
MAX_FAILURES = 10
"""Maximum number of failures that are printed; further failures are only counted."""

MAX_TEXT = 200
"""Maximum number of characters of an error that are printed."""

_WIDTH = 100
"""Width of the line in a notebook, in columns."""


def show(
    items: futures.Futures[Any], of: str, *, stream: TextIO | None = None
) -> contextlib.AbstractContextManager[object]:
    """Show the progress line until all futures are done or the returned context is left.

    `of`: the name of the calls. `stream`: the stream to write to; by default standard error.
    """
    stream = sys.stderr if stream is None else stream
    if not _is_watched(stream):
        return contextlib.nullcontext()
    line = Line(of, stream)
    items.follow(line.found, line.ended)
    line.start()
    return line


def _is_watched(stream: TextIO | None) -> bool:
    """Return whether a stream is shown to people as it is rewritten: a terminal or a notebook
    cell.
    """
    if stream is None:
        return False
    return stream.isatty() or type(stream).__module__.startswith("ipykernel.")


class Line:
    """The progress line on a stream, with lines for failures above it.

    `of`: the name of the calls.
    """

    def __init__(
        self, of: str, stream: TextIO, *, time: clock.Clock | None = None, width: int | None = None
    ) -> None:
        self._of = of
        self._stream = stream
        self._clock = time or clock.SystemClock()
        self._width = width
        self._began = self._clock.monotonic()
        self._meter = progress_meter.Meter(None, progress_meter.format_count)
        self._total = 0
        self._growing = True
        self._pending: set[futures.Future[Any]] = set()
        self._news: deque[futures.Future[Any]] = deque()
        self._failed = 0
        self._cancelled = 0
        self._shown = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kiln-progress", daemon=True)

    def found(self, future: futures.Future[Any]) -> None:
        """Count a further future."""
        self._total += 1
        self._pending.add(future)
        future.when_done(self._done)

    def ended(self, _: BaseException | None) -> None:
        """Record that `found` has been called for all futures."""
        self._growing = False
        self._look()

    def start(self) -> None:
        """Start showing the line."""
        atexit.register(self.stop)
        self._thread.start()

    def stop(self) -> None:
        """Show the progress line a last time and end it; may be called more than once."""
        self._over.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _done(self, future: futures.Future[Any]) -> None:
        """Count a finished future; called in any thread, possibly twice."""
        if future in self._pending:
            self._pending.discard(future)
            if future.failed():
                self._news.append(future)
            self._look()

    def _look(self) -> None:
        if not self._pending and not self._growing:
            self._over.set()

    def _run(self) -> None:
        try:
            while not self._over.wait(REFRESH_S):
                self.draw()
            self.draw()
            self._write("\n")
        finally:
            atexit.unregister(self.stop)

    def draw(self) -> None:
        """Print new failures and rewrite the line."""
        for text in self._failures():
            self._write(f"\r{self._cut(text)}\n")
        self._write(f"\r{self._cut(self.text())}")

    def text(self) -> str:
        """Return the text of the line."""
        now_s = self._clock.monotonic()
        done = self._total - len(self._pending)
        self._meter.total = None if self._growing else self._total
        self._meter.at(done, now_s=now_s)
        text = f"{self._of}  {self._meter.text()}"
        if self._failed:
            text += f"  {self._failed:,} failed"
        if self._cancelled:
            text += f"  {self._cancelled:,} cancelled"
        over = not self._pending and not self._growing
        return f"{text}  in {progress_meter.format_duration(now_s - self._began)}" if over else text

    def _failures(self) -> Iterator[str]:
        while self._news:
            future = self._news.popleft()
            if future.cancelled():
                self._cancelled += 1
                continue
            self._failed += 1
            self._shown += 1
            if self._shown <= MAX_FAILURES:
                yield f"{self._of} failed: {_error(future)}"
            elif self._shown == MAX_FAILURES + 1:
                yield f"{self._of}: more failures are counted and not shown"

    def _cut(self, text: str) -> str:
        """Return the text cut to one line of the screen, padded to cover the previous text."""
        width = self._width
        if width is None:
            width = shutil.get_terminal_size().columns - 1 if self._stream.isatty() else _WIDTH
        return text[:width].ljust(width)

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed
            self._stream.write(text)
            self._stream.flush()


def _error(future: futures.Future[Any]) -> str:
    """Return the error of a future and the call that raised it, in one line."""
    error = future.exception()
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    which = f" ({future.id[-8:]})" if isinstance(future, futures.CallFuture) else ""
    return f"{text[:MAX_TEXT]}{which}"
