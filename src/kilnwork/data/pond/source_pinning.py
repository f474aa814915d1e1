"""Pinning: makes a snapshot of the current content of a source, whose digest identifies exactly
this content.

Used by the agent of the node that was chosen to pin. Every file is read once, into the pond, unless
it was seen with its stamp before. Then the source is listed again: changed files are read again,
and a source that keeps changing is refused. So a snapshot is the content of the source at one
moment, as far as its stamps tell; a single file is always consistent in itself.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from kilnwork.data import errors, local_blobs
from kilnwork.data.pond import blob_fetch, manifest, origins, seen_files, store
from kilnwork.kit import clock

ROUNDS = 3
"""How often a source may change while it is pinned."""

Read = Callable[[origins.ListedFile], tuple[blob_fetch.Fetched, str]]


class Map(Protocol):
    """Function that calls `read` for each of the listed files, several at once, and yields each
    result when it is ready.
    """

    def __call__(
        self, read: Read, listed: Sequence[origins.ListedFile]
    ) -> Iterable[tuple[origins.ListedFile, tuple[blob_fetch.Fetched, str]]]: ...


class Target(NamedTuple):
    """The source and selection to be pinned. `identity`: a text for both that is usable as a file
    name, so that each target has its own journal.
    """

    source: origins.Source
    selection: origins.Selection
    identity: str


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot made of a source. `received`: number of bytes that were read for it."""

    manifest: manifest.Manifest
    received: int


def pin(
    kept: store.PondStore,
    target: Target,
    *,
    run: Map,
    progress: blob_fetch.Progress,
    time: clock.Clock,
) -> Pinned:
    """Pin a source, and return the snapshot, which is then in the pond with all its blobs.

    Raises SourceChanged and the errors of `blob_fetch.fetch_new`; files that were read until then
    are remembered.
    """
    return _Pinning(kept, target, progress=progress, time=time).run(run)


class _Pinning:
    def __init__(
        self,
        kept: store.PondStore,
        target: Target,
        *,
        progress: blob_fetch.Progress,
        time: clock.Clock,
    ) -> None:
        self._store, self._source, self._selection = kept, target.source, target.selection
        self._progress, self._clock = progress, time
        self._key = target.identity
        self._journal = seen_files.PinJournal(kept.root / "sources" / f"{self._key}.ndjson")
        self._held: set[bytes] = set()
        self._received = 0

    def run(self, run: Map) -> Pinned:
        try:
            return self._pin_in_rounds(run)
        finally:
            self._store.release_blobs(self._held)

    def _pin_in_rounds(self, run: Map) -> Pinned:
        listed = self._source.list(self._selection)
        for _ in range(ROUNDS):
            with store.full_disk(self._store.root):
                try:
                    found = self._read_all(listed, run)
                except errors.SourceChanged:
                    found = None  # a file was written to while it was read
                again = listed if len(listed) == 1 else self._source.list(self._selection)
            if found is not None and again == listed:
                return self._finish(listed, found)
            listed = self._source.list(self._selection) if again is listed else again
        raise errors.SourceChanged(
            f"source {self._source.name} has changed {ROUNDS} times while it was read: pin it when "
            "no process writes to it, or pin a copy"
        )

    def _read_all(
        self, listed: Sequence[origins.ListedFile], run: Map
    ) -> dict[str, seen_files.Seen] | None:
        """Return size and digest of each listed file by path, or None if a file differs from its
        listing.
        """
        found: dict[str, seen_files.Seen] = {}
        to_read = []
        for one in listed:
            seen = self._journal.find(one.path, one.stamp)
            if seen is not None and self._is_here(seen):
                found[one.path] = seen
            else:
                to_read.append(one)
        same = True
        for one, (read, stamp) in run(self._read, to_read):
            seen = seen_files.Seen(
                path=one.path, stamp=stamp, size=read.size, digest=local_blobs.text(read.digest)
            )
            self._held.add(read.digest)
            self._received += read.received
            if origins.is_settled(stamp, self._clock.wall()):
                self._journal.add(seen)
            found[one.path] = seen
            same = same and stamp == one.stamp
        return found if same or len(listed) == 1 else None

    def _is_here(self, seen: seen_files.Seen) -> bool:
        digest = local_blobs.parse(seen.digest)
        self._store.hold_blob(digest)
        self._held.add(digest)
        return self._store.blobs.has(digest, seen.size)

    def _read(self, listed: origins.ListedFile) -> tuple[blob_fetch.Fetched, str]:
        facts = msgspec.json.encode([self._key, listed.path, listed.stamp])
        name = f"new-{hashlib.sha256(facts).hexdigest()}"
        return blob_fetch.fetch_new(
            self._store, name, listed, source=self._source, progress=self._progress
        )

    def _finish(
        self, listed: Sequence[origins.ListedFile], found: dict[str, seen_files.Seen]
    ) -> Pinned:
        made = manifest.Manifest(
            manifest.File(
                path=one.path,
                size=found[one.path].size,
                mode=one.mode,
                digest=found[one.path].digest,
            )
            for one in listed
        )
        with store.full_disk(self._store.root):
            self._store.blobs.sync()
            self._store.put_manifest(made.encoded, made.digest)
            settled = {
                path: seen for path, seen in found.items() if self._journal.find(path, seen.stamp)
            }
            self._journal.keep_only(settled)
            self._store.touch_source(self._key)
        return Pinned(manifest=made, received=self._received)
