"""Unpacks archives made by `code_packing`, each into a new directory and never outside of it.

Used by `code_activation` in workers. The archive comes from a driver; a user who may submit tasks
could have made another one, so nothing in it is trusted: every entry is checked before the first is
written, links are created after all files, and their targets are checked last. An archive that
`code_packing` would not have made is refused as a whole. This does not limit rights: a task may do
whatever its worker may.
"""

import os
import stat
import struct
import zlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import zipfile

WORK = "work"
MODULES = "modules"
PATHS = "paths"
"""Entries of an archive: the working directory, the modules that are only imported, and the list of
further directories of the import path."""

MAX_BYTES = 100 * 1024 * 1024
"""Maximum total size of the files and links of an archive: more is data, or a virtual environment
by mistake."""

MAX_NAME_BYTES = 255
"""Maximum length of each component of a path, as in Linux."""

_MAX_PATHS_BYTES = 1 << 20
_STORED = 0  # zipfile.ZIP_STORED
_SPECIAL_BITS = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_KINDS = {
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}


class ArchiveRefused(ValueError):
    """The archive has an entry that `code_packing` never makes; the message names it."""


def unpack(file: BinaryIO, root: Path) -> None:
    """Unpack an archive into `root`, an empty directory that no other process uses.

    Raises `ArchiveRefused`, OSError. After an error some of the files may exist: remove the
    directory.
    """
    import zipfile  # noqa: PLC0415 - 15 ms that few slots need

    try:
        with zipfile.ZipFile(file) as archive:
            entries = _checked(archive)
            for entry in entries:
                if not stat.S_ISLNK(_mode(entry)):
                    _write(archive, entry, root)
            links = [entry for entry in entries if stat.S_ISLNK(_mode(entry))]
            for entry in links:
                _link(archive, entry, root)
            _check_links(links, root)
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, UnicodeError) as error:
        raise ArchiveRefused(str(error)) from error
    except (NotImplementedError, RuntimeError) as error:  # an unsupported compression or encryption
        raise ArchiveRefused(str(error)) from error
    except FileExistsError as error:  # two names of one file, such as A and a on some disks
        raise ArchiveRefused(f"two entries are one file: {error.filename!r}") from error


def _checked(archive: "zipfile.ZipFile") -> "list[zipfile.ZipInfo]":
    """Return all entries of an archive after checking that each may be created under its name.

    Raises `ArchiveRefused`.
    """
    entries = archive.infolist()
    total = sum(entry.file_size for entry in entries if entry.filename != PATHS)
    if total > MAX_BYTES:
        raise ArchiveRefused(f"its files are {total} bytes, more than {MAX_BYTES}")
    leaves: set[str] = set()
    directories: set[str] = set()
    for entry in entries:
        _check_entry(entry)
        name = entry.filename.rstrip("/")
        directories.update(map(str, PurePosixPath(name).parents))
        if entry.is_dir():
            directories.add(name)
        elif name in leaves:
            raise ArchiveRefused(f"{name!r} is in it twice")
        else:
            leaves.add(name)
    for name in sorted(leaves & directories):
        raise ArchiveRefused(f"{name!r} is a file or a link, and a directory of other entries")
    if PATHS not in leaves:
        raise ArchiveRefused(f"there is no {PATHS!r} in it")
    return entries


def _check_entry(entry: "zipfile.ZipInfo") -> None:
    """Check the name, the kind and the storage method of an entry. Raises `ArchiveRefused`."""
    name, mode = entry.filename, _mode(entry)
    _check_name(entry.orig_filename)  # `filename` ends before a NUL
    kind = stat.S_IFMT(mode)
    if kind in _KINDS:
        raise ArchiveRefused(f"{name!r} is {_KINDS[kind]}")
    if kind not in (0, stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR):
        raise ArchiveRefused(f"{name!r} is of an unknown kind: mode {mode:o}")
    if entry.is_dir() != (kind == stat.S_IFDIR) and (kind or not entry.is_dir()):
        raise ArchiveRefused(
            f"{name!r} is a directory by its name or by its mode {mode:o}, not by both"
        )
    if mode & _SPECIAL_BITS:
        raise ArchiveRefused(f"{name!r} has a setuid, setgid or sticky bit: mode {mode:o}")
    if entry.is_dir() and entry.file_size:
        raise ArchiveRefused(f"{name!r} is a directory and has content")
    if name == PATHS and stat.S_ISLNK(mode):
        raise ArchiveRefused(f"{name!r} is a link")
    if entry.compress_type != _STORED:
        raise ArchiveRefused(f"{name!r} is compressed")


def _check_name(name: str) -> None:
    """Check that a name is a plain path below `work` or `modules`. Raises `ArchiveRefused`."""
    if "\0" in name:
        raise ArchiveRefused(f"a name holds a NUL: {name!r}")
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError as error:
        raise ArchiveRefused(f"{name!r} cannot be the name of a file here") from error
    parts = name.removesuffix("/").split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise ArchiveRefused(f"a file is called {name!r}")
    if any(len(part) > MAX_NAME_BYTES for part in encoded.split(b"/")):
        raise ArchiveRefused(f"a part of {name!r} has more than {MAX_NAME_BYTES} bytes")
    below = len(parts) > 1 or name.endswith("/")
    if name != PATHS and (parts[0] not in (WORK, MODULES) or not below):
        raise ArchiveRefused(f"{name!r} is not below {WORK!r} or {MODULES!r}")


def _write(archive: "zipfile.ZipFile", entry: "zipfile.ZipInfo", root: Path) -> None:
    path = root / entry.filename
    if entry.is_dir():
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return
    if entry.filename == PATHS:
        _check_paths(archive, entry)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = 0o700 if _mode(entry) & stat.S_IXUSR else 0o600
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "wb") as into, archive.open(entry) as source:
        while block := source.read(1 << 18):
            into.write(block)


def _check_paths(archive: "zipfile.ZipFile", entry: "zipfile.ZipInfo") -> None:
    if entry.file_size > _MAX_PATHS_BYTES:
        raise ArchiveRefused(f"{PATHS!r} has {entry.file_size} bytes")
    for line in archive.read(entry).decode().split("\n"):
        if line and line != WORK:
            _check_name(line)


def _link(archive: "zipfile.ZipFile", entry: "zipfile.ZipInfo", root: Path) -> None:
    if entry.file_size > os.pathconf(root, "PC_PATH_MAX"):
        raise ArchiveRefused(
            f"{entry.filename!r} is a link whose target has {entry.file_size} bytes"
        )
    target = archive.read(entry)
    if not target or b"\0" in target or target.startswith(b"/"):
        shown = os.fsdecode(target)
        raise ArchiveRefused(
            f"{entry.filename!r} is a link to {shown!r}, which is no relative path"
        )
    path = root / entry.filename
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.symlink_to(os.fsdecode(target))


def _check_links(links: "list[zipfile.ZipInfo]", root: Path) -> None:
    """Check that the target of each symbolic link is in the same part of the archive as the link.

    A target that is itself a link is followed.
    """
    for entry in links:
        path = root / entry.filename
        part = (root / entry.filename.partition("/")[0]).resolve()
        leads = os.path.realpath(path)  # a cycle of links resolves to itself, and cannot be opened
        if not Path(leads).is_relative_to(part):
            target = os.readlink(path)  # noqa: PTH115 - unresolved
            raise ArchiveRefused(
                f"{entry.filename!r} is a link to {target!r}, which leads out of it"
            )


def _mode(entry: "zipfile.ZipInfo") -> int:
    return entry.external_attr >> 16
