"""Eviction: chooses which snapshots a pond evicts for space: unleased ones, least recently used
first. Pure.

Used by `store`. A blob is deleted when no remaining snapshot contains it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple


class Candidate(NamedTuple):
    """A snapshot in the pond. `used`: when it was last leased or released, wall clock."""

    digest: str
    used: float
    blobs: Collection[bytes]


class Eviction(NamedTuple):
    """Snapshots to forget, and blobs to delete. `freed`: the bytes of these blobs."""

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
    """Return what to evict so that at least `excess` bytes are freed, or everything evictable.

    `sizes`: of the existing blobs. Blobs that belong to no snapshot are evicted first.
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
