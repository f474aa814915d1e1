"""Trees: the files of a snapshot as a run sees them, made of blobs.

Used by `store`. A tree for reading is made of hard links to the blobs, with directories that cannot
be written; one to write to has files of its own, by reflink where the file system can (XFS, Btrfs),
else by copying. An executable file is always its own: its mode would be that of the blob. A tree is
made beside its place and renamed, and its marker comes last: `.NAME.ready` says what is there in
full.
"""

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kilnwork.data import disks
from kilnwork.data.pond import manifest
from kilnwork.kit import paths

READ, COPY = "read", "copy"

_FICLONE = 0x40049409
"""ioctl_ficlone(2)."""

_NO_REFLINK = frozenset(
    {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM}
)
_CLOSED, _OPEN = 0o555, 0o755


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """What a tree has. `own_bytes`: of files that are no links, which take room of their own."""

    digest: str
    access: str
    files: int
    own_bytes: int


def marker(run: Path, name: str) -> Marker | None:
    """Return that of a tree that is complete, None for any other."""
    try:
        return msgspec.json.decode(_marker_path(run, name).read_bytes(), type=Marker)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def own_bytes(files: Sequence[manifest.File], access: str) -> int:
    """Return how much room a tree takes beside the blobs."""
    return sum(f.size for f in files if access == COPY or f.mode == manifest.EXECUTABLE)


def make(
    run: Path, name: str, *, blobs: Path, digest: str, files: Sequence[manifest.File], access: str
) -> Marker:
    """Make the tree `run/name` of these files, whose blobs are all there; or add what it lacks.

    A tree of another digest or access is replaced; a copy that is there is left as it is, since
    somebody works with it. Repeatable after any interruption. Raises OSError, and then the marker
    is not there.
    """
    seen = marker(run, name)
    wanted = Marker(
        digest=digest, access=access, files=len(files), own_bytes=own_bytes(files, access)
    )
    same = seen is not None and (seen.digest, seen.access) == (digest, access)
    if same and seen is not None and (access == COPY or _complete(run / name, files, blobs=blobs)):
        return seen
    run.mkdir(mode=0o755, parents=True, exist_ok=True)
    _marker_path(run, name).unlink(missing_ok=True)
    if same:
        _fill(run / name, files, blobs=blobs, access=access)
    else:
        _make_anew(run, name, blobs=blobs, files=files, access=access)
    _close(run / name, access)
    disks.sync_folder(run)
    paths.write_private(_marker_path(run, name), msgspec.json.encode(wanted), durable=True)
    _marker_path(run, name).chmod(0o444)
    return wanted


def remove(path: Path) -> None:
    """Remove a tree, or a run with all its trees."""
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(FileNotFoundError):
            os.chmod(folder, _OPEN)  # noqa: PTH101 - as os.walk has it
    shutil.rmtree(path, ignore_errors=True)


def _make_anew(
    run: Path, name: str, *, blobs: Path, files: Sequence[manifest.File], access: str
) -> None:
    new = run / f".{name}.new"
    remove(new)
    new.mkdir(mode=_OPEN)
    _fill(new, files, blobs=blobs, access=access)
    if (run / name).exists():
        remove(run / name)
    new.rename(run / name)


def _fill(top: Path, files: Sequence[manifest.File], *, blobs: Path, access: str) -> None:
    made: set[Path] = set()
    for file in files:
        path, hexdigits = top / file.path, file.digest.removeprefix("sha256:")
        if path.parent not in made:
            _make_folders(top, path.parent)
            made.add(path.parent)
        blob = blobs / hexdigits[:2] / hexdigits
        if path.exists() and (access == COPY or _is_whole(path, file, blob)):
            continue
        if access == READ and file.mode == manifest.PLAIN and _link(blob, path):
            continue
        _copy(blob, path, file.mode if access == COPY else file.mode & _CLOSED)


def _link(blob: Path, path: Path) -> bool:
    """False when the blob has all the links that its file system allows (ext4: 65,000)."""
    try:
        os.link(blob, path)
    except FileExistsError:  # a link to a blob that was damaged: whoever has it open keeps that
        new = _new_name(path)
        new.unlink(missing_ok=True)
        if not _link(blob, new):
            return False
        new.rename(path)
    except OSError as error:
        if error.errno != errno.EMLINK:
            raise
        return False
    return True


def _new_name(path: Path) -> Path:
    return path.with_name(f".{path.name[:200]}.kiln-new")


def _make_folders(top: Path, folder: Path) -> None:
    """Make them, and open those that are there."""
    if folder != top:
        _make_folders(top, folder.parent)
    folder.mkdir(mode=_OPEN, exist_ok=True)
    folder.chmod(_OPEN)


def _copy(blob: Path, path: Path, mode: int) -> None:
    """Under another name first: a file that is there is whole."""
    new = _new_name(path)
    new.unlink(missing_ok=True)
    with blob.open("rb") as source, new.open("xb") as target:
        try:
            fcntl.ioctl(target.fileno(), _FICLONE, source.fileno())
        except OSError as error:
            if error.errno not in _NO_REFLINK:
                raise
            shutil.copyfileobj(source, target, 1 << 20)
    new.chmod(mode)
    new.rename(path)


def _complete(top: Path, files: Sequence[manifest.File], *, blobs: Path) -> bool:
    for file in files:
        hexdigits = file.digest.removeprefix("sha256:")
        if not _is_whole(top / file.path, file, blobs / hexdigits[:2] / hexdigits):
            return False
    return True


def _is_whole(path: Path, file: manifest.File, blob: Path) -> bool:
    """Whether a file of a tree to read from is what the blob is now, which is another one after the
    first was found damaged. A copy for want of links is made anew, which harms nobody."""
    try:
        found = path.stat()
        return file.mode != manifest.PLAIN or found.st_ino == blob.stat().st_ino
    except FileNotFoundError:
        return False


def _close(top: Path, access: str) -> None:
    if access == COPY:
        return
    for folder, _, _ in os.walk(top):
        os.chmod(folder, _CLOSED)  # noqa: PTH101 - as os.walk has it


def _marker_path(run: Path, name: str) -> Path:
    return run / f".{name}.ready"
