"""What an agent reports of its directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.api import pond_messages
from kilnwork.data.pond import leases, store
from kilnwork.pond import reports
from support import ponds

FILES = {"a": b"1234", "b": b"56"}


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[store.PondStore]:
    found = ponds.opened(tmp_path)
    yield found
    found.close()


def _lease(kept: store.PondStore, digest: str) -> leases.Lease:
    snapshot = leases.LeasedSnapshot(name="lake", digest=digest)
    lease = leases.Lease(namespace="ns", name="run", snapshots=(snapshot,))
    kept.lease(lease)
    return lease


def _pinned(kept: store.PondStore) -> str:
    return ponds.pin(kept, ponds.CountingSource(FILES)).manifest.digest


def _report(name: str, *, digest: str = "d", ready: bool = False) -> pond_messages.SnapshotReport:
    return pond_messages.SnapshotReport(
        name=name,
        digest=digest,
        paths_digest=pond_messages.paths_digest(None),
        access="read",
        ready=ready,
    )


def test_a_directory_without_an_id_has_none(tmp_path: Path) -> None:
    assert reports.identity(store.PondStore(tmp_path / "none", pond="quant/lake")) == ""


def test_facts_of_the_store_are_those_of_its_files(kept: store.PondStore) -> None:
    digest = _pinned(kept)
    found = reports.of_store(kept)
    assert (found.store, found.capacity) == (reports.identity(kept), kept.capacity)
    assert found.store != ""
    assert found.used == kept.used > 0
    assert found.quarantined == 0
    (holding,) = found.holdings
    assert (holding.digest, holding.leased) == (digest, False)
    assert (holding.files, holding.bytes, holding.files_here, holding.bytes_here) == (2, 6, 2, 6)


def test_a_leased_snapshot_is_reported_as_such(kept: store.PondStore) -> None:
    _lease(kept, _pinned(kept))
    assert [one.leased for one in reports.of_store(kept).holdings] == [True]


def test_a_lease_on_disk_is_ready_once_its_tree_is_there(kept: store.PondStore) -> None:
    digest = _pinned(kept)
    lease = _lease(kept, digest)
    (found,) = reports.of_leases(kept, ())
    assert found.snapshots == (_report("lake", digest=digest),)
    kept.make_tree(lease, lease.snapshots[0])
    (found,) = reports.of_leases(kept, ())
    assert (found.name, found.snapshots) == ("run", (_report("lake", digest=digest, ready=True),))


def test_a_tree_of_another_snapshot_is_not_ready(kept: store.PondStore) -> None:
    lease = _lease(kept, _pinned(kept))
    kept.make_tree(lease, lease.snapshots[0])
    _lease(kept, ponds.pin(kept, ponds.CountingSource({"a": b"other"})).manifest.digest)
    (found,) = reports.of_leases(kept, ())
    assert [one.ready for one in found.snapshots] == [False]


def test_a_delivery_says_more_than_the_disk(kept: store.PondStore) -> None:
    _lease(kept, _pinned(kept))
    under_way = _report("lake", digest="other")
    (found,) = reports.of_leases(kept, [("run", under_way)])
    assert found.snapshots == (under_way,)


def test_a_lease_that_is_not_kept_yet_is_reported(kept: store.PondStore) -> None:
    _lease(kept, _pinned(kept))
    one, other = _report("a"), _report("b")
    found = reports.of_leases(kept, [("later", one), ("later", other)])
    assert [lease.name for lease in found] == ["run", "later"]
    assert found[1].snapshots == (one, other)


def test_a_tree_with_other_files_of_the_snapshot_is_not_ready(kept: store.PondStore) -> None:
    """An agent that restarts while more files are fetched must not report the former tree."""
    digest = _pinned(kept)

    def leased(*paths: str) -> leases.Lease:
        snapshot = leases.LeasedSnapshot(name="lake", digest=digest, paths=paths)
        return leases.Lease(namespace="ns", name="run", snapshots=(snapshot,))

    def ready() -> list[bool]:
        (found,) = reports.of_leases(kept, ())
        return [one.ready for one in found.snapshots]

    first, more, less = leased("a"), leased("a", "b"), leased("b")
    kept.lease(first)
    kept.make_tree(first, first.snapshots[0])
    assert ready() == [True]
    kept.lease(more)
    assert ready() == [False]
    kept.make_tree(more, more.snapshots[0])
    assert ready() == [True]
    kept.lease(less)
    assert ready() == [False]
    kept.make_tree(less, less.snapshots[0])  # all of its files are there already
    assert ready() == [True]
