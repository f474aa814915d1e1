"""Scrubbing finds damage at rest, reads nothing twice in a pass, and gives runs whole files."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kilnwork.data.pond import blob_files, leases, scrubbing, store
from kilnwork.kit import clock
from support import ponds

FILES = {f"f{n}": bytes([n]) * (1000 + n) for n in range(6)}


class Stop(Exception):
    """Ends a pass halfway."""


@pytest.fixture
def time() -> clock.ManualClock:
    return clock.ManualClock()


@pytest.fixture
def kept(tmp_path: Path, time: clock.ManualClock) -> store.PondStore:
    made = ponds.opened(tmp_path / "pond", time=time)
    ponds.pin(made, ponds.CountingSource(FILES), time=time)
    return made


def damage(kept: store.PondStore, path: str, change: Callable[[bytes], bytes]) -> bytes:
    """Change a byte as a disk error does: the time of the file stays the same."""
    digest = bytes.fromhex(ponds.digest_of(FILES[path])[7:])
    blob = kept.blobs.path(digest)
    blob.chmod(0o644)
    blob.write_bytes(change(FILES[path]))
    blob.chmod(0o444)
    os.utime(blob, ns=(blob_files.STAMP_NS, blob_files.STAMP_NS))
    return digest


def flip(content: bytes) -> bytes:
    return content[:500] + bytes([content[500] ^ 1]) + content[501:]


def unpaced(_: int) -> None:
    """Read without a limit of speed."""


def test_flipped_byte_and_truncated_blob_are_found(
    kept: store.PondStore, time: clock.ManualClock
) -> None:
    flipped = damage(kept, "f1", flip)
    cut = damage(kept, "f4", lambda content: content[:-1])
    assert kept.blobs.has(flipped, 1001)

    found = list(scrubbing.Scrubber(kept.blobs, time=time).run(unpaced))

    assert sorted(found) == sorted([flipped, cut])
    assert not kept.blobs.has(flipped, 1001)
    assert not kept.blobs.has(cut, 1004)
    assert {path.name for path in (kept.root / "quarantine").iterdir()} == {
        flipped.hex(),
        cut.hex(),
    }
    assert len(kept.blobs.sizes()) == len(FILES) - 2


def test_intact_blobs_stay_unchanged(kept: store.PondStore, time: clock.ManualClock) -> None:
    scrubber = scrubbing.Scrubber(kept.blobs, time=time)

    assert list(scrubber.run(unpaced)) == []
    assert scrubber.checked == sum(map(len, FILES.values()))
    assert all(kept.blobs.has(digest, size) for digest, size in kept.blobs.sizes().items())


def test_stopped_pass_continues_at_its_position(
    kept: store.PondStore, time: clock.ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "NOTE_BYTES", 1)
    read: list[int] = []

    def pace(count: int) -> None:
        if len(read) == 3:
            raise Stop
        read.append(count)

    with pytest.raises(Stop):
        list(scrubbing.Scrubber(kept.blobs, time=time).run(pace))
    again = scrubbing.Scrubber(kept.blobs, time=time)
    assert again.wait_s() == 0
    list(again.run(unpaced))

    assert again.checked + sum(read) == sum(map(len, FILES.values()))


def test_next_pass_is_due_after_a_week(kept: store.PondStore, time: clock.ManualClock) -> None:
    scrubber = scrubbing.Scrubber(kept.blobs, time=time)
    assert scrubber.wait_s() == scrubbing.PASS_S

    time.advance(scrubbing.PASS_S)
    assert scrubber.wait_s() == 0
    list(scrubber.run(unpaced))
    assert scrubber.wait_s() == scrubbing.PASS_S


def test_unreadable_position_begins_a_new_pass(
    kept: store.PondStore, time: clock.ManualClock
) -> None:
    scrubbing.position_path(kept.root).write_bytes(b"{")

    assert scrubbing.Scrubber(kept.blobs, time=time).wait_s() == 0


def test_blob_evicted_during_pass_is_not_reported_as_damaged(
    kept: store.PondStore, time: clock.ManualClock
) -> None:
    assert list(scrubbing.Scrubber(kept.blobs, time=time).run(lambda _: _evict(kept))) == []
    assert kept.blobs.damaged == 0


def _evict(kept: store.PondStore) -> None:
    kept.evict_all()


def test_tree_gets_replacement_of_damaged_blob(
    kept: store.PondStore, time: clock.ManualClock
) -> None:
    source = ponds.CountingSource(FILES)
    digest = ponds.manifest_of(FILES).digest
    snapshot = leases.LeasedSnapshot(name="market", digest=digest)
    lease = leases.Lease(namespace="quant", name="one", snapshots=(snapshot,))
    kept.lease(lease)
    kept.make_tree(lease, snapshot)
    damage(kept, "f1", flip)
    list(scrubbing.Scrubber(kept.blobs, time=time).run(unpaced))
    tree = kept.run("quant", "one") / "market"
    assert ponds.read_files(tree) != FILES

    ponds.pin(kept, source, time=time)
    kept.make_tree(lease, snapshot)

    assert ponds.read_files(tree) == FILES
    assert not tree.stat().st_mode & 0o222
