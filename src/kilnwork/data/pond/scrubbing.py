"""Scrubbing: blobs at rest are read again, slowly, and what differs from its digest is set aside.

Used by the agent. A disk may damage what is not written to; only reading tells. One pass goes over
all blobs in the order of their digests; where it is stands in a file, so an agent that is started
again goes on from there. What is read is not kept in memory by the kernel, else it would be memory
that is checked.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from kilnwork.data.pond import blob_files
from kilnwork.kit import clock, paths

PASS_S = 7 * 86_400.0
"""From the end of a pass to the begin of the next. Large disks return damaged bytes once in months;
weekly is what file systems with checksums are scrubbed at most."""

NOTE_BYTES = 64 << 20
"""Checked between two writes of where it is."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pass is. `after`: blobs up to this digest (hex) were checked, "" before the first;
    `finished`: when the last pass ended, wall clock."""

    after: str = ""
    finished: float = 0.0


class Scrubber:
    """See the module. Blocking, for one thread. `checked`: bytes since it was made."""

    def __init__(self, blobs: blob_files.BlobFiles, *, time: clock.Clock) -> None:
        self._blobs = blobs
        self._path = position_path(blobs.root)
        self._clock = time
        self.checked = 0

    def wait_s(self) -> float:
        """Seconds until there is something to check; 0 in the middle of a pass. A store that has
        never been checked was filled just now."""
        now = self._position()
        if now.after:
            return 0.0
        return max(0.0, now.finished + PASS_S - self._clock.wall())

    def run(self, pace: Callable[[int], None]) -> Iterator[bytes]:
        """Check all blobs from where it stopped, and yield those that were damaged. `pace` is
        called with the bytes of each piece; it may wait, or raise to stop."""
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
        paths.write_private(self._path, msgspec.json.encode(position))


def position_path(root: Path) -> Path:
    return root / "scrub.json"
