"""A marker file beside a database, which distinguishes a database file that lost its content from a
new one.

SQLite takes an empty file for a new database. Used by the code that opens our databases:
`check_content` before SQLite sees the file, `write_marker` once its tables are there. The marker is
a file beside the database, `NAME.made`; move both together. A database without a file counts as
new.
"""

import os
from pathlib import Path

_WAL = "-wal"
_MIN_BYTES = 512
"""Bytes of the smallest SQLite page; SQLite takes some shorter files for empty ones."""


class ContentLost(Exception):
    """The database file is empty but held data before; the message names the file."""


def marker_path(path: Path) -> Path:
    """Return the path of the marker file of a database."""
    return path.with_name(f"{path.name}.made")


def check_content(path: Path) -> None:
    """Raise `ContentLost` if a database file has lost its content; its WAL is left unchanged."""
    try:
        size = path.stat().st_size
    except OSError:
        return
    if size >= _MIN_BYTES:
        return
    log = path.with_name(path.name + _WAL)
    if marker_path(path).exists() or (log.is_file() and log.stat().st_size):
        raise ContentLost(f"{path} has {size} bytes, but it held data before")


def write_marker(path: Path) -> None:
    """Create the marker file of a database; call once the database has its tables. Raises
    OSError.
    """
    made = marker_path(path)
    if made.exists():
        return
    text = f"{path.name} has been made. If it is empty, its content was lost.\n"
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
