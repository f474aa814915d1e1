"""Scrubbing: slowly reads the stored blobs again, and sets aside blobs whose content differs from
their digest.

Used by the agent. A disk may damage data that is not written to, which only reading shows. One pass
reads all blobs in the order of their digests; the position is in a file, so that a restarted agent
continues from there. The bytes that were read are dropped from the page cache, since otherwise
memory would be checked instead of the disk.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from kilnwork.data.pond import blob_files
from kilnwork.kit import clock, data_directories

PASS_S = 7 * 86_400.0
"""Seconds from the end of a pass to the start of the next one. Large disks return damaged bytes
about once in months, and file systems with checksums are scrubbed once a week at most."""

NOTE_BYTES = 64 << 20
"""Number of bytes checked between two writes of the position."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Position of a pass over all blobs. `after`: the last checked digest (hex), "" before the
    first; `finished`: when the last pass ended, wall clock.
    """

    after: str = ""
    finished: float = 0.0


class Scrubber:
    """Checker of all blobs, in passes. Blocks; for one thread. `checked`: bytes checked since it
    was created.
    """

    def __init__(self, blobs: blob_files.BlobFiles, *, time: clock.Clock) -> None:
        self._blobs = blobs
        self._path = position_path(blobs.root)
        self._clock = time
        self.checked = 0

    def wait_s(self) -> float:
        """Return the seconds until the next pass; 0 within a pass. The first pass of a new store
        starts `PASS_S` after the first call."""
        now = self._position()
        if now.after:
            return 0.0
        return max(0.0, now.finished + PASS_S - self._clock.wall())

    def run(self, pace: Callable[[int], None]) -> Iterator[bytes]:
        """Check all blobs from the saved position on, and yield the digests of damaged blobs.

        `pace` is called with the number of bytes of each piece; it may wait, or raise to stop.
        """
        position, noted = self._position(), self.checked
        for digest, size in sorted(self._blobs.sizes().items()):
            if digest.hex() <= position.after:
                continue
            before = self._blobs.damaged
            self._blobs.verify(digest, size, pace=pace, from_disk=True)
            self.checked += size
            if self._blobs.damaged > before:
                yield digest
            position = Position(after=digest.hex(), finished=position.finished)
            if self.checked - noted >= NOTE_BYTES:
                self._note(position)
                noted = self.checked
        self._note(Position(finished=self._clock.wall()))

    def _position(self) -> Position:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Position)
        except FileNotFoundError:
            fresh = Position(finished=self._clock.wall())
            self._note(fresh)
            return fresh
        except msgspec.MsgspecError:
            return Position()

    def _note(self, position: Position) -> None:
        data_directories.write_private(self._path, msgspec.json.encode(position))


def position_path(root: Path) -> Path:
    return root / "scrub.json"
