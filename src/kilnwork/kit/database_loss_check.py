"""A marker file beside each database, which shows that an empty database file has lost its content.

Without it, SQLite would take the empty file for a new database. The code that opens our databases
calls `check_content` before SQLite opens the file, and `write_marker` once the tables exist. The
marker of the database NAME is the file `NAME.made` in the same directory; move both together. If
the database file does not exist, the database counts as new, whether or not there is a marker.
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
