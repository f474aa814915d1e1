"""Disk checks for blobs and stores: free space, and syncing of directories.

Used by the blobs, stores and ponds of this package, by `server` and by `dispatch.hub.attempt_logs`.
Space is reserved for the journal, which shares the disk: the data of one task must not stop all
tasks.
"""

import functools
import importlib
import os
from collections.abc import Callable
from pathlib import Path

SPARE_BYTES = 256 << 20
"""Maximum number of bytes that are left free: enough for some minutes of a busy journal."""

_SYNC_FILE_RANGE_WRITE = 2
_SPARE_PART = 20
"""Divisor for small disks: their size divided by this is left free."""


def usable_bytes(directory: Path, *, share: float = 1.0) -> int:
    """Return how many bytes may still be written to the disk of a directory; negative if reserved
    space is in use.

    `share`: fraction of the reserved space to leave free. Raises FileNotFoundError.
    """
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize - int(_spare_bytes(found) * share)


def describe_lack(directory: Path) -> str:
    """Return a text for users about the lack of free space on the disk of a directory, or "" if
    there is enough.
    """
    if usable_bytes(directory) >= 0:
        return ""
    spare = _spare_bytes(os.statvfs(directory))
    return f"the disk has less than {spare >> 20} MiB left, which the journal needs"


def _spare_bytes(found: os.statvfs_result) -> int:
    return min(SPARE_BYTES, found.f_blocks * found.f_frsize // _SPARE_PART)


def begin_sync(descriptor: int, start: int, count: int) -> None:
    """Start writing a range of a file's bytes to disk, so that a later fsync has less to wait for.

    This guarantees nothing, and the later fsync reports all errors: sync_file_range(2), where it
    exists.
    """
    _sync_file_range()(descriptor, start, count, _SYNC_FILE_RANGE_WRITE)


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int]:
    ctypes = importlib.import_module("ctypes")  # imported here: most importers never need it
    try:
        found = ctypes.CDLL(None).sync_file_range
    except AttributeError:
        return lambda *_: -1
    found.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    called: Callable[[int, int, int, int], int] = found
    return called


def sync_directory(directory: Path) -> None:
    """Sync the entries of a directory to disk: a new name needs an fsync of its directory (see
    fsync(2)).
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
