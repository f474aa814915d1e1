"""Eviction: chooses which snapshots a pond deletes to free space. Does no I/O.

Used by `store`. Snapshots without a lease are chosen, least recently used first. A blob is deleted
when no remaining snapshot contains it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple


class Candidate(NamedTuple):
    """A snapshot in the pond, with or without a lease. `used`: when it was last leased or released,
    or was stored; wall clock seconds.
    """

    digest: str
    used: float
    blobs: Collection[bytes]


class Eviction(NamedTuple):
    """Decision which snapshots to forget and which blobs to delete. `freed`: total size of the
    blobs.
    """

    snapshots: tuple[str, ...]
    blobs: frozenset[bytes]
    freed: int


def choose(
    candidates: Sequence[Candidate],
    sizes: Mapping[bytes, int],
    *,
    leased: Collection[str],
    excess: int,
) -> Eviction:
    """Return the snapshots and blobs to evict so that at least `excess` bytes are freed, or all
    that may be evicted.

    `sizes`: sizes of the existing blobs. Blobs that belong to no snapshot are evicted first.
    """
    users: dict[bytes, int] = {}
    for candidate in candidates:
        for blob in set(candidate.blobs):
            users[blob] = users.get(blob, 0) + 1
    gone = {blob for blob in sizes if blob not in users} if excess > 0 else set()
    freed = sum(sizes[blob] for blob in gone)
    snapshots = []
    for candidate in sorted(candidates, key=lambda one: (one.used, one.digest)):
        if freed >= excess:
            break
        if candidate.digest in leased:
            continue
        snapshots.append(candidate.digest)
        for blob in set(candidate.blobs):
            users[blob] -= 1
            if not users[blob] and blob in sizes:
                gone.add(blob)
                freed += sizes[blob]
    return Eviction(tuple(snapshots), frozenset(gone), freed)
