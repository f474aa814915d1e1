"""A process in which link(2) fails, as on FAT, exFAT or Azure Files.

Done by a filter of system calls (seccomp(2), BPF), since a test cannot mount such a file system:
the tests check our reaction to the kernel's error. Run it in a child process; the filter cannot be
removed.
"""

import ctypes
import errno
import platform
import struct

_NUMBERS = {"x86_64": (86, 265), "aarch64": (37,)}
"""Of link and linkat."""

_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def possible() -> bool:
    """Return whether the system call numbers of this machine are known."""
    return platform.machine() in _NUMBERS


def forbid(number: int = errno.EOPNOTSUPP) -> None:
    """Make link(2) fail with errno `number` in this process from now on."""
    numbers = _NUMBERS[platform.machine()]
    program = [(_LOAD, 0, 0, 0)]
    for index, call in enumerate(numbers):
        program.append((_JUMP_EQUAL, len(numbers) - index, 0, call))
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | number)]
    code = b"".join(struct.pack("HBBI", *one) for one in program)
    held = ctypes.create_string_buffer(code)
    reported = struct.pack("HxxxxxxP", len(program), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((_NO_NEW_PRIVS, 1, 0, 0, 0), (_SECCOMP, _FILTER, reported, 0, 0)):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "prctl")
