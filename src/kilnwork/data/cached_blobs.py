"""Cached blobs: a local directory in front of the `/blobs` of a manager that shares no directory
with this process.

Used by sessions and slots whose link goes over the network. Blobs are read from the local
directory, and fetched into it at first use; a blob that is put is on the manager's disk before
`put` returns. Many processes may use one directory: if several need the same blob, one of them
fetches it. The manager's blobs are the authority; the directory may lose any blob at any time.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kilnwork.data import errors, local_blobs, remote_blobs
from kilnwork.kit import clock as clocks

CACHE_BYTES = 2 << 30
"""Maximum size of the directory; above it, the least recently used blobs are deleted."""

ASK_FIRST_BYTES = 1 << 20
"""Size from which the manager is asked whether it has a blob before the blob is sent."""


class CachedBlobs(local_blobs.Blobs):
    """Blobs in a local `directory`, which caches those of the manager's `store`."""

    def __init__(
        self,
        directory: Path,
        store: remote_blobs.RemoteBlobs,
        *,
        time: clocks.Clock | None = None,
        most_bytes: int = CACHE_BYTES,
    ) -> None:
        super().__init__(directory, durable=False, time=time)
        self._store = store
        self._most_bytes = most_bytes
        self._new_bytes = 0
        self._confirmed: dict[bytes, float] = {}
        """When the manager last confirmed that it has a blob, by digest."""

    def put(self, parts: Sequence[local_blobs.Part]) -> tuple[bytes, int]:
        """Store a value as `Blobs.put`. The value is on the manager's disk when this returns."""
        digest, size = super().put(parts)
        self._send_to_manager(digest, size)
        return digest, size

    def writer(self) -> local_blobs.Writer:
        return _Writer(self)

    def get(self, digest: bytes, *, private: bool = False) -> memoryview:
        """Return the content as `Blobs.get`; also raises `BlobsUnreachable`, `BlobsRefused`."""
        with contextlib.suppress(errors.BlobMissing, errors.BlobDamaged):
            return super().get(digest, private=private)
        self._fetch(digest)
        return super().get(digest, private=private)

    def open(self, digest: bytes) -> int:
        try:
            return super().open(digest)
        except errors.BlobMissing:  # deleted to free space between the two calls
            return super().open(digest)

    def touch(self, digest: bytes) -> bool:
        """Renew a blob as `Blobs.touch`, both at the manager and in the local directory."""
        here = self.touch_here(digest)
        if self._is_fresh(digest):
            return True
        if self._store.touch(digest):
            self._note_confirmed(digest)
            return True
        if here:  # the manager has lost the blob: send it again
            with contextlib.suppress(errors.BlobMissing, errors.BlobDamaged):
                self._send_to_manager(digest, super().get(digest).nbytes)
                return True
        return False

    def touch_all(self, digests: Sequence[bytes]) -> None:
        """Renew blobs as `Blobs.touch_all`. Called in the thread of a link, so that it waits for
        the manager only briefly.
        """
        for digest in digests:
            self.touch_here(digest)
        stale = [digest for digest in digests if not self._is_fresh(digest)]
        if stale:
            self._store.touch_all(stale)

    def send_to_manager(self, digest: bytes, size: int) -> None:
        """Send a blob in the local directory to the manager; called by `_Writer`."""
        self._send_to_manager(digest, size)

    def _send_to_manager(self, digest: bytes, size: int) -> None:
        if self._is_fresh(digest):
            return
        if size < ASK_FIRST_BYTES or not self._store.touch(digest):
            self._store.put(digest, self.path(digest))
        self._note_confirmed(digest)
        self._count_new_bytes(size)

    def _fetch(self, digest: bytes) -> None:
        """Fetch a blob from the manager. Raises `BlobMissing` if the manager does not have it."""
        local_blobs.make_directory(self.directory)
        with _locked(self.directory / f".get-{digest[:1].hex()}"):
            with contextlib.suppress(errors.BlobMissing, errors.BlobDamaged):
                super().get(digest)
                return  # another thread has fetched it meanwhile

            def take(pieces: Iterator[bytes]) -> None:
                with local_blobs.Writer(self) as new:
                    for piece in pieces:
                        new.write(piece)
                    if new.digest != digest:
                        raise errors.BlobDamaged(
                            f"blob {local_blobs.text(digest)} is damaged at the manager: it sent "
                            f"{new.size} bytes that are something else. Make the value again"
                        )
                    new.commit()
                    self._count_new_bytes(new.size)

            if not self._store.fetch(digest, take):
                raise errors.BlobMissing(
                    f"the manager has no blob {local_blobs.text(digest)}: nothing referred to it "
                    "for an hour, or another process removed it. Make the value again, and keep "
                    "its Ref, or a task that uses it, for as long as it is needed"
                )
            self._note_confirmed(digest)

    def _is_fresh(self, digest: bytes) -> bool:
        return (
            0
            <= self._time.wall() - self._confirmed.get(digest, float("-inf"))
            < local_blobs.FRESH_S
        )

    def _note_confirmed(self, digest: bytes) -> None:
        if len(self._confirmed) >= 1 << 14:
            self._confirmed.clear()
        self._confirmed[digest] = self._time.wall()

    def _count_new_bytes(self, size: int) -> None:
        """Count bytes added to the local directory, and from time to time delete old blobs.

        Other processes that use the directory do the same.
        """
        self._new_bytes += size
        if self._new_bytes > self._most_bytes // 8:
            self._new_bytes = 0
            self._make_room()

    def _make_room(self) -> None:
        found = []
        for entry in self.entries():
            with contextlib.suppress(FileNotFoundError):
                size = self.path(entry.digest).stat().st_size
                found.append((entry.modified, size, entry.digest))
        held = sum(size for _, size, _ in found)
        for _, size, digest in sorted(found):
            if held <= self._most_bytes:
                return
            self.path(digest).unlink(missing_ok=True)
            held -= size


class _Writer(local_blobs.Writer):
    """Writer of a blob that is sent to the manager by `commit`."""

    def __init__(self, kept: CachedBlobs) -> None:
        super().__init__(kept)
        self._kept = kept

    def commit_as(self, digest: bytes) -> None:
        super().commit_as(digest)
        self._kept.send_to_manager(digest, self.size)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
