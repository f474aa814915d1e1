"""Origins of blobs: ports for sources and peers, and sources that are files of this machine.

Used by `blob_fetch` and `source_pinning`. HTTP is implemented by the agent (`kilnwork.pond`). A
*stamp* is a text that differs whenever the content differs: an ETag, or size and times of a file;
"" if the origin has none. All methods raise `SourceMissing`, `SourceRefused`, `SourceChanged`, or
`SourceUnreachable`, which may be retried.
"""

import abc
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from kilnwork.data import context_manager_bases, errors
from kilnwork.data.pond import blob_files, globs, manifest
from kilnwork.kit import digests, snapshot_path_validation

LOCAL_RATE_NS = 50_000_000
"""Coarsest resolution of file times, in nanoseconds. A file that was written less than this before
it was examined may be written again without a change of its time."""


class Selection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Selection of files of a source: `paths` below it, or files that match `glob`; if both are
    empty, all files.
    """

    paths: tuple[str, ...] = ()
    glob: str = ""


class ListedFile(NamedTuple):
    """A file in the listing of a source. `size`: None if it is unknown before the file is read."""

    path: str
    size: int | None
    mode: int
    stamp: str


class Content(context_manager_bases.Closeable):
    """Content of a file that is being read, from byte `start` on. `total`: whole size of the file,
    None if unknown.
    """

    start: int
    total: int | None
    stamp: str

    @abc.abstractmethod
    def pieces(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the content in pieces; a piece is valid until the next one is
        requested.

        Raises SourceUnreachable if the content breaks off.
        """


class Source(Protocol):
    """A place with files that can be listed and read."""

    name: str

    def list(self, selection: Selection) -> Sequence[ListedFile]:
        """Return the selected files of the source. Raises an error rather than return none."""
        ...

    def open(self, path: str, *, offset: int, stamp: str) -> Content:
        """Open a file that `list` has returned, from `offset` on if the file has this stamp, else
        from the start.
        """
        ...


class Origin(NamedTuple):
    """A place from which one blob can be read.

    `open(offset, stamp)` works as `Source.open`. `peer`: whether the place finds the blob by
    digest, so that its content may be damaged but is never another version.
    """

    name: str
    peer: bool
    open: Callable[[int, str], Content]


class FileSource:
    """Source that is a directory or file of this machine.

    `below`: number of trailing components of `root` that come from the user of a snapshot; none of
    them may be a symbolic link, which could lead elsewhere.
    """

    def __init__(self, name: str, root: Path, *, below: int = 0) -> None:
        self.name = name
        self.root = root
        self._below = (root, *root.parents)[:below]

    def list(self, selection: Selection) -> Sequence[ListedFile]:
        """Return the selected files. Raises an error with the names of links, devices, sockets and
        pipes, which are refused.
        """
        self._refuse_links(self._below)
        with explained(self.root):
            found = sorted(self._found(selection))
        if not found:
            raise errors.SourceMissing(
                f"source {self.name} has no file in {self.root}{_which(selection)}"
            )
        return found

    def _found(self, selection: Selection) -> Iterator[ListedFile]:
        if selection.paths:
            for path in selection.paths:
                yield self._listed(path, self._inside(path))
        elif not self.root.is_dir():
            yield self._listed(self.root.name, self.root)
        else:
            for path in self._walk(self.root, ""):
                if not selection.glob or globs.matches(selection.glob, path):
                    yield self._listed(path, self.root / path)

    def _walk(self, directory: Path, prefix: str) -> Iterator[str]:
        with os.scandir(directory) as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    yield from self._walk(Path(entry.path), f"{path}/")
                else:
                    yield path

    def _inside(self, path: str) -> Path:
        """Return the path of a file below the root. No component may be a link, which could lead
        elsewhere."""
        if why := snapshot_path_validation.problem(path):
            raise errors.SourceRefused(f"source {self.name}: path {path!r} {why}")
        at = self.root / path
        depth = path.count("/") + 1
        self._refuse_links(reversed((at, *at.parents)[:depth]))
        return at

    def _refuse_links(self, paths: Iterable[Path]) -> None:
        for at in paths:
            if at.is_symlink():
                raise errors.SourceRefused(
                    f"source {self.name}: {at} is a symbolic link, and links are not followed"
                )

    def _listed(self, path: str, at: Path) -> ListedFile:
        if why := snapshot_path_validation.problem(path):
            raise errors.SourceRefused(f"source {self.name}: file {path!r} {why}")
        found = at.stat() if at == self.root else at.lstat()
        if why := manifest.type_problem(found.st_mode):
            raise errors.SourceRefused(
                f"source {self.name}: {at} {why}: snapshots have regular files only, leave it out "
                "by paths or glob"
            )
        return ListedFile(path, found.st_size, manifest.mode_of(found.st_mode), _stamp(found))

    def open(self, path: str, *, offset: int, stamp: str) -> Content:
        """Open a file of the source. Reading raises SourceChanged at the end if the file was
        written to meanwhile.
        """
        self._refuse_links(self._below)
        at = self.root if self.root.is_file() else self._inside(path)
        with explained(at):
            follow = 0 if at == self.root else os.O_NOFOLLOW
            descriptor = os.open(at, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | follow)
        return FileContent(self.name, at, descriptor, offset=offset, stamp=stamp)


class FileContent(Content):
    """Content of an open file. `path`: the path for messages."""

    def __init__(
        self, source: str, path: Path, descriptor: int, *, offset: int, stamp: str
    ) -> None:
        self._source, self._path, self._file = source, path, descriptor
        found = os.fstat(descriptor)
        self.stamp, self.total = _stamp(found), found.st_size
        self.start = offset if self.stamp == stamp and offset <= found.st_size else 0
        if not stat.S_ISREG(found.st_mode):
            self.close()
            raise errors.SourceRefused(f"source {source}: {path} is no regular file any more")

    def pieces(self) -> Iterator[bytes | memoryview]:
        os.lseek(self._file, self.start, os.SEEK_SET)
        buffer = memoryview(bytearray(blob_files.PIECE_BYTES))
        with explained(self._path):
            while count := os.readv(self._file, [buffer]):
                yield buffer[:count]
            after = _stamp(os.fstat(self._file))
        if after != self.stamp:
            raise errors.SourceChanged(
                f"source {self._source}: {self._path} was written to while it was read"
            )

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class InlineSource:
    """Source whose files are part of the request."""

    def __init__(self, name: str, files: dict[str, bytes]) -> None:
        self.name = name
        self._files = files

    def list(self, selection: Selection) -> Sequence[ListedFile]:
        for path in self._files:
            if why := snapshot_path_validation.problem(path):
                raise errors.SourceRefused(f"source {self.name}: file {path!r} {why}")
        for path in selection.paths:
            if path not in self._files:
                raise errors.SourceMissing(f"source {self.name} has no file {path!r}")
        found = [
            ListedFile(path, len(content), manifest.PLAIN, _inline_stamp(content))
            for path, content in sorted(self._files.items())
            if (path in selection.paths or not selection.paths)
            and (not selection.glob or globs.matches(selection.glob, path))
        ]
        if not found:
            raise errors.SourceMissing(f"source {self.name} has no file{_which(selection)}")
        return found

    def open(self, path: str, *, offset: int, stamp: str) -> Content:
        content = self._files[path]
        return _InlineContent(content, offset if stamp == _inline_stamp(content) else 0)


def _inline_stamp(content: bytes) -> str:
    """Return the stamp of an inline file, made of its digest: another request may have other
    content at the same path.
    """
    return f"inline:{digests.sha256_of((content,)).hex()}"


class _InlineContent(Content):
    def __init__(self, content: bytes, offset: int) -> None:
        self.stamp = _inline_stamp(content)
        self._content = content
        self.start = min(offset, len(content))
        self.total = len(content)

    def pieces(self) -> Iterator[bytes | memoryview]:
        view = memoryview(self._content)[self.start :]
        for at in range(0, len(view), blob_files.PIECE_BYTES):
            yield view[at : at + blob_files.PIECE_BYTES]

    def close(self) -> None:
        """Do nothing, since inline content holds no resources."""


def is_settled(stamp: str, now_s: float) -> bool:
    """Return whether a stamp is reliable: any later change of the content will result in a
    different stamp.

    The stamp of a local file contains the time of its last write. It is reliable if that time is
    more than `LOCAL_RATE_NS` ago; otherwise another write could still get the same time. Any other
    stamp is reliable unless it is "".
    """
    kind, _, rest = stamp.partition(":")
    if kind != "file":
        return bool(stamp)
    modified_ns = int(rest.split("-")[2])
    return now_s * 1e9 - modified_ns > LOCAL_RATE_NS


def _stamp(found: os.stat_result) -> str:
    times = f"{found.st_mtime_ns}-{found.st_ctime_ns}"
    return f"file:{found.st_size}-{found.st_ino}-{times}"


def _which(selection: Selection) -> str:
    return f" that fits {selection.glob!r}" if selection.glob else ""


class explained:  # noqa: N801 - a context manager, as contextlib names its own
    """Context manager around reading a path, which converts errors of the file system to errors of
    sources.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Do nothing; errors are converted at the end of the block."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, OSError):
            return
        where = error.filename or self._path
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise errors.SourceMissing(f"{where} is not there") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.ELOOP):
            raise errors.SourceRefused(f"{where} may not be read: {error.strerror}") from error
        raise errors.SourceUnreachable(f"{where} cannot be read: {error.strerror}") from error
