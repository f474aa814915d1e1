"""Return of free memory to the system: memory that this process has freed, but malloc has kept.

Used after peaks, such as when many connections have ended. Not an allocator.
"""

import ctypes
import sys


def release_free() -> None:
    """Return free memory of this process to the system; takes milliseconds, without the
    interpreter's lock.

    glibc's malloc otherwise keeps free memory between two blocks in use for ever. Does nothing
    without glibc.
    """
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
