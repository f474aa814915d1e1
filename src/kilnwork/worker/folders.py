"""Folders and files of attempts on the worker: a directory each, and the socket beside it.

Used by `agent` (the base folder) and `attempt`. Names are made of ids, never of task names, which
are data. The base is short, since the path of a Unix socket is (107 bytes, unix(7)), belongs to us
alone (0700), and is locked: what a killed worker left is removed by the next one that starts.
"""

import asyncio
import fcntl
import itertools
import os
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kilnwork.api import attempts
from kilnwork.kit import ids, paths
from kilnwork.worker import errors, settings

PREFIX = settings.FOLDER_PREFIX
_LONGEST_BASE = 50
_LOCK = "lock"
_BACKLOG = 64
_FEW = 16


@dataclass(frozen=True, slots=True)
class Place:
    """What one attempt has on disk. `listener` is bound to `address` and listens already."""

    directory: Path
    address: Path
    listener: socket.socket
    input: Path | None

    @property
    def output(self) -> Path:
        """The file to which the command may write its result."""
        return self.directory / "output"

    @property
    def kubeconfig(self) -> Path:
        """Where its KUBECONFIG goes, if it gets one."""
        return self.directory / "kubeconfig"

    async def remove(self) -> None:
        """Delete all of it; what may take long does not keep the event loop waiting."""
        self.listener.close()
        self.address.unlink(missing_ok=True)
        if self._is_small():
            shutil.rmtree(self.directory, ignore_errors=True)
        else:
            await asyncio.to_thread(shutil.rmtree, self.directory, ignore_errors=True)

    def _is_small(self) -> bool:
        try:
            with os.scandir(self.directory) as entries:
                first = list(itertools.islice(entries, _FEW + 1))
        except OSError:  # the task has removed it, or changed its mode
            return True
        return len(first) <= _FEW and not any(e.is_dir(follow_symlinks=False) for e in first)


class Folders:
    """The base folder of this worker; held until `close`. `base`: None for a new name."""

    def __init__(self, base: Path | None = None) -> None:
        if base is not None:
            _sweep(base.parent)
            self.base, self._lock = base, _make(base)
            return
        temporary = Path(tempfile.gettempdir())
        if len(str(temporary)) + len(PREFIX) + 8 > _LONGEST_BASE:
            temporary = Path("/tmp")  # noqa: S108  mkdtemp makes it private
        _sweep(temporary)
        self.base, self._lock = _new_base(temporary)

    def make(self, ref: attempts.AttemptRef, *, inputs: bytes | None) -> Place:
        """Directory, input file if there are inputs, and a listening socket.

        Raises `CannotStartHere` when the disk is full or descriptors have run out.
        """
        name = f"{ids.task_text(ref.task)}-{ref.run}-{ref.attempt}"
        directory = self.base / name
        path = self.base / f"{ref.task.hex()}-{ref.run}-{ref.attempt}.sock"
        self._mkdir(directory)
        listener = None
        try:
            listener = _listen(path)
            place = Place(
                directory=directory,
                address=path,
                listener=listener,
                input=None if inputs is None else directory / "input",
            )
            if place.input is not None and inputs is not None:
                paths.write_private(place.input, inputs)
            return place
        except OSError as error:
            if listener is not None:
                listener.close()
            path.unlink(missing_ok=True)
            shutil.rmtree(directory, ignore_errors=True)
            raise errors.CannotStartHere(
                f"the worker cannot make files for the attempt: {error}"
            ) from error

    def _mkdir(self, directory: Path) -> None:
        try:
            self.base.mkdir(mode=0o700, exist_ok=True)  # somebody may have tidied up /tmp
            directory.mkdir(mode=0o700)
        except OSError as error:
            raise errors.CannotStartHere(
                f"the worker cannot make a directory for the attempt: {error}"
            ) from error

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.base, ignore_errors=True)
        os.close(self._lock)


def _new_base(temporary: Path) -> tuple[Path, int]:
    """A new folder and the descriptor that locks it."""
    while True:
        base = Path(tempfile.mkdtemp(prefix=PREFIX, dir=temporary))
        lock = _locked(base)
        if lock is not None:
            return base, lock


def _make(base: Path) -> int:
    """A new folder of that name; the descriptor that locks it."""
    while True:
        base.mkdir(mode=0o700)
        lock = _locked(base)
        if lock is not None:
            return lock


def _locked(base: Path) -> int | None:
    """The descriptor; None when another worker swept the folder before it was locked."""
    lock = os.open(base / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if (base / _LOCK).exists():
        return lock
    os.close(lock)
    return None


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _sweep(temporary: Path) -> None:
    """Remove the folders of workers that are gone: ours, and locked by nobody."""
    for folder in temporary.glob(f"{PREFIX}*"):
        try:
            if folder.lstat().st_uid != os.getuid():
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)
