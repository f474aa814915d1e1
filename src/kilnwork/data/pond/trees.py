"""Trees: the files of a snapshot as seen by a run, made from blobs.

Used by `store`. A tree for reading consists of hard links to the blobs, with directories that
cannot be written; a writable tree has files of its own, by reflink if the file system supports it
(XFS, Btrfs), else by copying. An executable file is always a copy, since a link would have the mode
of the blob. A tree is created next to its place and renamed, and its marker is written last:
`.NAME.ready` says that the tree is complete. Files for reading have the modification time of a
blob: a file that was written to has a different one, and is replaced when the tree is made again.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kilnwork.data import disk_checks
from kilnwork.data.pond import blob_files, manifest
from kilnwork.kit import data_directories

READ, COPY = "read", "copy"

_FICLONE = 0x40049409
"""Request number of ioctl_ficlone(2)."""

_NO_REFLINK = frozenset(
    {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM}
)
_CLOSED, _OPEN = 0o555, 0o755


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the marker of a complete tree. `own_bytes`: size of the files that are not links
    and use space of their own.
    """

    digest: str
    access: str
    files: int
    own_bytes: int
    paths_digest: str = ""
    """Which files of the snapshot the tree has (`pond_messages.paths_digest`); "" in markers of
    older versions, which did not say."""

    def has(self, digest: str, access: str, paths_digest: str) -> bool:
        """Return whether the marker is that of a tree with these files of a snapshot."""
        found = (self.digest, self.access, self.paths_digest or paths_digest)
        return found == (digest, access, paths_digest)


def marker(run: Path, name: str) -> Marker | None:
    """Return the marker of a complete tree, else None."""
    try:
        return msgspec.json.decode(_marker_path(run, name).read_bytes(), type=Marker)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def own_bytes(files: Sequence[manifest.File], access: str) -> int:
    """Return the number of bytes that a tree uses in addition to the blobs."""
    return sum(f.size for f in files if access == COPY or f.mode == manifest.EXECUTABLE)


def make(
    run: Path, name: str, wanted: Marker, *, blobs: Path, files: Sequence[manifest.File]
) -> None:
    """Create or complete the tree `run/name` of these files, whose blobs must all be on this node.

    `wanted`: the marker of the complete tree. A tree with a different digest or access is replaced,
    and so is a file for reading that a process has written to; an existing copy is left unchanged,
    since a task works with it. May be repeated after any interruption. Raises OSError, and then
    there is no marker.
    """
    seen, access = marker(run, name), wanted.access
    same = seen is not None and (seen.digest, seen.access) == (wanted.digest, access)
    if same and (access == COPY or _is_complete(run / name, files, blobs)):
        if seen != wanted:
            _write_marker(run, name, wanted)
        return
    run.mkdir(mode=0o755, parents=True, exist_ok=True)
    _marker_path(run, name).unlink(missing_ok=True)
    if same:
        _Filling(run, name, blobs=blobs, access=access).fill(run / name, files)
    else:
        _replace_tree(run, name, blobs=blobs, files=files, access=access)
    _make_read_only(run / name, access)
    disk_checks.sync_directory(run)
    _write_marker(run, name, wanted)


def withdraw(
    run: Path, name: str, files: Sequence[manifest.File], *, digest: str, blobs: Path
) -> None:
    """Delete files from a tree for reading if their content differs from their blob, so that no
    task reads them.

    Such a file was damaged on disk, or a process has written to it. Then the tree is incomplete and
    has to be made again. A tree that is a copy, or has another digest, is left alone. Raises
    OSError.
    """
    seen = marker(run, name)
    if seen is not None and (seen.digest, seen.access) != (digest, READ):
        return
    for file in files:
        path = run / name / file.path
        if path.exists() and not _is_current(path, file, _blob(blobs, file), access=READ):
            _marker_path(run, name).unlink(missing_ok=True)
            path.parent.chmod(_OPEN)
            path.unlink()
            path.parent.chmod(_CLOSED)


def remove(path: Path) -> None:
    """Delete a tree, or the directory of a run with all its trees."""
    for directory, _, _ in os.walk(path):
        with contextlib.suppress(FileNotFoundError):
            os.chmod(directory, _OPEN)  # noqa: PTH101 - as os.walk has it
    shutil.rmtree(path, ignore_errors=True)


def _replace_tree(
    run: Path, name: str, *, blobs: Path, files: Sequence[manifest.File], access: str
) -> None:
    new = run / f".{name}.new"
    remove(new)
    new.mkdir(mode=_OPEN)
    _Filling(run, name, blobs=blobs, access=access).fill(new, files)
    old = run / f".{name}.old"
    remove(old)
    with contextlib.suppress(FileNotFoundError):
        (run / name).rename(old)  # a task may be reading the tree: replace it quickly
    new.rename(run / name)
    remove(old)


class _Filling:
    """Operation that puts files into the tree of a snapshot.

    Files other than new links are created next to the tree, where no file of the snapshot can be,
    and renamed, so that existing files are complete.
    """

    def __init__(self, run: Path, name: str, *, blobs: Path, access: str) -> None:
        self._blobs, self._access = blobs, access
        self._new = run / f".{name}.file"

    def fill(self, top: Path, files: Sequence[manifest.File]) -> None:
        """Add missing files to the tree and, in a tree for reading, replace files that were written
        to.
        """
        made: set[Path] = set()
        for file in files:
            path = top / file.path
            if path.parent not in made:
                _make_directories(top, path.parent)
                made.add(path.parent)
            blob = _blob(self._blobs, file)
            if not _is_current(path, file, blob, access=self._access):
                self._add(path, file, blob)

    def _add(self, path: Path, file: manifest.File, blob: Path) -> None:
        linkable = self._access == READ and file.mode == manifest.PLAIN
        if linkable and not path.exists() and _link(blob, path):
            return
        self._new.unlink(missing_ok=True)
        if not (linkable and _link(blob, self._new)):
            self._copy(blob, file.mode)
        self._new.rename(path)

    def _copy(self, blob: Path, mode: int) -> None:
        with blob.open("rb") as source, self._new.open("xb") as target:
            try:
                fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
            except OSError as error:
                if error.errno not in _NO_REFLINK:
                    raise
                shutil.copyfileobj(source, target, 1 << 20)
        if self._access == COPY:
            self._new.chmod(mode)
        else:
            self._new.chmod(mode & _CLOSED)
            blob_files.stamp(self._new)


def _link(blob: Path, path: Path) -> bool:
    """Link a file of a tree to its blob. Return False if the blob has the maximum number of links
    of its file system (ext4: 65,000).
    """
    try:
        os.link(blob, path)
    except OSError as error:
        if error.errno != errno.EMLINK:
            raise
        return False
    return True


def _is_current(path: Path, file: manifest.File, blob: Path, *, access: str) -> bool:
    """Return whether a file of a tree exists and need not be made again.

    A copy belongs to its task, whatever its content. A link to a former file of the blob does not
    count: that file was found damaged and set aside. A copy that was made for lack of links is made
    again, which harms no reader.
    """
    try:
        found = path.stat()
        if access == COPY:
            return True
        if (found.st_size, found.st_mtime_ns) != (file.size, blob_files.STAMP_NS):
            return False
        return file.mode != manifest.PLAIN or found.st_ino == blob.stat().st_ino
    except FileNotFoundError:
        return False


def _blob(blobs: Path, file: manifest.File) -> Path:
    name = file.digest.removeprefix("sha256:")
    return blobs / name[:2] / name


def _make_directories(top: Path, directory: Path) -> None:
    """Create directories, and make existing ones writable."""
    if directory != top:
        _make_directories(top, directory.parent)
    directory.mkdir(mode=_OPEN, exist_ok=True)
    directory.chmod(_OPEN)


def _is_complete(top: Path, files: Sequence[manifest.File], blobs: Path) -> bool:
    return all(_is_current(top / f.path, f, _blob(blobs, f), access=READ) for f in files)


def _make_read_only(top: Path, access: str) -> None:
    if access == COPY:
        return
    for directory, _, _ in os.walk(top):
        os.chmod(directory, _CLOSED)  # noqa: PTH101 - as os.walk has it


def _write_marker(run: Path, name: str, content: Marker) -> None:
    path = _marker_path(run, name)
    data_directories.write_private(path, msgspec.json.encode(content), durable=True)
    path.chmod(0o444)


def _marker_path(run: Path, name: str) -> Path:
    return run / f".{name}.ready"
