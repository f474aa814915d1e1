"""Where a container finds what is mounted: at its path, or below a directory that a variable names.

Used by whatever runs in a Pod, and by the local node, whose containers see the machine's own files:
there mounts are below a directory, as on Windows in HostProcess containers (KEP-1981).
"""

from collections.abc import Mapping
from pathlib import Path

VARIABLE = "CONTAINER_SANDBOX_MOUNT_POINT"
"""Names that directory; not set where mounts are at their paths."""


def root(environ: Mapping[str, str]) -> Path:
    """What every mount path is relative to."""
    return Path(environ.get(VARIABLE) or "/")


def found(path: Path, environ: Mapping[str, str]) -> Path:
    """Where the mount at `path`, which is absolute, is."""
    return root(environ) / path.relative_to("/")
