"""Local store: a directory on this machine, `file:///DIRECTORY`.

Opened by `store_urls`. An object is a file with its key as the path and mode 0600. It is written
under a temporary name in the same directory (`.new-…`, locked by its writer) and synced; then it is
linked to its name if it is to be created, else renamed; then the directory is synced. So a reader
sees either the whole object or nothing, whichever process is killed at any time. Replacing and
deleting happen under a lock of the directory (`.lock`, flock), so that comparing etags and
replacing is atomic for all processes. An etag is the file's modification time in nanoseconds, which
we set so that it increases, and its size. Directories that become empty are removed.
"""

import contextlib
import errno
import fcntl
import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib import parse

from kilnwork.data import context_manager_bases, disk_checks, errors
from kilnwork.data.stores import directories, file_writing, port
from kilnwork.kit import clock as clocks

_PROBE = "_probe"

PIECE_BYTES = 1 << 20
"""Number of bytes read at once; above 256 KiB the size makes no difference."""


class LocalStore:
    """A store in a local directory (`port.Store` and `port.Sweeps`). The directory is created with
    the first object.
    """

    def __init__(self, directory: Path, *, clock: clocks.Clock | None = None) -> None:
        self.directory = directory
        self.url = "file://" + parse.quote(str(directory.absolute()))
        self.clock = clock or clocks.SystemClock()

    def head(self, key: str) -> port.ObjectFacts:
        path = self.path(key)
        with file_writing.explained(self.directory, key):
            return _facts(key, _regular(path.stat()))

    def read(self, key: str, *, start: int = 0, end: int | None = None) -> "LocalReading":
        """Open an object as `Store.read`."""
        path = self.path(key)
        with file_writing.explained(self.directory, key):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return LocalReading(descriptor, key, directory=self.directory, start=start, end=end)

    def put(
        self, key: str, data: port.Data, *, create: bool = False, if_match: str | None = None
    ) -> port.ObjectFacts:
        # small records about existing files may use the reserved space
        with LocalWriter(self, key, create=create, if_match=if_match, looks=False) as new:
            new.write(data)
            return new.commit()

    def writer(self, key: str, *, create: bool = False) -> "LocalWriter":
        return LocalWriter(self, key, create=create)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[port.ObjectFacts]:
        base, slash, _ = port.check_prefix(prefix).rpartition("/")
        with file_writing.explained(self.directory, prefix):
            yield from _walk(self.directory / base, base + slash, prefix=prefix, after=after)

    def directories(self, prefix: str = "") -> Iterator[str]:
        for name in directories.list_names(self.directory / port.check_directory(prefix)):
            if name.endswith("/") and any(self.list(prefix + name)):
                yield name[:-1]

    def delete(self, keys: Iterable[str]) -> None:
        by_directory: dict[Path, list[Path]] = defaultdict(list)
        for key in keys:
            path = self.path(key)
            by_directory[path.parent].append(path)
        for directory, paths in by_directory.items():
            with (
                file_writing.explained(self.directory, str(directory)),
                contextlib.suppress(FileNotFoundError),
            ):
                with directories.locked(directory):
                    for path in paths:
                        path.unlink(missing_ok=True)
                    disk_checks.sync_directory(directory)
                    gone = directories.remove_empty(directory)
                if gone:
                    self._remove_parents(directory.parent)

    def sweep(self, *, before: float, prefix: str = "") -> int:
        """Delete unfinished objects as `Sweeps.sweep`. The object of a living writer is locked,
        however long the writer pauses.
        """
        count = 0
        for place, _, names in os.walk(
            self.directory / port.check_directory(prefix), topdown=False
        ):
            directory = Path(place)
            left = [directory / name for name in names if name.startswith(directories.UNFINISHED)]
            with (
                file_writing.explained(self.directory, place),
                contextlib.suppress(FileNotFoundError),
            ):
                # A killed writer may also leave an empty directory.
                empty = directories.is_empty(directory) and directory.stat().st_mtime < before
                gone = sum(_discard(path, before=before) for path in left)
                count += gone
                if gone or empty:
                    self._remove_parents(directory)
        return count

    def probe(self) -> None:
        """Test the store as `Probes.probe`: create, lock, create again, read, list and delete an
        object."""
        key = f"{_PROBE}/{os.urandom(8).hex()}"
        try:
            self.put(key, b"1", create=True)
            try:
                self.put(key, b"2", create=True)
            except errors.ObjectExists:
                pass
            else:
                raise errors.StoreRefused("what was created could be created again")
            self.put(key, b"3")
            if port.read_all(self, key) != b"3" or [one.key for one in self.list(key)] != [key]:
                raise errors.StoreRefused("what was written cannot be read")
            self.delete([key])
        except errors.StoreFull:
            return  # the writer will get the error
        except errors.StoreError as error:
            raise errors.StoreRefused(
                f"{self.directory} cannot keep the files of jobs: {error}. It must be a directory "
                "that this user may write to, on a file system with flock and rename (a local "
                "disk, or NFS of version 4 with locks)"
            ) from error

    def path(self, key: str) -> Path:
        """Return the path of an object. Raises `BadKey`."""
        return self.directory / port.check_key(key)

    def _remove_parents(self, directory: Path) -> None:
        """Remove a directory and its parents if they are empty now, up to the store's own
        directory.
        """
        while directory != self.directory and directory.is_relative_to(self.directory):
            with directories.locked(directory):
                if not directories.remove_empty(directory):
                    return
            directory = directory.parent


class LocalReading(context_manager_bases.Closeable):
    """An open object of a local store (`port.Reading`)."""

    def __init__(
        self, descriptor: int, key: str, *, directory: Path, start: int, end: int | None
    ) -> None:
        self._descriptor, self._directory = descriptor, directory
        self.piece_bytes = PIECE_BYTES
        self.start = self.end = 0
        self.facts = _facts(key, _regular(os.fstat(descriptor)))
        size = self.facts.bytes
        self.start = min(max(start, 0), size)
        self.end = size if end is None else min(max(end, self.start), size)

    def __iter__(self) -> Iterator[bytes]:
        at = self.start
        while at < self.end:
            with file_writing.explained(self._directory, self.facts.key):
                piece = os.pread(self._descriptor, min(self.piece_bytes, self.end - at), at)
            if not piece:
                raise errors.StoreRefused(
                    f"{self.facts.key} ends at byte {at} of {self.facts.bytes}: another process "
                    "cut it short in its directory"
                )
            at += len(piece)
            yield piece

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


class LocalWriter(context_manager_bases.Abortable):
    """A new object of a local store that is being written (`port.Writer`)."""

    def __init__(
        self,
        store: LocalStore,
        key: str,
        *,
        create: bool,
        if_match: str | None = None,
        looks: bool = True,
    ) -> None:
        self._descriptor = -1
        self._store = store
        self._key = key
        self._create = create
        self._if_match = if_match
        self._target = store.path(key)
        with file_writing.explained(store.directory, key):
            self._new, self._descriptor = directories.open_new(
                self._target.parent, above=store.directory
            )
        self._filling = file_writing.FileWriter(store.directory, key, self._descriptor, looks=looks)

    @property
    def bytes(self) -> int:
        return self._filling.at

    def write(self, piece: port.Data) -> None:
        self._filling.write(piece)

    def commit(self) -> port.ObjectFacts:
        with file_writing.explained(self._store.directory, self._key):
            os.fsync(self._descriptor)
            found = self._create_linked() if self._create else self._replace()
            self.abort()
            disk_checks.sync_directory(self._target.parent)
            return _facts(self._key, found)

    def abort(self) -> None:
        if self._descriptor >= 0:
            self._new.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def _create_linked(self) -> os.stat_result:
        """Create the object by a hard link, which succeeds for one writer only.

        Without hard links, check under the lock that the object does not exist, and rename the
        file.
        """
        self._stamp(0)
        if not directories.try_link(self._new, self._target):
            with directories.locked(self._target.parent):
                if self._target.exists():
                    raise FileExistsError(errno.EEXIST, "there is one")
                self._new.rename(self._target)
        return os.fstat(self._descriptor)

    def _replace(self) -> os.stat_result:
        with directories.locked(self._target.parent):
            try:
                old = self._target.stat()
            except FileNotFoundError:
                old = None
            expected = self._if_match
            if expected is not None and (old is None or _etag(old) != expected):
                now = "is gone" if old is None else f"has etag {_etag(old)}"
                raise errors.ObjectChanged(
                    f"{self._key} in {self._store.directory} {now}, not {expected}: read it again, "
                    "then decide again"
                )
            self._stamp(old.st_mtime_ns if old else 0)
            self._new.rename(self._target)
            return os.fstat(self._descriptor)

    def _stamp(self, last_ns: int) -> None:
        """Set the file's modification time, later than that of the object it replaces: the kernel's
        own time has ticks of 4 ms.
        """
        now_ns = max(int(self._store.clock.wall() * 1e9), last_ns + 1)
        os.utime(self._descriptor, ns=(now_ns, now_ns))

    def __del__(self) -> None:
        if self._descriptor >= 0:  # `sweep` removes the file; this may be a fork of its writer
            os.close(self._descriptor)


def _discard(path: Path, *, before: float) -> bool:
    """Delete an unfinished object, unless it was written to recently or its writer is alive."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_mtime >= before:
            return False
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True
    return False


def _walk(directory: Path, base: str, *, prefix: str, after: str) -> Iterator[port.ObjectFacts]:
    for name in directories.list_names(directory):
        key = base + name
        if name.endswith("/"):
            passed = after > key and not after.startswith(key)
            if not passed and (key.startswith(prefix) or prefix.startswith(key)):
                yield from _walk(directory / name, key, prefix=prefix, after=after)
        elif key.startswith(prefix) and key > after:
            with contextlib.suppress(FileNotFoundError):
                yield _facts(key, (directory / name).stat())


def _regular(found: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(found.st_mode):
        raise FileNotFoundError(errno.ENOENT, "a directory is no object")
    return found


def _facts(key: str, found: os.stat_result) -> port.ObjectFacts:
    return port.ObjectFacts(key, found.st_size, _etag(found), found.st_mtime)


def _etag(found: os.stat_result) -> str:
    return f"{found.st_mtime_ns:x}-{found.st_size:x}"
