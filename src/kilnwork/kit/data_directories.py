"""Directories of kilnwork on this machine, and atomic writes of private files.

Used by all packages that keep files of their own, and by the kubeconfig loader.
"""

import os
import stat
import tempfile
from pathlib import Path

from kilnwork.kit import digests, errors

MAX_SOCKET_DIRECTORY = 80
"""Maximum bytes of the path of a directory for Unix sockets: unix(7) allows 108 bytes with the file
name.
"""


def data_dir() -> Path:
    """Return `${XDG_DATA_HOME:-~/.local/share}/kilnwork` (XDG Base Directory specification)."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "kilnwork"


def is_data_dir(directory: Path) -> bool:
    """Return whether a directory is the data directory of a server, a session or a node, which
    contains tokens and keys.
    """
    return any((directory / mark).is_file() for mark in _MARKS)


_MARKS = ("control.lock", "journal.lock", "owner.lock", "node-identity")
"""Files that are created before the first secret: by `kiln up` and a manager, any dispatcher, a
session, a node.
"""


def write_private(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace `path` atomically by a file of mode 0600.

    `durable`: sync the file, which may otherwise be empty after a power failure.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def runtime_dir(directory: Path) -> Path:
    """Return the private directory for Unix sockets: DIRECTORY/run or, if that path is too long, a
    short path in /tmp.

    The path is deterministic, so that a process finds the sockets of the process before it.
    """
    run = directory / "run"
    if len(os.fsencode(run)) < MAX_SOCKET_DIRECTORY:
        return run
    digest = digests.sha256_of([os.fsencode(directory.resolve())]).hex()[:16]
    return Path("/tmp") / f"kiln-{digest}"  # noqa: S108  0700, owner checked, name is no secret


def make_private(directory: Path) -> None:
    """Create a directory that only this user can enter. Raises ConfigurationError if another user
    owns it.

    Any user may have created a file of that name in /tmp: a symbolic link is not followed.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise errors.ConfigurationError(
            f"{directory} is no directory of yours: remove it, or choose another data directory"
        )
    directory.chmod(0o700)
