"""Memory of this process that is free, but still held from the system.

Used where much was held for a moment: after many connections have ended, say. Not an allocator.
"""

import ctypes
import sys


def release_free() -> None:
    """Give free memory back to the system: milliseconds, without holding the interpreter's lock.

    What glibc's malloc frees between two blocks that stay is otherwise kept for ever. Elsewhere
    than on glibc nothing happens.
    """
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
