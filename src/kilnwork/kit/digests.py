"""SHA-256 digests, computed without loading OpenSSL for small data.

Used by drivers, agents, slots and the pond for blobs, socket directories and slots' secrets.
Importing `hashlib` loads libcrypto: 0.6 MiB of memory in each process. The interpreter's own
implementation, which `random` uses for the same reason, returns the same digests, slower.
"""

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

MAX_OWN_BYTES = 4096
"""Maximum bytes that the interpreter hashes; OpenSSL hashes larger values. This many bytes take
OpenSSL 4 µs, and the interpreter 18 µs.
"""


class Hash(Protocol):
    """A hash object, as returned by `hashlib` and by the interpreter's own module."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Add `data` to the data that is hashed."""

    def digest(self) -> bytes:
        """Return the digest of all data so far."""


def sha256_of(parts: Sequence[bytes | memoryview]) -> bytes:
    """Return the SHA-256 digest of the concatenation of `parts`; views must be of bytes."""
    size = sum(map(len, parts))
    made = _own_sha256()() if size <= MAX_OWN_BYTES else sha256()
    for part in parts:
        made.update(part)
    return made.digest()


def sha256() -> Hash:
    """Return an empty hash object of OpenSSL, for content whose size is not known yet."""
    made: Hash = importlib.import_module("hashlib").sha256()  # by name: it is loaded only now
    return made


@functools.cache
def _own_sha256() -> Callable[[], Hash]:
    try:
        module = importlib.import_module("_sha2" if sys.version_info >= (3, 12) else "_sha256")
    except ImportError:  # Python can be built without it
        return sha256
    made: Callable[[], Hash] = module.sha256
    return made
