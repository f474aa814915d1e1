"""Mount paths of containers, which are absolute or below a directory that a variable names.

Used by programs that run in a Pod, and by the local node, whose containers see the machine's own
files: their mounts are below a directory, as on Windows in HostProcess containers (KEP-1981).
"""

from collections.abc import Mapping
from pathlib import Path

VARIABLE = "CONTAINER_SANDBOX_MOUNT_POINT"
"""Environment variable that names the directory; unset where mounts are at their own paths."""


def mount_root(environ: Mapping[str, str]) -> Path:
    """Return the directory below which all mount paths of this container are."""
    return Path(environ.get(VARIABLE) or "/")


def locate(path: Path, environ: Mapping[str, str]) -> Path:
    """Return the real path of a mount, given its absolute mount path."""
    return mount_root(environ) / path.relative_to("/")
