"""Blobs: values too large for the journal, in files named by the SHA-256 of their content.

Used by the sdk and the slots, which write and read them, and by `dispatch.hub.blob_collection`,
which deletes them. One `Blobs` is one directory, that of a namespace: `<2 hex>/<64 hex>`,
directories with mode 0700, files with mode 0600. A blob is written under a temporary name and then
renamed, so that a reader sees either the whole blob or nothing, even if several processes write it
at the same time. Not for files that change.

References to a blob are not counted: its modification time keeps it alive. A process that puts an
existing blob renews it; a process that holds a reference which is in no journal row yet renews it
periodically (`blob_renewal`). The collector deletes only blobs to which no row refers and that were
not renewed for an hour. Before it checks the time again, it renames the blob (`<64 hex>.old`); a
process that renews the blob meanwhile renames it back. So only one of the two processes succeeds,
and the other notices.
"""

import contextlib
import errno
import functools
import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kilnwork.data import context_manager_bases, disk_checks, errors
from kilnwork.kit import clock, digests

Part = bytes | bytearray | memoryview

FRESH_S = 60.0
"""Seconds after a renewal during which a blob is not renewed again, so that repeated puts of the
same value write nothing."""

_MAPPED_FROM = 1 << 20
"""Minimum size in bytes of a blob that is mapped into memory. Smaller blobs are read, since a
mapping costs a file descriptor and page faults."""

_PIECE_BYTES = 8 << 20
"""Number of bytes written between two checks of the free disk space."""

_MAPPINGS = 256
"""Maximum number of mapped blobs, since each mapping has a file descriptor. Further blobs are read
into memory.
"""

_REMEMBERED = 1 << 16
"""Maximum number of blobs that are remembered as verified. When this number is
reached, all are forgotten.
"""

_UNFINISHED = ".new-"
_ASIDE = ".old"


locate: "Callable[[], Blobs] | None" = None
"""Function that returns the blobs of this process's session. Set by the sdk, for code that has no
reference to the session."""


class Entry(NamedTuple):
    """A blob in the directory. `modified`: wall clock seconds. `aside`: whether a collector has
    renamed the blob.
    """

    digest: bytes
    modified: float
    aside: bool


class _Seen(NamedTuple):
    inode: int
    size: int
    modified_ns: int


def text(digest: bytes) -> str:
    """Return a digest as `sha256:` and 64 hex digits, the name of a blob in specs and for users."""
    return f"sha256:{digest.hex()}"


def parse(name: str) -> bytes:
    """Return the 32 bytes of a digest that was formatted by `text`. Raises ValueError for any other
    text.
    """
    algorithm, _, digits = name.partition(":")
    digest = bytes.fromhex(digits)
    if algorithm != "sha256" or len(digest) != 32:
        raise ValueError(f"{name!r} is no digest: it must be sha256: and 64 hex digits")
    return digest


class Blobs:
    """The blobs of one namespace, stored in `directory`, which is created with the first blob.

    With `durable`, a blob is on disk when `put` returns, and the space reserved for the journal is
    not used (`disk_checks`). Otherwise blobs may be lost if the machine fails, and no space is kept
    free for a journal. Any number of threads and processes may use one directory.
    """

    def __init__(self, directory: Path, *, durable: bool, time: clock.Clock | None = None) -> None:
        self.directory = directory
        self.durable = durable
        self._time = time or clock.SystemClock()
        self._checked: dict[bytes, _Seen] = {}
        self._mappings: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()

    def put(self, parts: Sequence[Part]) -> tuple[bytes, int]:
        """Store the concatenation of `parts`; return its digest and size in bytes.

        May be repeated: an intact blob with this content is renewed, a damaged one is replaced. The
        parts are read twice and not copied; they must not change meanwhile. Raises
        `BlobNotWritten`.
        """
        views = [view for view in map(_flat, parts) if view.nbytes]
        digest, size = digests.sha256_of(views), sum(view.nbytes for view in views)
        with _explained(self.directory):
            good = self._renew_good(digest, size)
        if not good:
            with self.writer() as new:
                for view in views:
                    new.write_unhashed(view)
                new.commit_as(digest)
        return digest, size

    def writer(self) -> "Writer":
        """Return a writer for a blob that is written in pieces. Leaving its `with` block without
        commit discards the blob.
        """
        return Writer(self)

    def get(self, digest: bytes, *, private: bool = False) -> memoryview:
        """Return the content of a blob, read-only, mapped from its file if it is large.

        With `private`, the caller may change the content in place, and only this caller sees the
        changes. The digest is verified when this process reads the file for the first time, or
        after the blob was renewed. Raises `BlobMissing`, `BlobDamaged`.
        """
        view, seen = self._read(digest, private=private)
        if self._checked.get(digest) != seen:
            if digests.sha256_of((view,)) != digest:
                raise errors.BlobDamaged(
                    f"blob {text(digest)} is damaged: {self.path(digest)} ({seen.size} bytes) is "
                    "not what was written. Make the value again: putting it again replaces the "
                    "file; and look after that disk"
                )
            self._remember(digest, seen)
        return view

    def open(self, digest: bytes) -> int:
        """Return a file descriptor for reading parts of a blob. Verifies the digest and raises as
        `get`.
        """
        self.get(digest)
        return self.descriptor(digest)

    def descriptor(self, digest: bytes) -> int:
        """Return a file descriptor of a blob without verifying the digest.

        For passing the content on to a reader that verifies it. Raises `BlobMissing`.
        """
        path = self.path(digest)
        for place in (path, self._aside(digest), path):
            with contextlib.suppress(FileNotFoundError):
                return os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        raise errors.BlobMissing(
            f"blob {text(digest)} is not in {self.directory}: nothing referred to it for an hour, "
            "or another process removed it. Make the value again, and keep its Ref, or a task that "
            "uses it, for as long as it is needed"
        )

    def touch(self, digest: bytes) -> bool:
        """Renew a blob, so that the collector keeps it for another hour. Return False if there is
        no such blob.
        """
        return self.touch_here(digest)

    def touch_here(self, digest: bytes) -> bool:
        path = self.path(digest)
        with contextlib.suppress(FileNotFoundError):
            if 0 <= self._time.wall() - path.stat().st_mtime < FRESH_S:
                return True
            os.utime(path)
            return True
        with contextlib.suppress(FileNotFoundError):
            self._aside(digest).rename(path)
            os.utime(path)
            return True
        return False

    def touch_all(self, blobs: Sequence[bytes]) -> None:
        for digest in blobs:
            self.touch(digest)

    def path(self, digest: bytes) -> Path:
        name = digest.hex()
        return self.directory / name[:2] / name

    # for the collector

    def entries(self) -> Iterator[Entry]:
        """Yield all blobs, one subdirectory at a time; blobs that are deleted meanwhile are left
        out."""
        for directory in sorted(_names(self.directory)):
            if len(directory) != 2:
                continue
            for name in _names(self.directory / directory):
                with contextlib.suppress(FileNotFoundError, ValueError):
                    digest = bytes.fromhex(name.removesuffix(_ASIDE))
                    modified = (self.directory / directory / name).stat().st_mtime
                    if len(digest) == 32:
                        yield Entry(digest, modified, name.endswith(_ASIDE))

    def discard(self, digest: bytes, *, before: float) -> bool:
        """Delete a blob unless it was renewed at `before` or later; return whether it was deleted.

        Only one collector may run at a time. If `touch` is called at the same time, either it finds
        no blob, or the blob is not deleted.
        """
        aside = self._aside(digest)
        with contextlib.suppress(FileNotFoundError):
            self.path(digest).rename(aside)
        try:
            if aside.stat().st_mtime < before:
                aside.unlink()
                self._checked.pop(digest, None)
                return True
            aside.rename(self.path(digest))
            os.utime(self.path(digest))
        except FileNotFoundError:  # renamed back by `touch`, or missing
            pass
        return False

    def discard_unfinished(self, *, before: float) -> None:
        """Delete temporary files to which nothing was written since `before`."""
        for name in _names(self.directory):
            path = self.directory / name
            with contextlib.suppress(FileNotFoundError):
                if name.startswith(_UNFINISHED) and path.stat().st_mtime < before:
                    path.unlink()

    # private methods

    def _renew_good(self, digest: bytes, size: int) -> bool:
        """Renew a blob if it exists and is intact; return False if it is missing or damaged."""
        if not self.touch_here(digest):
            return False
        try:
            if self.get(digest).nbytes != size:
                return False
            if self.durable:  # another writer may not have synced it yet
                disk_checks.sync_directory(self.path(digest).parent)
        except (errors.BlobMissing, errors.BlobDamaged):
            return False
        return True

    def _aside(self, digest: bytes) -> Path:
        path = self.path(digest)
        return path.with_name(path.name + _ASIDE)

    def _read(self, digest: bytes, *, private: bool) -> tuple[memoryview, _Seen]:
        descriptor = self.descriptor(digest)
        try:
            stat = os.fstat(descriptor)
            seen = _Seen(stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if seen.size < _MAPPED_FROM or len(self._mappings) >= _MAPPINGS:
                view = _copied(descriptor, seen.size)
                return view if private else view.toreadonly(), seen
            access = mmap.ACCESS_COPY if private else mmap.ACCESS_READ
            mapping = mmap.mmap(descriptor, seen.size, access=access)
        finally:
            os.close(descriptor)
        self._mappings.add(mapping)
        return memoryview(mapping), seen

    def _remember(self, digest: bytes, seen: _Seen) -> None:
        if len(self._checked) >= _REMEMBERED:
            self._checked.clear()
        self._checked[digest] = seen


class Writer(context_manager_bases.Closeable):
    """A blob that is being written; readers see nothing of it before `commit`."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._path = blobs.directory / f"{_UNFINISHED}{os.urandom(8).hex()}"
        self.size = 0
        with _explained(blobs.directory):
            make_directory(blobs.directory)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._file = os.fdopen(os.open(self._path, flags, 0o600), "wb", buffering=1 << 16)

    def close(self) -> None:
        """Discard the blob unless it was committed."""
        with contextlib.suppress(OSError):  # write and commit report a full disk
            self._file.close()
        self._path.unlink(missing_ok=True)

    @functools.cached_property
    def _hash(self) -> digests.Hash:
        return digests.sha256()

    def write(self, part: Part) -> None:
        """Append a part to the blob; the caller may reuse `part` afterwards. Raises
        `BlobNotWritten`.
        """
        view = _flat(part)
        self._hash.update(view)
        self.write_unhashed(view)

    @property
    def digest(self) -> bytes:
        """Digest of the bytes written so far."""
        return self._hash.digest()

    def commit(self) -> tuple[bytes, int]:
        """Make the blob visible; return its digest and size in bytes. Raises `BlobNotWritten`."""
        digest = self._hash.digest()
        self.commit_as(digest)
        return digest, self.size

    def write_unhashed(self, view: memoryview) -> None:
        with _explained(self._blobs.directory):
            for at in range(0, view.nbytes, _PIECE_BYTES):
                self._check_room(view.nbytes - at)
                self.size += self._file.write(view[at : at + _PIECE_BYTES])

    def _check_room(self, count: int) -> None:
        """Raise OSError if there is not enough space for the blob. Other processes write too, so
        that this is checked repeatedly.
        """
        if self._blobs.durable and disk_checks.usable_bytes(self._blobs.directory) < count:
            raise OSError(
                errno.ENOSPC,
                f"{count:,} bytes do not fit beside the room that is kept for the journal",
            )

    def commit_as(self, digest: bytes) -> None:
        """Make the blob visible under a digest that the caller has computed."""
        path = self._blobs.path(digest)
        with _explained(self._blobs.directory):
            self._file.flush()
            if self._blobs.durable:
                os.fsync(self._file.fileno())
            new_directory = make_directory(path.parent)
            self._path.rename(path)
            stat = os.fstat(self._file.fileno())
            if self._blobs.durable:
                disk_checks.sync_directory(path.parent)
                if new_directory:
                    disk_checks.sync_directory(self._blobs.directory)
        self._blobs._remember(digest, _Seen(stat.st_ino, stat.st_size, stat.st_mtime_ns))


@contextlib.contextmanager
def _explained(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.BlobNotWritten(
            f"a value cannot be written to {directory}: {error.strerror or error}. "
            "Free some room there, or keep values elsewhere"
        ) from error


def _flat(part: Part) -> memoryview:
    view = memoryview(part)
    if view.nbytes and (view.ndim != 1 or view.format != "B"):
        return view.cast("B")
    return view


def _copied(descriptor: int, size: int) -> memoryview:
    view = memoryview(bytearray(size))
    done = 0
    while done < size and (count := os.preadv(descriptor, [view[done:]], done)):
        done += count
    return view[:done]


def make_directory(directory: Path) -> bool:
    """Create a directory with private mode; return False if it exists already."""
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        return False
    except FileNotFoundError:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return True


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208 - names are all that is needed
    except (FileNotFoundError, NotADirectoryError):
        return []
