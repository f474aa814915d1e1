"""Fetching of blobs: reads a blob from the first origin that has it, verifies it, and resumes after
interruptions.

Used by the agent, in one thread per blob. Received bytes survive any interruption. Content with a
different digest never becomes a blob: it is set aside and fetched once more from the beginning. If
it differs again, this origin has failed with `DataCorrupt`, or with `SourceChanged` if it is a
source that twice sent the same different content, and the next origin is tried.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kilnwork.data import errors, local_blobs
from kilnwork.data.pond import blob_files, origins, store

TRIES = 2
"""Number of times that content with a wrong digest or size is received from one origin; then the
next origin is tried.
"""

_STEP_BYTES = 64 << 20
"""Space is reserved in steps of this size if the size of the content is unknown."""


class Stopped(Exception):
    """The fetch was ended because the blob is no longer needed; received bytes are kept."""


class Fetched(NamedTuple):
    """A blob that was read, and the name of its origin. `received`: bytes received from this
    origin, in all tries.
    """

    digest: bytes
    size: int
    origin: str
    peer: bool
    received: int


class Progress:
    """Counter of received bytes, for the agent. `stopped` returns True to end the fetch."""

    def __init__(
        self, stopped: Callable[[], bool] = lambda: False, *, whole: "Progress | None" = None
    ) -> None:
        self.stopped = stopped
        self.received = 0
        self._whole = whole

    def part(self) -> "Progress":
        """Return a counter for one of several fetches at the same time; its bytes count here
        too.
        """
        return Progress(self.stopped, whole=self)

    def add(self, count: int) -> None:
        """Count received bytes. Raises Stopped if the fetch is to end."""
        self.received += count
        if self._whole is not None:
            self._whole.received += count
        if self.stopped():
            raise Stopped


class _Mismatch(Exception):
    """The complete content was received, or its size is known, and it differs from the blob.

    `found`: the digest or the size of the content.
    """

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found


def fetch(
    kept: store.PondStore,
    digest: bytes,
    size: int,
    *,
    where: Sequence[origins.Origin],
    progress: Progress,
) -> Fetched:
    """Fetch a blob into the pond; the caller has checked that the pond does not have it.

    The origins are tried one after the other. If all fail, the error of the source is raised, not
    that of a peer, since peers may get the blob later. Raises Stopped, PondFull, DataCorrupt,
    SourceChanged and errors of origins.
    """
    from_source: list[errors.PondError] = []
    from_peers: list[errors.PondError] = []
    for origin in where:
        try:
            return _from_origin(kept, digest, size, origin=origin, progress=progress)
        except (errors.PondFull, Stopped):
            raise
        except errors.PondError as error:
            (from_peers if origin.peer else from_source).append(error)
    if from_source:
        raise from_source[-1]
    for failure in from_peers:
        if isinstance(failure, errors.DataCorrupt):
            raise failure
    why = f": {from_peers[-1]}" if from_peers else ", and its source is not known"
    raise errors.SourceUnreachable(
        f"no node of the pond that responds has blob {local_blobs.text(digest)}{why}"
    )


def _from_origin(
    kept: store.PondStore,
    digest: bytes,
    size: int,
    *,
    origin: origins.Origin,
    progress: Progress,
) -> Fetched:
    found: list[str] = []
    progress = progress.part()
    while len(found) < TRIES:
        try:
            whole = _try_once(kept, digest, size, origin=origin, progress=progress)
        except _Mismatch as error:
            found.append(error.found)
            continue
        if whole:
            return Fetched(digest, size, origin.name, origin.peer, progress.received)
    name, wanted = origin.name, local_blobs.text(digest)
    if not origin.peer and len(set(found)) == 1:
        raise errors.SourceChanged(
            f"source {name} has other content ({found[0]}) than {wanted}, which was pinned: pin it "
            "again, or keep a node that has it"
        )
    raise errors.DataCorrupt(
        f"blob {wanted} from {name} came damaged {TRIES} times ({', '.join(found)}): look after "
        "its disk and the network"
    )


def _try_once(
    kept: store.PondStore,
    digest: bytes,
    size: int,
    *,
    origin: origins.Origin,
    progress: Progress,
) -> bool:
    """Try to fetch a blob from one origin. Return True if the blob is in the pond now.

    False is returned if bytes of an earlier try do not match the rest; they are discarded. Raises
    _Mismatch.
    """
    name = digest.hex()
    with (
        kept.reserved(name, size),
        store.full_disk(kept.root, or_drop=lambda: kept.blobs.drop_partial(name)),
        kept.blobs.partial(name) as partial,
    ):
        resumed = _receive(partial, origin, size, progress=progress)
        if (partial.size, partial.digest) == (size, digest):
            partial.commit()
            return True
        if resumed:
            partial.discard()
            return False
        found = (
            local_blobs.text(partial.digest) if partial.size == size else f"{partial.size} bytes"
        )
        partial.set_aside(digest)
        raise _Mismatch(found)


def _receive(
    partial: blob_files.PartialFile, origin: origins.Origin, size: int, *, progress: Progress
) -> bool:
    """Receive the content of a blob until its end, or until it is too long. Return whether an
    earlier fetch was resumed.
    """
    facts = partial.facts
    stamp = facts.stamp if facts is not None and facts.origin == origin.name else ""
    if partial.size == size and facts is not None:
        return True
    if partial.size > size:
        partial.restart(blob_files.PartialFacts(origin=origin.name, stamp=""))
    with origin.open(partial.size, stamp) as content:
        now = blob_files.PartialFacts(origin=origin.name, stamp=content.stamp)
        resumed = 0 < content.start == partial.size
        if resumed:
            partial.describe(now)
        else:
            partial.restart(now)
        if content.total is not None and content.total != size:
            raise _Mismatch(f"{content.total} bytes")
        for piece in content.pieces():
            partial.write(piece)
            progress.add(len(piece))
            if partial.size > size:
                break
    return resumed


def fetch_new(
    kept: store.PondStore,
    name: str,
    listed: origins.ListedFile,
    *,
    source: origins.Source,
    progress: Progress,
) -> tuple[Fetched, str]:
    """Fetch the content of a file of a source, whatever its digest is; return the blob and the
    stamp of the file.

    `name`: name of the partial file, the same for the same file and stamp. Raises the same errors
    as `fetch`.
    """
    progress = progress.part()
    with (
        kept.reserved(name, listed.size or 0),
        store.full_disk(kept.root, or_drop=lambda: kept.blobs.drop_partial(name)),
        kept.blobs.partial(name) as partial,
    ):
        stamp = partial.facts.stamp if partial.facts is not None else ""
        with source.open(listed.path, offset=partial.size, stamp=stamp) as content:
            now = blob_files.PartialFacts(origin=source.name, stamp=content.stamp)
            if not (0 < content.start == partial.size and stamp == content.stamp):
                partial.restart(now)
            promised = content.total or listed.size or 0
            kept.reserve(name, promised)
            for piece in content.pieces():
                if partial.size + len(piece) > promised:
                    promised += _STEP_BYTES
                    kept.reserve(name, promised)
                partial.write(piece)
                progress.add(len(piece))
            if content.total is not None and partial.size != content.total:
                raise errors.SourceUnreachable(
                    f"source {source.name}: {listed.path} ended after {partial.size:,} of "
                    f"{content.total:,} bytes"
                )
            stamp = content.stamp
        kept.hold_blob(partial.digest)
        digest, size = partial.commit()
    return Fetched(digest, size, source.name, False, progress.received), stamp
