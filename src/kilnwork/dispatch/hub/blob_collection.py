"""Removes blobs to which neither a row nor a template refers.

Used by `retention`. A blob to which a row or template refers is never removed. Any other blob is
removed when it was not renewed for an hour (`data.local_blobs`), or for ten minutes if a forgotten
task referred to it. Either period counts only while the wall clock keeps pace with a clock that
stops while the machine sleeps: so the holder of a reference has time to renew it after a laptop
wakes up, or after the wall clock was set.
"""

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kilnwork.data import blob_renewal, local_blobs
from kilnwork.kit import clock as clocks

log = logging.getLogger(__name__)

KEEP_S = 3600.0
"""Seconds after its last renewal for which a blob without a reference is kept: longer than any
writer waits between writing a blob and writing the row that refers to it.
"""

RELEASED_KEEP_S = 2.0 * blob_renewal.RENEW_S
"""Seconds after its last renewal for which a blob is kept whose rows were deleted: its writer does
not need it any more, and its holders, and submitters of the same value, renew it every `RENEW_S`.
"""

MIN_STEADY_S = 1.5 * blob_renewal.RENEW_S
"""Seconds without a jump of the wall clock before blobs are deleted: in this time every holder has
renewed its blobs.
"""

JUMP_S = 5.0
"""Maximum seconds by which wall clock and monotonic clock may differ between two samples; a larger
difference is a jump.
"""

RELEASED_ROUND_S = 60.0
"""Seconds between two checks of the blobs of forgotten tasks."""

MAX_RELEASED = 1 << 20
"""Maximum number of blobs of forgotten tasks that are remembered, about 100 bytes each; others are
deleted after `KEEP_S`.
"""

BATCH = 500
"""Number of digests that are looked up at a time: some milliseconds."""

Referenced = Callable[[Sequence[bytes]], set[bytes]]
"""Returns the digests to which some row or template refers. Called in a thread."""


class Collector:
    """Collects the unused blobs of all namespaces, which are directories in `root`.

    Use one collector for each root.
    """

    def __init__(self, root: Path, referenced: Referenced, *, clock: clocks.Clock) -> None:
        self._root = root
        self._referenced = referenced
        self._clock = clock
        self._steady_since = clock.monotonic()
        self._offset = clock.wall() - clock.monotonic()
        self._released = dict[tuple[str, bytes], None]()
        self._looked = clock.monotonic()

    def sample(self) -> None:
        """Compare the wall clock with the clock that stops during sleep; call it every few
        seconds.
        """
        now = self._clock.monotonic()
        offset = self._clock.wall() - now
        # Ages of files are measured by the wall clock: after a jump all files may look old.
        if abs(offset - self._offset) > JUMP_S:
            self._steady_since = now
        self._offset = offset

    def release(self, named: Iterable[tuple[str, bytes]]) -> None:
        """Record blobs (namespace and digest) to which forgotten tasks referred, to be removed
        early.

        Such a blob is removed earlier than others if nothing else refers to it.
        """
        self._released.update(dict.fromkeys(named))
        # The newest are dropped: `collect` finds them as well, only later.
        for each in list(itertools.islice(self._released, MAX_RELEASED, None)):
            del self._released[each]

    @property
    def is_due(self) -> bool:
        """Return whether `collect_released` should be called now."""
        waited = self._clock.monotonic() - self._looked
        return bool(self._released) and waited >= RELEASED_ROUND_S

    def collect(self) -> int:
        """Check all blobs, and remove unused ones; return how many were removed.

        Takes seconds where there are many blobs.
        """
        removed = 0
        for directory in self._directories():
            try:
                removed += self._collect(directory)
            except OSError as error:
                log.warning("blobs cannot be collected", extra={"error": str(error)})
        return removed

    def collect_released(self) -> int:
        """Remove unused blobs of forgotten tasks; return how many bytes of them will be removed
        later.
        """
        self._looked = self._clock.monotonic()
        later = 0
        named = iter(list(self._released))
        while batch := list(itertools.islice(named, BATCH)):
            used = self._referenced([digest for _, digest in batch])
            for namespace, digest in batch:
                size = 0 if digest in used else self._discard(namespace, digest)
                # The blob was removed, is in use again, or does not exist: there is nothing to do.
                if not size:
                    self._released.pop((namespace, digest), None)
                later += size
        return later

    def _collect(self, directory: Path) -> int:
        store = local_blobs.Blobs(directory, durable=False, time=self._clock)
        before = self._before(KEEP_S)
        # Files that a killed writer has left.
        store.discard_unfinished(before=before)
        old = (entry for entry in store.entries() if entry.modified < before)
        removed = 0
        while batch := list(itertools.islice(old, BATCH)):
            # If a row refers to a blob after this look-up, a renewal preceded the row, which
            # `discard` checks.
            used = self._referenced([entry.digest for entry in batch])
            for entry in batch:
                if entry.digest not in used:
                    removed += store.discard(entry.digest, before=before)
                elif entry.aside:
                    store.touch(entry.digest)
        if removed:
            log.info("blobs removed", extra={"namespace": directory.name, "blobs": removed})
        return removed

    def _discard(self, namespace: str, digest: bytes) -> int:
        """Remove a released blob if it is due; return its size if it will be removed later,
        else 0.
        """
        store = local_blobs.Blobs(self._root / namespace, durable=False, time=self._clock)
        before = self._before(RELEASED_KEEP_S)
        size = 0
        try:
            found = store.path(digest).stat()
            size = found.st_size
            if found.st_mtime < before and store.discard(digest, before=before):
                return 0
        except FileNotFoundError:
            return 0
        except OSError as error:
            log.warning("blob cannot be collected", extra={"error": str(error)})
        return size

    def _before(self, keep_s: float) -> float:
        """Return the wall time `keep_s` ago, or -inf until the wall clock has been steady for long
        enough.

        A blob that was renewed after that time is not removed.
        """
        self.sample()
        if self._clock.monotonic() - self._steady_since < MIN_STEADY_S:
            return -math.inf
        return self._clock.wall() - keep_s

    def _directories(self) -> list[Path]:
        if not self._root.is_dir():
            return []
        return sorted(path for path in self._root.iterdir() if path.is_dir())
