"""Folders for Unix sockets, whose paths may have 108 bytes (unix(7)): pytest's own are too long.

For tests of the channel, the worker, the shim and the node.
"""

import tempfile
from pathlib import Path


def folder() -> Path:
    """A new folder of mode 0700 with a short path; who asks for it removes it."""
    return Path(tempfile.mkdtemp(prefix="kiln-"))
