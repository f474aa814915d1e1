"""Held blobs are renewed as long as their owner lives, and no longer."""

import gc
import os
import time as wall
from pathlib import Path

import pytest

from kilnwork.data import blob_renewal, local_blobs
from kilnwork.kit import clock

HOUR = 3600.0


class Owner:
    """An object that supports weak references."""


@pytest.fixture
def time() -> clock.ManualClock:
    return clock.ManualClock()


@pytest.fixture
def kept(tmp_path: Path) -> local_blobs.Blobs:
    return local_blobs.Blobs(tmp_path / "blobs", durable=False)


def aged(kept: local_blobs.Blobs, number: int) -> bytes:
    digest, _ = kept.put([number.to_bytes(4, "big")])
    stat = kept.path(digest).stat()
    os.utime(kept.path(digest), (stat.st_mtime - HOUR, stat.st_mtime - HOUR))
    return digest


def renewed(kept: local_blobs.Blobs, digest: bytes) -> bool:
    return kept.path(digest).stat().st_mtime > wall.time() - HOUR / 2


def test_held_blob_is_renewed_in_time(time: clock.ManualClock, kept: local_blobs.Blobs) -> None:
    held = blob_renewal.HeldBlobs(time)
    owner, others = Owner(), aged(kept, 0)
    for _ in range(3):
        digest = aged(kept, 1)
        held.hold(owner, (digest,))
        held.renew(kept)
        assert renewed(kept, digest)
        digest = aged(kept, 1)
        time.advance(blob_renewal.RENEW_S - 1)
        held.renew(kept)
        assert not renewed(kept, digest)
        time.advance(1)
    assert not renewed(kept, others)


def test_renewal_ends_with_its_owner(time: clock.ManualClock, kept: local_blobs.Blobs) -> None:
    held = blob_renewal.HeldBlobs(time)
    one, other, digest = Owner(), Owner(), aged(kept, 1)
    held.hold(one, (digest,))
    held.hold(other, (digest, bytes(32)))
    del one
    gc.collect()
    held.renew(kept)
    assert renewed(kept, digest)
    digest = aged(kept, 1)
    del other
    gc.collect()
    time.advance(blob_renewal.RENEW_S)
    held.renew(kept)
    assert not renewed(kept, digest)


def test_many_blobs_are_renewed_in_batches(
    time: clock.ManualClock, kept: local_blobs.Blobs
) -> None:
    held, owner = blob_renewal.HeldBlobs(time), Owner()
    digests = [aged(kept, number) for number in range(600)]
    held.hold(owner, digests)
    held.renew(kept)
    assert 0 < sum(renewed(kept, digest) for digest in digests) < 600
    held.renew(kept)
    held.renew(kept)
    assert all(renewed(kept, digest) for digest in digests)


def test_each_directory_has_its_own_rounds(time: clock.ManualClock, tmp_path: Path) -> None:
    held, owner = blob_renewal.HeldBlobs(time), Owner()
    directories = [local_blobs.Blobs(tmp_path / name, durable=False) for name in "ab"]
    digests = [aged(directory, 1) for directory in directories]
    held.hold(owner, digests[:1])
    for directory, digest in zip(directories, digests, strict=True):
        held.renew(directory)
        assert renewed(directory, digest)


def test_submitted_blobs_need_no_owner(time: clock.ManualClock, kept: local_blobs.Blobs) -> None:
    held, submitted = blob_renewal.HeldBlobs(time), aged(kept, 1)
    held.renew(kept, lambda: {submitted})
    assert renewed(kept, submitted)
    accepted = aged(kept, 1)
    time.advance(blob_renewal.RENEW_S)
    held.renew(kept, frozenset)
    assert not renewed(kept, accepted)
