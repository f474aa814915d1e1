"""Reports of an agent about its directory: snapshots, leases, free space.

Used by `agent`. Reads only the store.
"""

from collections.abc import Iterable

import msgspec

from kilnwork.api import pond_messages
from kilnwork.data.pond import leases, store, trees


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the store, read from the disk; the fields are those of a report."""

    store: str = ""
    capacity: int = 0
    used: int = 0
    holdings: tuple[pond_messages.HoldingReport, ...] = ()
    sources: tuple[str, ...] = ()
    quarantined: int = 0


def of_store(kept: store.PondStore) -> StoreFacts:
    """Return the state of the store. Blocks; raises OSError."""
    holdings = tuple(
        pond_messages.HoldingReport(
            digest=one.digest,
            files=one.files,
            bytes=one.bytes,
            files_here=one.files_here,
            bytes_here=one.bytes_here,
            used=one.used,
            leased=one.leased,
        )
        for one in kept.holdings()
    )
    return StoreFacts(
        store=identity(kept),
        capacity=kept.capacity,
        used=kept.used,
        holdings=holdings,
        sources=kept.sources(),
        quarantined=kept.blobs.damaged,
    )


def identity(kept: store.PondStore) -> str:
    """Return the id of the store's directory, or "" if it has none yet."""
    known = kept.identity
    return "" if known is None else known.id


def of_leases(
    kept: store.PondStore, under_way: Iterable[tuple[str, pond_messages.SnapshotReport]]
) -> tuple[pond_messages.LeaseReport, ...]:
    """Return reports of all leases on this node.

    They include leases that the manager has not ordered since its start. `under_way`: reports of
    deliveries, with the names of their leases.
    """
    running: dict[str, dict[str, pond_messages.SnapshotReport]] = {}
    for name, report in under_way:
        running.setdefault(name, {})[report.name] = report
    found = []
    for lease in kept.all_leases():
        reports = running.pop(lease.name, {})
        snapshots = tuple(
            reports.get(one.name) or _from_disk(kept, lease, one) for one in lease.snapshots
        )
        found.append(pond_messages.LeaseReport(name=lease.name, snapshots=snapshots))
    for name, reports in running.items():  # leases that are not stored yet
        snapshots = tuple(reports.values())
        found.append(pond_messages.LeaseReport(name=name, snapshots=snapshots))
    return tuple(found)


def _from_disk(
    kept: store.PondStore, lease: leases.Lease, one: leases.LeasedSnapshot
) -> pond_messages.SnapshotReport:
    seen = trees.marker(kept.run(lease.namespace, lease.name), one.name)
    paths_digest = pond_messages.paths_digest(one.paths)
    return pond_messages.SnapshotReport(
        name=one.name,
        digest=one.digest,
        paths_digest=paths_digest,
        access=one.access,
        # The lease may have more paths than the tree: an agent that ended while it fetched them.
        ready=seen is not None and seen.has(one.digest, one.access, paths_digest),
    )
