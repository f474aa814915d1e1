"""What was seen of the files of a source: their stamps, and the blobs that they were then.

Used by `pinning`. A file for each source and selection, in lines that are appended: an agent that
is killed while it pins does not read again what it had read, and a source that has not changed is
pinned without reading it. A line that is not whole is left out; what it was about is read again.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from kilnwork.kit import paths


class Seen(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A file at the time of a stamp."""

    path: str
    stamp: str
    size: int
    digest: str


class PinJournal:
    """The file `path`. For one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: dict[str, Seen] = {}
        self._lines = 0
        decoder = msgspec.json.Decoder(Seen)
        try:
            for line in path.read_bytes().split(b"\n")[:-1]:
                self._lines += 1
                try:
                    seen = decoder.decode(line)
                except msgspec.MsgspecError:
                    continue
                self._seen[seen.path] = seen
        except FileNotFoundError:
            pass

    def find(self, path: str, stamp: str) -> Seen | None:
        """Return what that file was with that stamp, None if that was never seen."""
        seen = self._seen.get(path)
        return seen if seen is not None and stamp and seen.stamp == stamp else None

    def add(self, seen: Seen) -> None:
        """Note it. Its blob is on disk already. Raises OSError."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.write(descriptor, b"\n" * (self._lines == 0) + msgspec.json.encode(seen) + b"\n")
        finally:
            os.close(descriptor)
        self._lines += 1
        self._seen[seen.path] = seen

    def keep_only(self, files: Mapping[str, Seen]) -> None:
        """Forget what the source has no longer. Raises OSError."""
        if self._lines > len(files) or set(self._seen) != set(files):
            lines = [msgspec.json.encode(seen) + b"\n" for seen in files.values()]
            paths.write_private(self._path, b"".join(lines))
            self._lines, self._seen = len(lines), dict(files)
