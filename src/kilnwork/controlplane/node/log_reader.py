"""Reader of container logs: converts CRI lines to the output of `kubectl logs`, with its options.

Used by `kubelet_api`, `local_node` and `termination_messages`. `log_writer` writes the logs; its
two generations are read as one log. The reader follows a file through rotation by polling. It does
not know Pods: the caller says whether a log may still grow.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from kilnwork.controlplane.node import log_writer

_CHUNK = 64 * 1024
_LOOK_S = 0.1


class LogOptions(NamedTuple):
    """Options of a log request (core/v1 PodLogOptions); None means no limit."""

    follow: bool = False
    tail_lines: int | None = None
    since: str | None = None
    """Time of the first line to return, in the format of the times in the log."""
    timestamps: bool = False
    limit_bytes: int | None = None


class LogRenderer:
    """Converts CRI log lines to output.

    The renderer keeps what is left of the byte limit, and an incomplete line.
    """

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._left = options.limit_bytes
        self._rest = b""
        self._fresh = True

    @property
    def full(self) -> bool:
        """Return whether the byte limit is reached."""
        return self._left == 0

    def feed(self, data: bytes) -> bytes:
        """Return the output of the lines that `data` completes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        output = b"".join(self._line(line) for line in lines)
        if self._left is not None:
            output = output[: self._left]
            self._left -= len(output)
        return output

    def _line(self, line: bytes) -> bytes:
        time, _, rest = line.partition(b" ")
        _, _, rest = rest.partition(b" ")
        tag, _, text = rest.partition(b" ")
        since = self._options.since
        # Times are in UTC and have a fixed width, so their texts compare like times.
        if tag not in (b"F", b"P") or (since is not None and time.decode() < since):
            return b""
        # A line has one timestamp, even if it is split into several entries.
        head = time + b" " if self._options.timestamps and self._fresh else b""
        self._fresh = tag == b"F"
        return head + text + (b"\n" if self._fresh else b"")


async def read(
    path: Path, options: LogOptions, *, more: Callable[[], bool] = lambda: False
) -> AsyncGenerator[bytes, None]:
    """Yield the log at `path` in pieces. A log that does not exist yet is empty.

    With `follow`, reading continues while `more()` is true, and ends after everything that was
    written until then.
    """
    rendering = LogRenderer(options)
    log = _Log(path, tail_lines=options.tail_lines)
    try:
        while not rendering.full:
            # Asked before reading, so that everything written until the container ended is read.
            waits = options.follow and more()
            while (data := log.block()) and not rendering.full:
                if output := rendering.feed(data):
                    yield output
            if not waits:
                return
            await asyncio.sleep(_LOOK_S)
    finally:
        log.close()


class _Log:
    """Both generations of a log as one stream, through rotation."""

    def __init__(self, path: Path, *, tail_lines: int | None) -> None:
        self._path = path
        older, newer = _open(log_writer.previous(path)), _open(path)
        self._file = older or newer
        if tail_lines is not None:
            missing = tail_lines - (seek_tail(newer, tail_lines) if newer is not None else 0)
            if older is not None:
                seek_tail(older, missing)
            if newer is not None and missing <= 0:
                self._file = newer
        for file in (older, newer):
            if file is not None and file is not self._file:
                file.close()

    def block(self) -> bytes:
        """Return the next block of the log, or b"" at its present end."""
        while True:
            if self._file is None:
                self._file = _open(self._path)
            if self._file is None:
                return b""
            # Checked before reading, so that nothing written until the rotation is missed.
            finished = _replaced(self._file, self._path)
            data = self._file.read(_CHUNK)
            if data or not finished:
                return data
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _open(path: Path) -> BufferedReader | None:
    try:
        return path.open("rb")
    except FileNotFoundError:
        return None


def tail(path: Path, *, lines: int) -> bytes:
    """Return the last lines of a log's newer generation, or b"" if there is no log."""
    file = _open(path)
    if file is None:
        return b""
    with file:
        seek_tail(file, lines)
        return LogRenderer(LogOptions()).feed(file.read())


def seek_tail(file: BufferedReader, count: int) -> int:
    """Seek to the start of the last `count` lines. Return the number of lines found."""
    end = file.seek(0, os.SEEK_END)
    if count <= 0:
        return 0
    position, lines = max(0, end - 1), 0  # the last byte is the newline of the last line
    while position > 0:
        size = min(_CHUNK, position)
        position -= size
        file.seek(position)
        block = file.read(size)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            lines += 1
            if lines == count:
                file.seek(position + at + 1)
                return count
    file.seek(0)
    return lines + (1 if end else 0)


def _replaced(file: BufferedReader, path: Path) -> bool:
    """Return whether `path` is another file by now, which means that `file` will not grow."""
    try:
        return path.stat().st_ino != os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False
