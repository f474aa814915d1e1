"""Selection of snapshots and blobs to delete when a pond needs space."""

import pytest

from kilnwork.data.pond import eviction

SIZES = {b"a": 10, b"b": 20, b"shared": 40, b"orphan": 5}
OLD = eviction.Candidate("old", 1.0, (b"a", b"shared"))
NEW = eviction.Candidate("new", 2.0, (b"b", b"shared", b"shared"))


@pytest.mark.parametrize(
    ("excess", "leased", "snapshots", "blobs", "freed"),
    [
        pytest.param(0, (), (), set(), 0, id="enough room"),
        pytest.param(-1, (), (), set(), 0, id="room to spare"),
        pytest.param(5, (), (), {b"orphan"}, 5, id="blobs of no snapshot first"),
        pytest.param(6, (), ("old",), {b"orphan", b"a"}, 15, id="longest unused, shared stays"),
        pytest.param(15, (), ("old",), {b"orphan", b"a"}, 15, id="exactly enough"),
        pytest.param(16, (), ("old", "new"), set(SIZES), 75, id="shared goes with its last user"),
        pytest.param(6, ("old",), ("new",), {b"orphan", b"b"}, 25, id="leased stays"),
        pytest.param(99, ("old", "new"), (), {b"orphan"}, 5, id="not enough to free"),
    ],
)
def test_least_recently_used_snapshots_are_evicted_first(
    excess: int, leased: tuple[str, ...], snapshots: tuple[str, ...], blobs: set[bytes], freed: int
) -> None:
    found = eviction.choose([NEW, OLD], SIZES, leased=leased, excess=excess)
    assert found == eviction.Eviction(snapshots, frozenset(blobs), freed)


def test_missing_blobs_free_no_bytes() -> None:
    absent = eviction.Candidate("absent", 0.0, (b"not there",))
    found = eviction.choose([absent, OLD], {b"a": 10}, leased=(), excess=10)
    assert found == eviction.Eviction(("absent", "old"), frozenset({b"a"}), 10)


def test_snapshots_of_same_age_are_evicted_by_digest() -> None:
    pair = [eviction.Candidate(name, 1.0, (name.encode(),)) for name in ("z", "y")]
    found = eviction.choose(pair, {b"y": 1, b"z": 1}, leased=(), excess=1)
    assert found.snapshots == ("y",)
