"""Directories for Unix sockets, whose paths are limited to 108 bytes (unix(7)): pytest's are too
long.

For tests of the channel, the worker, the shim and the node.
"""

import shutil
import tempfile
from pathlib import Path

from kilnwork.controlplane.node import volumes
from kilnwork.kit import data_directories

_made: list[Path] = []


def directory() -> Path:
    """Return a new directory of mode 0700 with a short path, removed when the tests of this process
    end.
    """
    made = Path(tempfile.mkdtemp(prefix="kiln-"))
    _made.append(made)
    return made


def sockets_of(data: Path) -> None:
    """Remove the directories that the server of a data directory makes when its path is long.

    The server does so itself, unless it is killed as in tests.
    """
    for made in (data_directories.runtime_dir(data), links_of(data)):
        if not made.is_relative_to(data) and made not in _made:
            _made.append(made)


def links_of(data: Path) -> Path:
    """Return the directory in which containers of the server of a data directory find their
    mounts.
    """
    return volumes.links_directory(data_directories.runtime_dir(data), data / "pods")


def remove_all() -> None:
    while _made:
        shutil.rmtree(_made.pop(), ignore_errors=True)
