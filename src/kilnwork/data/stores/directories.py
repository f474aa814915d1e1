"""Directories below a local store: created when needed, locked, and removed when empty.

Used by `local` and `local_resumable`. `.lock` is locked (flock) by a process that replaces or
deletes files of a directory; `.new-…` are incomplete files, each locked by its writer. No key
begins with a dot.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from kilnwork.data import disk_checks, errors

UNFINISHED = ".new-"
_LOCK = ".lock"
_ATTEMPTS = 100
"""Number of attempts to create a file in a directory that other processes remove because it is
empty."""


_NO_LINK = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)
"""Errors of link(2) if a file system has no hard links, or no more for a file. Azure Files and FAT
have none."""


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Lock a directory against other processes and threads during the block. Raises
    FileNotFoundError if it does not exist.
    """
    path = directory / _LOCK
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_still(path, descriptor):
                yield
                return
        finally:
            os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    """Return whether a path still leads to the lock file that was opened.

    A process that held the lock before us may have removed the directory.
    """
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def is_empty(directory: Path) -> bool:
    """Return whether a directory contains nothing but its lock file."""
    with os.scandir(directory) as entries:  # reads only the first of perhaps 100,000 names
        return all(entry.name == _LOCK for entry in entries)


def remove_empty(directory: Path) -> bool:
    """Remove a directory that contains nothing but its lock file, whose lock the caller holds.
    Return False if it contains more.
    """
    if not is_empty(directory):
        return False
    (directory / _LOCK).unlink(missing_ok=True)
    try:
        directory.rmdir()
    except OSError:
        return False
    return True


def open_new(directory: Path, *, above: Path) -> tuple[Path, int]:
    """Create a new file with a unique name in `directory`, and lock the file so that `sweep` does
    not delete it.
    """
    path = directory / f"{UNFINISHED}{os.urandom(8).hex()}"
    for _ in range(_ATTEMPTS):
        try:
            _make_directories(directory, above=above)
        except NotADirectoryError as error:
            raise errors.BadKey(
                f"{directory} cannot be a directory: there is an object above"
            ) from error
        with contextlib.suppress(FileNotFoundError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(path, flags, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            return path, descriptor
    raise _removed_error(directory)


def _removed_error(directory: Path) -> FileNotFoundError:
    return FileNotFoundError(
        errno.ENOENT, "another process removes it again and again", str(directory)
    )


def _make_directories(directory: Path, *, above: Path) -> None:
    """Create a directory and its parents with private mode, and sync them to disk."""
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        if directory.is_dir():
            return
        if os.path.lexists(directory) and not directory.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, "an object is no directory", str(directory)
            ) from None
        _make_directories(directory, above=above)  # it was empty, and has been removed since
        return
    except FileNotFoundError:
        if directory == above:
            directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        else:
            _make_directories(directory.parent, above=above)
        _make_directories(directory, above=above)
        return
    disk_checks.sync_directory(directory.parent)


def link(source: Path, target: Path, *, above: Path) -> bool:
    """Hard-link a file under a second name, and sync that to disk. Return False if the file system
    has no hard links.

    Raises FileExistsError, and FileNotFoundError if the file does not exist.
    """
    for _ in range(_ATTEMPTS):
        _make_directories(target.parent, above=above)
        try:
            if not try_link(source, target):
                return False
        except FileNotFoundError:
            source.stat()
            continue  # another process has removed the directory, which was empty
        disk_checks.sync_directory(target.parent)
        return True
    raise _removed_error(target.parent)


def try_link(source: Path, target: Path) -> bool:
    """Hard-link a file into an existing directory, without syncing. Return False if the file system
    does not support the link.
    """
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in _NO_LINK:
            return False
        raise
    return True


def list_names(directory: Path) -> list[str]:
    """Return the names in a directory in the order of keys, directories with a slash.

    Files of the store itself are left out, and so are symbolic links: deleting a job must not
    delete files elsewhere.
    """
    try:
        with os.scandir(directory) as entries:
            return sorted(
                entry.name + "/" * entry.is_dir()
                for entry in entries
                if entry.name[0] != "." and not entry.is_symlink()
            )
    except (FileNotFoundError, NotADirectoryError):
        return []
