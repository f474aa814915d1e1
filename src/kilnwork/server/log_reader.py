"""Log reading: reads the log files of an attempt, from the beginning or the tail, and follows them
while they are written.

Used by `task_api`. The log of an attempt consists of at most two files, `N.log` and the older
`N.log.1`; the writer renames the first to the second and begins a new one. A reader that follows
the log keeps its place across that. Everything before the older file is lost: unless only the tail
is read, the first line says how many bytes are lost.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Self

BLOCK_BYTES = 64 * 1024


class LogReader:
    """Reader of the log of one attempt; `read` returns the bytes in the order they were written.

    Use it as a context manager, or call `close`. Output is skipped only if the reader is so
    slow that the writer fills a whole further file, and files are renamed twice.
    """

    def __init__(self, path: Path, *, tail: int | None = None) -> None:
        self._path = path
        self._older = path.with_name(path.name + ".1")
        self._file: BinaryIO | None = None
        self._queue: list[BinaryIO] = []
        self._before = b""
        self._open_both()
        if tail is not None:
            self._skip_to_tail(tail)
        elif self._queue:
            self._before = _dropped_notice(path, self._file)

    def _open_both(self) -> None:
        files = [f for f in (_open(self._older), _open(self._path)) if f is not None]
        if len(files) == 2 and _is_same_file(files[0], files[1]):
            files.pop().close()
        if files:
            self._file = files.pop(0)
            self._queue = files

    def read(self) -> bytes:
        """Return up to `BLOCK_BYTES` more bytes of the log; b"" if no more are available now."""
        if self._before:
            before, self._before = self._before, b""
            return before
        if self._file is None:
            self._open_both()
        while self._file is not None:
            data = self._file.read(BLOCK_BYTES)
            if data or not self._advance():
                return data
        return b""

    def _advance(self) -> bool:
        """Open the next file if the current one is not written to any more. Return whether there
        may be more to read.
        """
        assert self._file is not None  # noqa: S101
        if not self._queue:
            current = _open(self._path)
            if current is None:
                return False
            if _is_same_file(current, self._file):
                current.close()
                return False
            rest = self._file.read(BLOCK_BYTES)
            if rest:
                self._file.seek(-len(rest), os.SEEK_CUR)
                current.close()
                return True
            self._queue.append(current)
        self._file.close()
        self._file = self._queue.pop(0)
        return True

    def _skip_to_tail(self, lines: int) -> None:
        """Move the position of the reader to the beginning of the last `lines` lines."""
        files = [f for f in (self._file, *self._queue) if f is not None]
        wanted = lines
        for at in range(len(files) - 1, -1, -1):
            wanted = _seek_tail(files[at], wanted, at_end=at == len(files) - 1)
            if wanted <= 0:
                for file in files[:at]:
                    file.close()
                self._file, self._queue = files[at], files[at + 1 :]
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the log files that are open."""
        for file in (self._file, *self._queue):
            if file is not None:
                file.close()
        self._file, self._queue = None, []


def _dropped_notice(path: Path, oldest: BinaryIO | None) -> bytes:
    """Return a line that says how much output was dropped before the older file, or b"" if none
    was.

    Each dropped file was as large as the older file.
    """
    try:
        renamed = int(path.with_name(path.name + ".rotated").read_text())
    except (OSError, ValueError):
        return b""
    if renamed < 2 or oldest is None:
        return b""
    count = (renamed - 1) * os.fstat(oldest.fileno()).st_size
    return b"[kilnwork: the first %d bytes of the log were dropped]\n" % count


def _open(path: Path) -> BinaryIO | None:
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        return None


def _is_same_file(left: BinaryIO, right: BinaryIO) -> bool:
    return os.path.sameopenfile(left.fileno(), right.fileno())


def _seek_tail(file: BinaryIO, lines: int, *, at_end: bool) -> int:
    """Seek `file` to the beginning of its last `lines` lines; return the number of lines that an
    older file must supply.

    A line break at the very end ends the last line and does not begin another.
    """
    size = file.seek(0, os.SEEK_END)
    if lines == 0:
        return 0
    found = 0
    for start, block in _blocks_backwards(file, size):
        end = len(block)
        if at_end and start + end == size and block.endswith(b"\n"):
            end -= 1
        while (place := block.rfind(b"\n", 0, end)) >= 0:
            found += 1
            if found == lines:
                file.seek(start + place + 1)
                return 0
            end = place
    file.seek(0)
    return lines - found


def _blocks_backwards(file: BinaryIO, size: int) -> Iterator[tuple[int, bytes]]:
    while size > 0:
        start = max(0, size - BLOCK_BYTES)
        file.seek(start)
        yield start, file.read(size - start)
        size = start
