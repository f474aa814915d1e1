"""Shipped environments in a worker: unpacked once, and active while a call runs.

Used by the worker's slots around each call (`enter`), and by `task` (`installed`). A blob that
`code_packing` has packed is unpacked into a directory that all slots of a worker share, named by
its digest. A slot stays in the environment of its last call; a call of another environment first
removes the modules of the previous one from `sys.modules`. Tasks may read their working directory;
files that a task writes there are visible to other tasks and are not kept.
"""

import contextlib
import errno
import fcntl
import importlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Self

from kilnwork.data import errors, local_blobs
from kilnwork.sdk import code_unpacking

CACHE = "environments"
"""Name of the default directory of the unpacked environments, in the directory of the blobs; all
workers that see that directory share them."""

KEPT = 8
"""Number of unpacked environments that are kept although no process uses them: those that were used
last."""

_UNFINISHED = ".new-"
_ABANDONED_S = 3600.0
"""Age in seconds, relative to the newest environment, from which an unfinished directory counts as
abandoned."""
_SITES = frozenset({"site-packages", "dist-packages"})


def installed(module: str) -> bool:
    """Return whether workers with our Python have a top-level module without shipping.

    True for modules of the standard library and for installed modules.
    """
    if module in sys.stdlib_module_names:
        return True
    found = sys.modules.get(module)
    places = [getattr(found, "__file__", None), *getattr(found, "__path__", ())]
    return any(place and not _SITES.isdisjoint(Path(place).parts) for place in places)


class Entered:
    """The environment that a call runs in, until `leave` is called; a context manager."""

    def __init__(self, before: str | None) -> None:
        self._before = before

    def leave(self) -> None:
        """Restore the previous working directory.

        Imported modules stay until another environment is entered.
        """
        if self._before is not None:
            with contextlib.suppress(OSError):  # another process has removed it
                os.chdir(self._before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


_NOWHERE = Entered(None)


def enter(environment: str | None, store: local_blobs.Blobs, cache: Path | None = None) -> Entered:
    """Enter an environment: make its modules importable, and its directory the working directory.

    `environment`: the digest of its blob, as specs name it; None: no environment. `cache`: the
    directory to unpack it in; by default `CACHE` in the directory of the blobs. Only one thread of
    a process may be in an environment, since a process has one working directory. Raises
    `BlobMissing`, `BlobDamaged`, OSError.
    """
    if environment == slot.environment is None:
        return _NOWHERE
    before = _working_directory()
    slot.switch(environment, store, cache or store.directory / CACHE)
    if slot.directory is not None and (slot.directory / code_unpacking.WORK).is_dir():
        os.chdir(slot.directory / code_unpacking.WORK)
    return Entered(before)


def _working_directory() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - what chdir takes
    except FileNotFoundError:  # another process has removed it
        return os.sep


class _Slot:
    """State of a slot's process: the environment that it is in."""

    def __init__(self) -> None:
        self.environment: str | None = None
        self.directory: Path | None = None
        self._lock: int | None = None
        self._paths: list[str] = []
        self._aside: dict[Path | None, dict[str, ModuleType]] = {}

    def switch(self, environment: str | None, store: local_blobs.Blobs, cache: Path) -> None:
        """Switch to an environment; do nothing if it is the current environment."""
        if environment == self.environment:
            return
        self._leave()
        if environment is None:
            return
        directory, self._lock = _unpacked(local_blobs.parse(environment), store, cache)
        self.environment, self.directory = environment, directory
        names = [
            *(directory / code_unpacking.PATHS).read_text().split("\n"),
            code_unpacking.MODULES,
        ]
        self._paths = [
            str(directory / name) for name in names if name and (directory / name).is_dir()
        ]
        sys.path[:0] = self._paths
        tops = {name.partition(".")[0] for path in self._paths for name in os.listdir(path)}  # noqa: PTH208
        self._aside[None] = _taken(tops - sys.stdlib_module_names - {"kilnwork"})
        sys.modules.update(self._aside.pop(directory, {}))
        importlib.invalidate_caches()

    def _leave(self) -> None:
        if self.directory is None:
            return
        sys.path[:] = [path for path in sys.path if path not in self._paths]
        below = _modules_below(str(self.directory) + os.sep)
        self._aside[self.directory] = _taken({name.partition(".")[0] for name in below})
        sys.modules.update(self._aside.pop(None, {}))
        while len(self._aside) > KEPT:
            del self._aside[next(iter(self._aside))]
        if self._lock is not None:
            os.close(self._lock)
        self.environment = self.directory = self._lock = None
        self._paths = []


slot = _Slot()


def _modules_below(directory: str) -> Iterator[str]:
    for name, module in list(sys.modules.items()):
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        if any(isinstance(place, str) and place.startswith(directory) for place in places):
            yield name


def _taken(tops: set[str]) -> dict[str, ModuleType]:
    """Remove the given top-level modules and their submodules from `sys.modules` and return
    them.
    """
    found = [name for name in sys.modules if name.partition(".")[0] in tops]
    return {name: sys.modules.pop(name) for name in found}


def _unpacked(digest: bytes, store: local_blobs.Blobs, cache: Path) -> tuple[Path, int]:
    """Return the directory of an environment, and a lock that keeps it from being removed.

    The environment is unpacked if its directory does not exist. The lock is a descriptor.
    """
    directory = cache / digest.hex()
    while True:
        try:
            return directory, _locked(directory)
        except FileNotFoundError:
            _unpack(digest, store, directory)
            _make_room(cache)


def _locked(directory: Path) -> int:
    """Lock the directory of an environment and return the descriptor that holds the lock.

    Raises FileNotFoundError if the directory does not exist, or is removed meanwhile.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if not os.path.samestat(os.fstat(descriptor), directory.stat()):
            raise FileNotFoundError(directory)
        os.utime(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _unpack(digest: bytes, store: local_blobs.Blobs, directory: Path) -> None:
    """Unpack an environment under a temporary name, then rename the directory.

    If several slots do so at once, the first rename succeeds and the other copies are removed.
    """
    made = directory.with_name(f"{_UNFINISHED}{os.urandom(8).hex()}")
    made.mkdir(mode=0o700, parents=True)
    try:
        with open(store.open(digest), "rb") as file:  # noqa: PTH123
            code_unpacking.unpack(file, made)
        try:
            made.rename(directory)
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
                raise
    except code_unpacking.ArchiveRefused as error:
        raise errors.BlobDamaged(
            f"blob {local_blobs.text(digest)} is not what kiln.connect(working_dir=…) has packed: "
            f"{error}"
        ) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _make_room(cache: Path) -> None:
    """Remove the least recently used environments that no process uses.

    Directories that a killed worker has left partly unpacked are removed too.
    """
    found = _by_last_use(cache)
    _remove_abandoned(cache, found[:1])
    for directory in found[KEPT:]:
        with contextlib.suppress(OSError):
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                gone = directory.with_name(f"{_UNFINISHED}{os.urandom(8).hex()}")
                directory.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
            finally:
                os.close(descriptor)


def _remove_abandoned(cache: Path, newest: list[Path]) -> None:
    for directory in cache.glob(f"{_UNFINISHED}*"):
        with contextlib.suppress(OSError):
            if newest and directory.stat().st_mtime < newest[0].stat().st_mtime - _ABANDONED_S:
                shutil.rmtree(directory, ignore_errors=True)


def _by_last_use(cache: Path) -> list[Path]:
    """Return the directories of the unpacked environments, most recently used first."""
    found = []
    for path in cache.iterdir():
        with contextlib.suppress(FileNotFoundError):
            if not path.name.startswith("."):
                found.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)]
