"""Which idempotency keys may have made a job: most requests come with a key that is new, which is
found out without reading the disk.

Used by the service. A filter in the manner of Bloom (doi.org/10.1145/362686.362692) with one hash:
it may take a new key for a used one, which costs a look, but never a used one for a new one.
"""

from collections.abc import Iterable

Name = tuple[str, str, str]
"""Namespace, who gave the key, the key."""

BITS = 1 << 23
"""A bit each, 1 MiB: of 100,000 jobs one new key in 84 is looked up for nothing."""


class KeyFilter:
    """The keys of all jobs. Python's hash of text is a keyed one: no client can choose keys that
    collide."""

    def __init__(self) -> None:
        self._bits = bytearray(BITS >> 3)

    def add(self, name: Name) -> None:
        """Note that a key makes a job."""
        bit = hash(name) & (BITS - 1)
        self._bits[bit >> 3] |= 1 << (bit & 7)

    def fill(self, names: Iterable[Name]) -> None:
        """Note the keys that have made jobs."""
        for name in names:
            self.add(name)

    def __contains__(self, name: Name) -> bool:
        bit = hash(name) & (BITS - 1)
        return bool(self._bits[bit >> 3] & 1 << (bit & 7))
