"""Where things are kept on this machine, and how files are written without half-written views.

Used by the command line, the kubeconfig loader, the control plane and the worker.
"""

import os
import tempfile
from pathlib import Path


def data_dir() -> Path:
    """`${XDG_DATA_HOME:-~/.local/share}/kilnwork` (XDG Base Directory specification)."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "kilnwork"


def write_private(path: Path, content: bytes) -> None:
    """Replace `path` at once by a file of mode 0600: a reader sees the old or the new."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
