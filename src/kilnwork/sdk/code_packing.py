"""Packs code that workers do not have, a directory and modules, into one blob.

Used by `remote` for `working_dir=` and `modules=`, and by `cli.packed_code` for the functions of
commands; unpacked by `code_unpacking`. The blob is an
uncompressed zip file with the same bytes for the same files: `work/…` is the directory, `modules/…`
the modules that are imported by name, and `paths` lists the directories in `work` that are on our
`sys.path`, one per line. Not for data: a file that tasks read is `put` or split.
"""

import fnmatch
import importlib.util
import os
import stat
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from kilnwork.data import errors, local_blobs
from kilnwork.kit import data_directories
from kilnwork.sdk import code_unpacking

MAX_BYTES = code_unpacking.MAX_BYTES
"""Maximum total size of the packed files, in bytes: more is data, or a virtual environment by
mistake."""

IGNORE_FILE = ".kilnignore"
EXCLUDED = (
    ".git", ".hg", ".svn", ".venv", "venv", ".tox", ".nox", "node_modules", "__pycache__", "*.pyc",
    ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".ipynb_checkpoints", ".DS_Store",
)  # fmt: skip
"""Names of files and directories that are left out; so is every directory with a pyvenv.cfg, and
every data directory of kilnwork, because it contains tokens and keys."""

NOT_SHIPPED = "{} is a data directory of kiln: it is not shipped, for its tokens and keys"

_LARGEST = 5
_EPOCH = (1980, 1, 1, 0, 0, 0)


class Shipped(NamedTuple):
    """The result of packing a directory and modules into a blob.

    `digest`: the digest of the blob, as specs name it; None: there is nothing to ship. `modules`:
    the top-level modules that can be imported from the blob. `left_out`: data directories of
    kilnwork that were not packed, for a warning.
    """

    digest: str | None
    modules: frozenset[str]
    left_out: tuple[Path, ...] = ()


class _File(NamedTuple):
    """A file to pack.

    `name`: its name in the archive. `target`: the target of a symbolic link, which is packed as a
    link.
    """

    name: str
    path: Path
    size: int
    mode: int
    target: str | None = None


def pack(
    working_dir: str | os.PathLike[str] | None,
    kept: local_blobs.Blobs,
    *,
    modules: Sequence[ModuleType | str] = (),
    files: Sequence[Path] = (),
) -> Shipped:
    """Store a directory and modules as one blob. Raises `NotShippable`, `BlobNotWritten`, OSError.

    `files`: the files of further modules, which need not be on our import path. Excluded are
    `EXCLUDED`, data directories, and files that `.kilnignore` in the directory lists: one shell
    pattern per line, for a name or a path in the directory; lines that begin with # are comments.
    """
    found: list[_File] = []
    left_out: list[Path] = []
    imported_from: list[str] = []
    if working_dir is not None:
        root = Path(working_dir).expanduser().absolute()
        found += _directory(root, left_out)
        imported_from = [code_unpacking.WORK, *_paths_in(root)]
    for module in modules:
        found += _module(module if isinstance(module, str) else module.__name__, left_out)
    found += [_module_file(path) for path in files]
    if not found:
        return Shipped(None, frozenset(), tuple(left_out))
    packed = sorted({file.name: file for file in found}.values())
    _check_size(packed)
    with kept.writer() as new:
        with zipfile.ZipFile(_Stream(new), "w") as archive:  # type: ignore[call-overload]
            archive.writestr(
                zipfile.ZipInfo(code_unpacking.PATHS, _EPOCH), "\n".join(imported_from)
            )
            for file in packed:
                _add(archive, file)
        digest, _ = new.commit()
    tops = frozenset(
        _importable((file.name for file in packed), [*imported_from, code_unpacking.MODULES])
    )
    return Shipped(local_blobs.text(digest), tops, tuple(left_out))


def _paths_in(root: Path) -> Iterator[str]:
    """Yield the directories below `root` that are on our import path, such as `src`.

    Workers import from these directories too.
    """
    for place in sys.path:
        path = Path(place).absolute()
        if path != root and path.is_relative_to(root):
            yield f"{code_unpacking.WORK}/{path.relative_to(root).as_posix()}"


def _directory(root: Path, left_out: list[Path]) -> list[_File]:
    if not root.is_dir():
        raise errors.NotShippable(f"working_dir={str(root)!r} is no directory")
    if data_directories.is_data_dir(root):
        raise errors.NotShippable(
            f"{NOT_SHIPPED.format(root)}. Name the directory of the program, and another one "
            "to --data"
        )
    patterns = list(EXCLUDED)
    ignored = root / IGNORE_FILE
    if ignored.is_file():
        lines = (line.strip().rstrip("/") for line in ignored.read_text().splitlines())
        patterns += [line.removeprefix("/") for line in lines if line and line[0] != "#"]
    return list(_below(root, code_unpacking.WORK, patterns, left_out=left_out))


def _module(name: str, left_out: list[Path]) -> list[_File]:
    """Return the files of the top-level package or module that contains `name`."""
    top = name.partition(".")[0]
    try:
        spec = None if top == "__main__" else importlib.util.find_spec(top)
    except ValueError:  # a module without a spec, such as __mp_main__
        spec = None
    if spec is None:
        raise errors.NotShippable(
            f"there is no module {top!r} to ship; what __main__ defines goes along by itself"
        )
    if spec.submodule_search_locations:
        where = f"{code_unpacking.MODULES}/{top}"
        roots = [Path(root) for root in spec.submodule_search_locations]
        return [f for root in roots for f in _below(root, where, EXCLUDED, left_out=left_out)]
    origin = Path(spec.origin or "")
    if not spec.has_location or not origin.is_file():
        raise errors.NotShippable(
            f"module {top!r} is no file that could be shipped: it is {spec.origin or 'built in'}"
        )
    return [_module_file(origin)]


def _module_file(path: Path) -> _File:
    found = path.stat()
    return _File(f"{code_unpacking.MODULES}/{path.name}", path, found.st_size, found.st_mode)


def _below(
    root: Path, where: str, patterns: Sequence[str], *, left_out: list[Path]
) -> Iterator[_File]:
    """Yield the files and symbolic links below `root` that are packed, with their names in the
    archive.
    """
    for directory, directories, names in os.walk(root):
        at = Path(directory)
        links = [name for name in directories if (at / name).is_symlink()]
        directories[:] = sorted(
            name
            for name in set(directories) - set(links)
            if not _excluded(at / name, root, patterns) and not (at / name / "pyvenv.cfg").exists()
        )
        left_out += [at / name for name in directories if data_directories.is_data_dir(at / name)]
        directories[:] = [name for name in directories if at / name not in left_out]
        for name in names + links:
            path = at / name
            if not _excluded(path, root, patterns):
                yield from _file(path, f"{where}/{path.relative_to(root).as_posix()}", root)


def _excluded(path: Path, root: Path, patterns: Sequence[str]) -> bool:
    within = path.relative_to(root).as_posix()
    return any(
        fnmatch.fnmatchcase(path.name, pattern) or fnmatch.fnmatchcase(within, pattern)
        for pattern in patterns
    )


def _file(path: Path, name: str, root: Path) -> Iterator[_File]:
    found = path.lstat()
    _check_name(path)
    if stat.S_ISLNK(found.st_mode):
        target = os.readlink(path)  # noqa: PTH115 - unresolved
        if not path.resolve().is_relative_to(root.resolve()) or os.path.isabs(target):  # noqa: PTH117
            raise errors.NotShippable(
                f"{path} is a link to {target}, which is not shipped: make it a relative link "
                f"within {root}, a copy, or list it in {root / IGNORE_FILE}"
            )
        yield _File(name, path, found.st_size, found.st_mode, target)
    elif stat.S_ISREG(found.st_mode):
        yield _File(name, path, found.st_size, found.st_mode)


def _check_name(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise errors.NotShippable(
            f"the name of {str(path)!r} is no text in UTF-8: rename it, or list it in {IGNORE_FILE}"
        ) from error


def _check_size(files: Sequence[_File]) -> None:
    total = sum(file.size for file in files)
    if total <= MAX_BYTES:
        return
    largest = sorted(files, key=lambda file: -file.size)[:_LARGEST]
    listed = "".join(f"\n  {file.size / 2**20:8.1f} MiB  {file.path}" for file in largest)
    raise errors.NotShippable(
        f"{total / 2**20:.0f} MiB are more than can be shipped "
        f"({MAX_BYTES / 2**20:.0f} MiB). The largest files are{listed}\n"
        f"List what tasks do not need in {IGNORE_FILE} in the directory, "
        "and give data to tasks with kiln.put or kiln.split"
    )


def _add(archive: zipfile.ZipFile, file: _File) -> None:
    entry = zipfile.ZipInfo(file.name, _EPOCH)
    if file.target is not None:
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, file.target)
        return
    entry.external_attr = (stat.S_IFREG | (0o755 if file.mode & stat.S_IXUSR else 0o644)) << 16
    with file.path.open("rb") as source, archive.open(entry, "w") as into:
        while block := source.read(1 << 18):
            into.write(block)


def _importable(names: Iterable[str], directories: Sequence[str]) -> Iterator[str]:
    """Yield the top-level modules that can be imported from the files of an archive."""
    for name in names:
        if name.endswith((".py", ".so")):
            for path in directories:
                if name.startswith(f"{path}/"):
                    top = name[len(path) + 1 :].partition("/")[0].partition(".")[0]
                    yield from (top,) if top.isidentifier() else ()


class _Stream:
    """A file object that writes to a blob; `zipfile` cannot seek in it."""

    def __init__(self, new: local_blobs.Writer) -> None:
        self._new = new

    def write(self, data: bytes) -> int:
        self._new.write(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: writes are not buffered here."""
