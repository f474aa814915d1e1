"""The files of attempts on the worker: one directory for each attempt, and the socket beside it.

Used by `agent` (the base directory, see `kit.scratch`) and `attempt`. File names are made of ids,
never of task names, which are user data.
"""

import asyncio
import itertools
import os
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from kilnwork.api import attempts
from kilnwork.kit import data_directories, ids, scratch
from kilnwork.worker import errors, settings

_BACKLOG = 64
_FEW = 16


@dataclass(frozen=True, slots=True)
class AttemptDirectory:
    """The directory of one attempt, with its files. `listener` is bound to `address` and already
    listens.
    """

    directory: Path
    address: Path
    listener: socket.socket
    input: Path | None

    @property
    def output(self) -> Path:
        """Return the path of the file to which the command may write its result."""
        return self.directory / "output"

    @property
    def kubeconfig(self) -> Path:
        """Return the path for the attempt's kubeconfig; the file exists only if the attempt gets
        one.
        """
        return self.directory / "kubeconfig"

    async def remove(self) -> None:
        """Delete the directory; delete a large one in a thread, so that the event loop is not
        blocked.
        """
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


class Directories:
    """The base directory of this worker, locked until `close`.

    `base`: None for a new directory with a random name. `shared`: the command may run as another
    user in another container, so files are made accessible to all.
    """

    def __init__(self, base: Path | None = None, *, shared: bool = False) -> None:
        self._scratch = scratch.Scratch(settings.DIRECTORY_PREFIX, base)
        self.base = self._scratch.path
        self._shared = shared
        if shared:
            self.base.chmod(0o755)

    def make(self, ref: attempts.AttemptRef, *, inputs: bytes | None) -> AttemptDirectory:
        """Create the directory of an attempt, its input file if there are inputs, and a listening
        socket.

        Raises `CannotStartHere` when the disk is full or no descriptor is left.
        """
        name = f"{ids.task_text(ref.task)}-{ref.run}-{ref.attempt}"
        directory = self.base / name
        # A short name: the path of a Unix socket has at most 107 bytes (unix(7)).
        path = self.base / f"{ref.task.hex()}-{ref.run}-{ref.attempt}.sock"
        self._mkdir(directory)
        listener = None
        try:
            listener = _listen(path)
            place = AttemptDirectory(
                directory=directory,
                address=path,
                listener=listener,
                input=None if inputs is None else directory / "input",
            )
            if place.input is not None and inputs is not None:
                data_directories.write_private(place.input, inputs)
            if self._shared:
                _open_to_all(place)
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
            self.base.mkdir(mode=0o700, exist_ok=True)  # /tmp may have been cleaned
            directory.mkdir(mode=0o700)
        except OSError as error:
            raise errors.CannotStartHere(
                f"the worker cannot make a directory for the attempt: {error}"
            ) from error

    def close(self) -> None:
        self._scratch.close()


def _open_to_all(place: AttemptDirectory) -> None:
    # chmod, since the mode given to mkdir(2) is reduced by the umask.
    place.directory.chmod(0o777)
    place.address.chmod(0o666)
    if place.input is not None:
        place.input.chmod(0o644)


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener
