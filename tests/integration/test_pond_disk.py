"""A pond on a full disk: clear errors, no partial files, and progress once there is room."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.data import errors
from kilnwork.data.pond import leases, store
from support import ponds, small_disks

MIB = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disks.mounted(tmp_path, mib=16) as mounted:
        yield mounted


@pytest.fixture
def kept(disk: Path) -> Iterator[store.PondStore]:
    made = ponds.opened(disk / "pond")
    yield made
    made.close()


def test_snapshot_larger_than_the_disk_is_refused_before_fetching(kept: store.PondStore) -> None:
    source = ponds.CountingSource({"a": bytes(20 * MIB)})

    with pytest.raises(errors.PondFull, match=r"needed in .*, and its disk has .*: free some"):
        ponds.pin(kept, source)

    assert source.sent == 0
    assert list(kept.blobs.partials()) == []


def test_disk_that_fills_up_leaves_no_partial_files(kept: store.PondStore, disk: Path) -> None:
    source = ponds.CountingSource({"a": bytes(8 * MIB), "b": b"small"})
    ballast = disk / "ballast"
    source.after_open = lambda path: small_disks.fill(ballast) if path == "a" else None

    with pytest.raises(errors.PondFull, match="No space left"):
        ponds.pin(kept, source)
    assert list((kept.root / "partial").iterdir()) == []

    ballast.unlink()
    source.after_open = lambda _: None
    assert ponds.pin(kept, source).manifest.digest == ponds.manifest_of(source.files).digest


def test_unneeded_blobs_are_evicted(kept: store.PondStore) -> None:
    for number in range(6):
        ponds.pin(kept, ponds.CountingSource({"a": bytes([number]) * 4 * MIB}))

    assert kept.blobs.used <= 12 * MIB
    assert kept.evicted_bytes >= 12 * MIB


def test_lease_is_refused_without_disk_space(kept: store.PondStore, disk: Path) -> None:
    made = ponds.pin(kept, ponds.CountingSource({"a": b"1"})).manifest
    small_disks.fill(disk / "ballast")
    one = leases.LeasedSnapshot(name="s", digest=made.digest)
    wanted = leases.Lease(namespace="quant", name="g1", snapshots=(one,))

    with pytest.raises(errors.PondFull):
        kept.lease(wanted)

    assert list(kept.all_leases()) == []
    (disk / "ballast").unlink()
    kept.lease(wanted)
    kept.make_tree(wanted, one)
    assert ponds.read_files(kept.run("quant", "g1") / "s") == {"a": b"1"}


def test_copy_that_does_not_fit_is_not_started(kept: store.PondStore) -> None:
    made = ponds.pin(kept, ponds.CountingSource({"a": bytes(10 * MIB)})).manifest
    one = leases.LeasedSnapshot(name="s", digest=made.digest, access="copy")
    wanted = leases.Lease(namespace="quant", name="g1", snapshots=(one,))
    kept.lease(wanted)

    with pytest.raises(errors.PondFull):
        kept.make_tree(wanted, one)

    assert not (kept.run("quant", "g1") / "s").exists()
    assert not (kept.run("quant", "g1") / ".s.new").exists()
