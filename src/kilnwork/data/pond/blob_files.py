"""Blob files of a pond: files named by the SHA-256 of their content, and partial files being
fetched.

Used by `store`, and by the modules that fetch and scrub blobs. This is not `data.local_blobs`,
where the modification time keeps a blob alive. Here leases say who needs a blob, its file is shared
with the trees of runs by hard links, and it is fetched for minutes by a process that may be killed
at any moment. Therefore

- a partial file has a name of its own in the same file system and survives: `partial/NAME`, next to
  `NAME.json`, which names the origin of its bytes;
- a blob appears by rename, after its content was verified and synced to disk, with mode 0444;
- its modification time is a constant. A process that writes to it through a tree changes that; the
  change is noticed, and the content is verified before it is used again.
"""

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from kilnwork.data import context_manager_bases, disk_checks, errors, local_blobs
from kilnwork.kit import digests

STAMP_NS = 1_000_000_000_000_000_000
"""Modification time of an unmodified blob: 2001-09-09T01:46:40Z."""

PIECE_BYTES = 1 << 20
"""Number of bytes read at a time to hash a file."""

MAX_QUARANTINED = 16
"""Number of damaged files kept for inspection."""

_FLUSH_BYTES = 8 << 20
"""Number of bytes between calls that start writing to disk, so that the final fsync has little to
wait for."""


class PartialFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of the bytes in a partial file, and the stamp of the content there."""

    origin: str
    stamp: str


class BlobFiles:
    """The blob files below the directory `root`. Thread-safe; only one process at a time may use
    it, which `store` ensures.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._sizes: dict[bytes, int] = {}
        self._lock = threading.Lock()
        self._unsynced: set[Path] = set()
        self.used = 0
        """Total bytes of all blobs."""
        self.damaged = 0
        """Number of files that were set aside."""

    def scan(self) -> None:
        """Read from the directory which blobs exist."""
        self._sizes.clear()
        for directory in _entries(self.root / "blobs"):
            for entry in _entries(Path(directory.path)):
                with contextlib.suppress(ValueError, FileNotFoundError):
                    self._sizes[bytes.fromhex(entry.name)] = entry.stat().st_size
        self.used = sum(self._sizes.values())

    def sizes(self) -> dict[bytes, int]:
        """Return the size of each blob by digest."""
        with self._lock:
            return dict(self._sizes)

    def path(self, digest: bytes) -> Path:
        name = digest.hex()
        return self.root / "blobs" / name[:2] / name

    def knows(self, digest: bytes, size: int) -> bool:
        """Return whether a blob existed when the directory was last read or changed, without asking
        the disk.
        """
        return self._sizes.get(digest) == size

    def has(self, digest: bytes, size: int) -> bool:
        """Return whether a blob exists and is intact. A modified blob is verified, and set aside if
        it is damaged."""
        try:
            found = self.path(digest).stat()
        except FileNotFoundError:
            self._forget(digest)
            return False
        if found.st_size == size and found.st_mtime_ns == STAMP_NS:
            return True
        return self.verify(digest, size)

    def verify(
        self,
        digest: bytes,
        size: int,
        *,
        pace: Callable[[int], None] = lambda _: None,
        from_disk: bool = False,
    ) -> bool:
        """Read a blob completely, and return whether it is intact. A damaged blob is set aside.

        `pace` is called with the number of bytes of each piece. `from_disk`: read from the disk
        instead of the kernel's page cache, and without filling the cache.
        """
        path = self.path(digest)
        try:
            with path.open("rb") as file:
                if from_disk:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                good = (
                    os.fstat(file.fileno()).st_size == size and _hash(file.fileno(), pace) == digest
                )
                if from_disk:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if good:
                _seal(path)
            else:
                self.quarantine(path, digest)
        except FileNotFoundError:  # also when it is evicted meanwhile
            self._forget(digest)
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.quarantine(path, digest)  # its disk cannot read it any more
            return False
        return good

    def open(self, digest: bytes) -> int:
        """Return a descriptor of a blob for reading. Raises BlobMissing."""
        try:
            return os.open(self.path(digest), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self._forget(digest)
            raise errors.BlobMissing(
                f"blob {local_blobs.text(digest)} is not in {self.root}: ask for the snapshot again"
            ) from None

    def partial(self, name: str) -> "PartialFile":
        """Open the partial file with this name, to continue where an earlier fetch stopped."""
        return PartialFile(self, self.root / "partial" / name)

    def partials(self) -> Iterator[tuple[str, int]]:
        """Yield name and size of all partial files."""
        for entry in _entries(self.root / "partial"):
            with contextlib.suppress(FileNotFoundError):
                if not entry.name.endswith(".json"):
                    yield entry.name, entry.stat().st_size

    def drop_partial(self, name: str) -> None:
        for suffix in (".json", ""):
            (self.root / "partial" / f"{name}{suffix}").unlink(missing_ok=True)

    def remove(self, digest: bytes) -> int:
        """Delete a blob; return its size. Trees keep their links to it."""
        self.path(digest).unlink(missing_ok=True)
        return self._forget(digest)

    def quarantine(self, path: Path, digest: bytes) -> None:
        """Set a damaged file aside for inspection; only the last few are kept."""
        aside = self.root / "quarantine" / digest.hex()
        with contextlib.suppress(FileNotFoundError):
            path.replace(aside)
        kept = sorted(_entries(self.root / "quarantine"), key=_changed_at)
        for old in kept[:-MAX_QUARANTINED]:
            Path(old.path).unlink(missing_ok=True)
        with self._lock:
            self.damaged += 1
        if path == self.path(digest):
            self._forget(digest)

    def sync(self) -> None:
        """Sync the names of all blobs to disk. Raises OSError; a later call then tries again."""
        with self._lock:
            directories, self._unsynced = self._unsynced, set()
        try:
            for directory in directories:
                disk_checks.sync_directory(directory)
            if directories:
                disk_checks.sync_directory(self.root / "blobs")
        except OSError:
            with self._lock:
                self._unsynced |= directories
            raise

    def add(self, path: Path, digest: bytes, size: int) -> None:
        """Turn a verified and synced file into a blob."""
        final = self.path(digest)
        final.parent.mkdir(mode=0o755, exist_ok=True)
        _seal(path)
        path.rename(final)
        with self._lock:
            self.used += size - self._sizes.get(digest, 0)
            self._sizes[digest] = size
            self._unsynced.add(final.parent)

    def _forget(self, digest: bytes) -> int:
        with self._lock:
            size = self._sizes.pop(digest, 0)
            self.used -= size
            return size


class PartialFile(context_manager_bases.Closeable):
    """A file with the bytes of a blob received so far, which are kept when it is closed.

    `size`: number of bytes so far, including those of earlier tries. `facts`: origin of the bytes,
    None if there are no bytes.
    """

    def __init__(self, files: BlobFiles, path: Path) -> None:
        self._files = files
        self._path = path
        self._facts_path = path.with_name(path.name + ".json")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._hash = digests.sha256()
        self.size = 0
        self.facts = self._read_facts()
        if self.facts is None:
            os.ftruncate(self._file, 0)
        self._resume()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def restart(self, facts: PartialFacts) -> None:
        """Truncate the file, and begin again with content of a different origin or stamp."""
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        self._hash, self.size, self._flushed = digests.sha256(), 0, 0
        self.describe(facts)

    def describe(self, facts: PartialFacts) -> None:
        """Record the origin of the bytes; call this before bytes from that origin are written."""
        if facts != self.facts:
            self._facts_path.write_bytes(msgspec.json.encode(facts))
            self.facts = facts

    def write(self, piece: bytes | memoryview) -> None:
        """Append bytes to the file. Raises OSError."""
        self._hash.update(piece)
        view = memoryview(piece)
        while view:
            view = view[os.write(self._file, view) :]
        self.size += len(piece)
        if self.size - self._flushed >= _FLUSH_BYTES:
            disk_checks.begin_sync(self._file, self._flushed, self.size - self._flushed)
            self._flushed = self.size

    @property
    def digest(self) -> bytes:
        """Digest of the bytes so far."""
        return self._hash.digest()

    def commit(self) -> tuple[bytes, int]:
        """Turn the partial file into a blob; return the blob's digest and size. Raises OSError."""
        digest = self.digest
        os.fsync(self._file)
        self.close()
        self._files.add(self._path, digest, self.size)
        self._facts_path.unlink(missing_ok=True)
        return digest, self.size

    def discard(self) -> None:
        """Delete the partial file."""
        self.close()
        self._facts_path.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)

    def set_aside(self, digest: bytes) -> None:
        """Move the content into quarantine because its digest is not the expected `digest`."""
        self.close()
        self._facts_path.unlink(missing_ok=True)
        self._files.quarantine(self._path, digest)

    def _read_facts(self) -> PartialFacts | None:
        try:
            return msgspec.json.decode(self._facts_path.read_bytes(), type=PartialFacts)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None

    def _resume(self) -> None:
        os.lseek(self._file, 0, os.SEEK_SET)
        while piece := os.read(self._file, PIECE_BYTES):
            self._hash.update(piece)
            self.size += len(piece)
        self._flushed = self.size


def _hash(descriptor: int, pace: Callable[[int], None]) -> bytes:
    made = digests.sha256()
    while piece := os.read(descriptor, PIECE_BYTES):
        made.update(piece)
        pace(len(piece))
    return made.digest()


def stamp(path: Path) -> None:
    """Set the modification time of a file to the constant time of blobs, so that a later write is
    noticed.
    """
    os.utime(path, ns=(STAMP_NS, STAMP_NS))


def _seal(path: Path) -> None:
    path.chmod(0o444)
    stamp(path)


def _changed_at(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_ctime_ns
    except FileNotFoundError:
        return 0


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []
