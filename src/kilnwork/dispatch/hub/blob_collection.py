"""Removes blobs that nothing refers to: what rows and templates name stays, all else goes in time.

Used by `retention`. The contract: a blob that the store refers to is never removed, and one that it
does not refer to is, once it was not renewed for an hour (`data.blobs`). That is seen twice,
some minutes apart on a clock that stands still while the machine sleeps: who holds a reference has
time to renew it after a suspended laptop has woken, or the wall clock has jumped.
"""

import itertools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from kilnwork.data import blobs, holding
from kilnwork.kit import clock as clocks

log = logging.getLogger(__name__)

KEEP_S = 3600.0
"""Longer than anything waits between the writing of a blob and of the row that refers to it."""

MIN_UNUSED_S = 1.5 * holding.RENEW_S
"""How long a blob is seen unused before it goes: in this time every holder has had its turn."""

BATCH = 500
"""Digests looked up in one go: some milliseconds."""

Referenced = Callable[[Sequence[bytes]], set[bytes]]
"""Those of the digests that some row or template refers to. Called in a thread."""


class _Sighting(NamedTuple):
    """`modified`: time of the file; `since`: monotonic, when it was first seen so."""

    modified: float
    since: float


class Collector:
    """The collector of all namespaces, which are directories in `root`; one for a root at a
    time."""

    def __init__(self, root: Path, referenced: Referenced, *, clock: clocks.Clock) -> None:
        self._root = root
        self._referenced = referenced
        self._clock = clock
        self._sightings: dict[tuple[str, bytes], _Sighting] = {}

    def collect(self) -> int:
        """One look at all blobs; how many were removed. Takes seconds where there are many."""
        sightings, self._sightings = self._sightings, {}
        removed = 0
        for directory in sorted(self._root.iterdir()) if self._root.is_dir() else ():
            try:
                removed += self._collect(directory, sightings)
            except OSError as error:
                log.warning("blobs cannot be collected", extra={"error": str(error)})
        return removed

    def _collect(self, directory: Path, sightings: dict[tuple[str, bytes], _Sighting]) -> int:
        kept = blobs.Blobs(directory, durable=False, time=self._clock)
        before = self._clock.wall() - KEEP_S
        kept.discard_unfinished(before=before)
        old = (entry for entry in kept.entries() if entry.modified < before)
        removed = 0
        while batch := list(itertools.islice(old, BATCH)):
            used = self._referenced([entry.digest for entry in batch])
            for entry in batch:
                if entry.digest in used:
                    if entry.aside:
                        kept.touch(entry.digest)
                elif self._seen_twice(directory.name, entry, sightings):
                    removed += kept.discard(entry.digest, before=before)
        if removed:
            log.info("blobs removed", extra={"namespace": directory.name, "blobs": removed})
        return removed

    def _seen_twice(
        self, namespace: str, entry: blobs.Entry, sightings: dict[tuple[str, bytes], _Sighting]
    ) -> bool:
        now = self._clock.monotonic()
        first = sightings.get((namespace, entry.digest))
        if first is None or first.modified != entry.modified:
            first = _Sighting(entry.modified, now)
        self._sightings[namespace, entry.digest] = first
        return now - first.since >= MIN_UNUSED_S
