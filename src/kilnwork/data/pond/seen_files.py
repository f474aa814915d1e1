"""Pin journal: for each file of a source, the stamp that it had when it was read, and its blob.

Used by `source_pinning`. One file per source and selection, to which lines are appended: an agent
that is killed while it pins does not repeat what it has read, and an unchanged source is pinned
without reading it. An incomplete line is ignored; the source's file is read again.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kilnwork.kit import data_directories


class Seen(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Size and digest that a file of a source had when it had this stamp."""

    path: str
    stamp: str
    size: int
    digest: str


class PinJournal:
    """Record of the files of a source that were read for pins, stored in the file `path`. For one
    thread.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: dict[str, Seen] = {}
        self._lines = 0
        self._is_line_incomplete = False
        """Whether the last line has no line end: its writer was killed, or the disk was full."""
        decoder = msgspec.json.Decoder(Seen)
        try:
            *lines, rest = path.read_bytes().split(b"\n")
            self._is_line_incomplete = bool(rest)
            for line in lines:
                self._lines += 1
                try:
                    seen = decoder.decode(line)
                except msgspec.MsgspecError:
                    continue
                self._seen[seen.path] = seen
        except FileNotFoundError:
            pass

    def find(self, path: str, stamp: str) -> Seen | None:
        """Return size and digest of a file with this stamp, or None if they are unknown."""
        seen = self._seen.get(path)
        return seen if seen is not None and stamp and seen.stamp == stamp else None

    def add(self, seen: Seen) -> None:
        """Record a file whose blob is on disk. Raises OSError."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        line = b"\n" * self._is_line_incomplete + msgspec.json.encode(seen) + b"\n"
        descriptor = os.open(self._path, flags, 0o600)
        try:
            self._is_line_incomplete = os.write(descriptor, line) < len(line)
        finally:
            os.close(descriptor)
        self._lines += 1
        self._seen[seen.path] = seen

    def keep_only(self, files: Mapping[str, Seen]) -> None:
        """Forget files that are no longer in the source. Raises OSError."""
        if self._lines > len(files) or set(self._seen) != set(files):
            lines = [msgspec.json.encode(seen) + b"\n" for seen in files.values()]
            data_directories.write_private(self._path, b"".join(lines))
            self._lines, self._seen = len(lines), dict(files)
            self._is_line_incomplete = False
