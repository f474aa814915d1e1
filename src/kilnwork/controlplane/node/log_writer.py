"""Writer of container logs in the kubelet's format (CRI), used by the shim: one log per start.

A line is `TIME stdout|stderr F|P TEXT`; P marks part of a line that was too long. Two generations
are kept: `NAME.log` and `NAME.log.1`. `log_reader` reads them. Standard library only: every import
makes the shim larger.
"""

import errno
import os
from pathlib import Path

from kilnwork.kit import clock

MAX_LINE = 16 * 1024
"""Bytes of text in one entry; longer lines are split into P entries (containerd's default)."""

LIMIT = 10 * 1024 * 1024
"""Bytes of one file before it is rotated (the kubelet's containerLogMaxSize)."""


SPARE_BYTES = 256 << 20
"""Bytes that are left free for the journal on the same disk (on a small disk, a twentieth of it).
Same value as in `data.disk_checks`, which the shim does not import in order to stay small."""

LOST = b"[kilnwork: part of this output was lost: the disk was full]"


def previous(path: Path) -> Path:
    """Return the path of the older generation of a log."""
    return path.with_name(f"{path.name}.1")


class LogWriter:
    """Appends the output of a container to its log file.

    The writer never makes the container fail: output that a full disk cannot take, or that would
    take the space reserved for the journal, is dropped, and an entry says so. Output without a
    newline is held back until the line ends, exceeds `MAX_LINE`, or the log is closed.
    """

    def __init__(self, path: Path, *, limit: int = LIMIT, now: clock.Clock) -> None:
        self._path = path
        self._limit = limit
        self._now = now
        self._rest: dict[str, bytes] = {}
        self._file = -1
        self._size = 0
        self._lost = False

    def write(self, stream: str, output: bytes) -> None:
        """Append a piece of output of `stdout` or `stderr`."""
        *lines, rest = (self._rest.get(stream, b"") + output).split(b"\n")
        entries = [piece for line in lines for piece in _cut(line)]
        while len(rest) >= MAX_LINE:
            entries.append((b"P", rest[:MAX_LINE]))
            rest = rest[MAX_LINE:]
        self._rest[stream] = rest
        self._append(stream, entries)

    def close(self) -> None:
        """Write the output that was held back and close the file."""
        for stream, rest in self._rest.items():
            if rest:
                self._append(stream, [(b"F", rest)])
        self._rest.clear()
        if self._lost:
            # This notice may use half of the reserved space.
            self._append("stderr", [], share=0.5)
        self._shut()

    def _append(
        self, stream: str, entries: list[tuple[bytes, bytes]], *, share: float = 1.0
    ) -> None:
        if not entries and not self._lost:
            return
        if self._lost:
            entries = [(b"F", LOST), *entries]
        head = f"{clock.rfc3339_micro(self._now.wall())} {stream} ".encode()
        text = b"".join(b"%b%b %b\n" % (head, tag, line) for tag, line in entries)
        try:
            self._put(text, share)
            self._lost = False
        except OSError as error:
            # Only a full disk gets a notice: after other errors, there is no file to write it to.
            self._lost |= error.errno in (errno.ENOSPC, errno.EDQUOT)
            self._shut()

    def _put(self, text: bytes, share: float) -> None:
        if self._file < 0:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
            self._size = os.fstat(self._file).st_size
        disk = os.fstatvfs(self._file)
        spare = min(SPARE_BYTES, disk.f_blocks * disk.f_frsize // 20)
        if disk.f_bavail * disk.f_frsize - len(text) < spare * share:
            raise OSError(errno.ENOSPC, "what is left on the disk is kept for the journal")
        view = memoryview(text)
        while view:
            written = os.write(self._file, view)
            view = view[written:]
            self._size += written
        if self._size >= self._limit:
            self._shut()
            self._path.replace(previous(self._path))

    def _shut(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _cut(line: bytes) -> list[tuple[bytes, bytes]]:
    pieces = [line[i : i + MAX_LINE] for i in range(0, len(line), MAX_LINE)] or [b""]
    return [*((b"P", piece) for piece in pieces[:-1]), (b"F", pieces[-1])]
