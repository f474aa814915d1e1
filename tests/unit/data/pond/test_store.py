"""The directory of a pond: leases pin, trees are read-only, the quota holds, a restart
continues."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.data import errors, local_blobs
from kilnwork.data.pond import blob_files, eviction, leases, manifest, origins, store, trees
from kilnwork.kit import clock, locks
from support import ponds

FILES = {"a.csv": b"1\n2\n", "d/b.csv": b"3\n", "d/same.csv": b"3\n"}


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[store.PondStore]:
    made = ponds.opened(tmp_path / "pond")
    yield made
    made.close()


def put(kept: store.PondStore, files: dict[str, bytes]) -> manifest.Manifest:
    source = ponds.CountingSource(files)
    return ponds.pin(kept, source).manifest


def lease(
    made: manifest.Manifest,
    *,
    name: str = "set-g1",
    paths: tuple[str, ...] | None = None,
    access: str = "read",
) -> leases.Lease:
    one = leases.LeasedSnapshot(name="market", digest=made.digest, paths=paths, access=access)
    return leases.Lease(namespace="quant", name=name, snapshots=(one,))


def test_tree_has_the_files_of_its_snapshot(kept: store.PondStore) -> None:
    wanted = lease(put(kept, FILES))
    kept.lease(wanted)

    kept.make_tree(wanted, wanted.snapshots[0])

    run = kept.run("quant", "set-g1")
    assert ponds.read_files(run / "market") == FILES
    marker = trees.marker(run, "market")
    assert marker is not None
    assert marker.files == 3


def test_read_tree_links_blobs_and_is_read_only(kept: store.PondStore) -> None:
    made = put(kept, FILES)
    wanted = lease(made)
    kept.lease(wanted)
    kept.make_tree(wanted, wanted.snapshots[0])

    top = kept.run("quant", "set-g1") / "market"
    blob = kept.blobs.path(local_blobs.parse(ponds.digest_of(b"3\n")))
    assert (top / "d/b.csv").stat().st_ino == blob.stat().st_ino
    assert (top / "a.csv").stat().st_mode & 0o777 == 0o444
    assert top.stat().st_mode & 0o777 == 0o555
    assert (top / "d").stat().st_mode & 0o777 == 0o555


def test_copy_tree_is_writable_and_left_alone(kept: store.PondStore) -> None:
    wanted = lease(put(kept, FILES), access="copy")
    kept.lease(wanted)
    kept.make_tree(wanted, wanted.snapshots[0])
    top = kept.run("quant", "set-g1") / "market"
    (top / "a.csv").write_bytes(b"mine")
    (top / "new").write_bytes(b"mine too")

    kept.make_tree(wanted, wanted.snapshots[0])

    assert (top / "a.csv").read_bytes() == b"mine"
    assert (top / "new").exists()
    assert kept.blobs.verify(local_blobs.parse(ponds.digest_of(FILES["a.csv"])), 4)


def test_executable_file_is_executable_in_tree(kept: store.PondStore, tmp_path: Path) -> None:
    ponds.write_files(tmp_path / "in", {"run.sh": b"#!/bin/sh\n", "data": b"#!/bin/sh\n"})
    (tmp_path / "in/run.sh").chmod(0o755)
    from_disk = origins.FileSource("disk", tmp_path / "in")
    wanted = lease(ponds.pin(kept, from_disk).manifest)
    kept.lease(wanted)

    kept.make_tree(wanted, wanted.snapshots[0])

    top = kept.run("quant", "set-g1") / "market"
    assert (top / "run.sh").stat().st_mode & 0o777 == 0o555
    assert (top / "data").stat().st_mode & 0o777 == 0o444


@pytest.mark.parametrize(
    "name", ["run.sh", pytest.param("鑿" * 85, id="a name of 255 bytes, which is all there may be")]
)
def test_tree_supports_every_valid_file_name(
    kept: store.PondStore, tmp_path: Path, name: str
) -> None:
    """Temporary files have names, too, which must not clash with those of users."""
    files = {f".{name}.kiln-new"[-80:]: b"1", f".{name}.new"[-80:]: b"2", name: b"#!/bin/sh"}
    ponds.write_files(tmp_path / "in", files)
    (tmp_path / "in" / name).chmod(0o755)
    wanted = lease(ponds.pin(kept, origins.FileSource("disk", tmp_path / "in")).manifest)
    kept.lease(wanted)

    kept.make_tree(wanted, wanted.snapshots[0])

    run = kept.run("quant", "set-g1")
    assert ponds.read_files(run / "market") == files
    assert {path.name for path in run.iterdir()} == {"market", ".market.ready"}


@pytest.mark.parametrize("path", ["a.csv", "run.sh"])
@pytest.mark.parametrize("content", [b"wrong", b""])
def test_modified_file_of_tree_is_replaced(
    kept: store.PondStore, tmp_path: Path, path: str, content: bytes
) -> None:
    """A link to a damaged blob is replaced with the blob, and so is a copy."""
    files = {"a.csv": b"first", "run.sh": b"other"}
    ponds.write_files(tmp_path / "in", files)
    (tmp_path / "in/run.sh").chmod(0o755)
    disk = origins.FileSource("disk", tmp_path / "in")
    wanted = lease(ponds.pin(kept, disk).manifest)
    kept.lease(wanted)
    kept.make_tree(wanted, wanted.snapshots[0])
    top = kept.run("quant", "set-g1") / "market"
    (top / path).write_bytes(content)

    ponds.pin(kept, disk)  # fetches what is damaged
    kept.make_tree(wanted, wanted.snapshots[0])

    assert ponds.read_files(top) == files
    assert (top / path).stat().st_mode & 0o222 == 0


def test_withdraw_removes_only_modified_files(kept: store.PondStore) -> None:
    made = put(kept, FILES)
    read, copy = lease(made), lease(made, name="set-g2", access="copy")
    for wanted in (read, copy):
        kept.lease(wanted)
        kept.make_tree(wanted, wanted.snapshots[0])
    for wanted in (read, copy):
        path = kept.run("quant", wanted.name) / "market" / "d/b.csv"
        path.chmod(0o644)
        path.write_bytes(b"0\n")
        kept.withdraw_damaged(wanted, wanted.snapshots[0], made.files)

    found = ponds.read_files(kept.run("quant", "set-g1") / "market")
    assert found == {"a.csv": FILES["a.csv"]}  # the others are links to one blob
    assert trees.marker(kept.run("quant", "set-g1"), "market") is None
    assert ponds.read_files(kept.run("quant", "set-g2") / "market") == {**FILES, "d/b.csv": b"0\n"}
    assert trees.marker(kept.run("quant", "set-g2"), "market") is not None


def test_additional_shards_are_added_to_a_tree(kept: store.PondStore) -> None:
    made = put(kept, FILES)
    first = lease(made, paths=("a.csv",))
    kept.lease(first)
    kept.make_tree(first, first.snapshots[0])
    top = kept.run("quant", "set-g1") / "market"
    inode = (top / "a.csv").stat().st_ino, top.stat().st_ino
    assert ponds.read_files(top) == {"a.csv": FILES["a.csv"]}

    more = lease(made, paths=("a.csv", "d/b.csv"))
    kept.lease(more)
    kept.make_tree(more, more.snapshots[0])

    assert ponds.read_files(top) == {path: FILES[path] for path in ("a.csv", "d/b.csv")}
    assert ((top / "a.csv").stat().st_ino, top.stat().st_ino) == inode


def test_unfinished_tree_is_made_again(
    kept: store.PondStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = lease(put(kept, FILES))
    kept.lease(wanted)
    run, link = kept.run("quant", "set-g1"), os.link

    def fail(source: Path, target: Path) -> None:
        if str(target).endswith("same.csv"):
            raise OSError(errno.ENOSPC, "no space")
        link(source, target)

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(errors.PondFull):
        kept.make_tree(wanted, wanted.snapshots[0])
    assert trees.marker(run, "market") is None
    assert not (run / "market").exists()
    monkeypatch.undo()

    kept.make_tree(wanted, wanted.snapshots[0])

    assert ponds.read_files(run / "market") == FILES


def test_leases_survive_the_agent(kept: store.PondStore, tmp_path: Path) -> None:
    wanted = lease(put(kept, FILES))
    kept.lease(wanted)
    kept.make_tree(wanted, wanted.snapshots[0])
    kept.close()

    again = ponds.opened(tmp_path / "pond")

    assert list(again.all_leases()) == [wanted]
    assert [one.files_here for one in again.holdings()] == [3]
    again.close()


def test_release_deletes_the_trees_of_a_run(kept: store.PondStore) -> None:
    wanted = lease(put(kept, FILES))
    kept.lease(wanted)
    kept.make_tree(wanted, wanted.snapshots[0])

    kept.release("quant", "set-g1")

    assert not kept.run("quant", "set-g1").exists()
    assert list(kept.all_leases()) == []
    assert [one.leased for one in kept.holdings()] == [False]


def test_outputs_are_writable_by_all_and_deleted_on_release(
    kept: store.PondStore, tmp_path: Path
) -> None:
    kept.make_outputs("quant", "set-g1")
    kept.make_outputs("quant", "set-g2")
    for name in ("set-g1", "set-g2"):
        kept.lease(leases.Lease(namespace="quant", name=name, snapshots=()))
    directory = kept.outputs("quant", "set-g1")
    assert directory.stat().st_mode & 0o7777 == 0o1777
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine").write_text("x")
    (directory / "t1.1.1").symlink_to(tmp_path / "elsewhere")
    kept.release("quant", "set-g1")
    assert not directory.exists()
    assert (tmp_path / "elsewhere" / "mine").exists()
    assert kept.outputs("quant", "set-g2").exists()
    (tmp_path / "pond/leases/quant/set-g2.json").unlink()
    kept.close()
    again = ponds.opened(tmp_path / "pond")
    assert not again.outputs("quant", "set-g2").exists()
    again.close()


def test_open_deletes_runs_without_lease(kept: store.PondStore, tmp_path: Path) -> None:
    wanted = lease(put(kept, FILES))
    kept.lease(wanted)
    kept.make_tree(wanted, wanted.snapshots[0])
    (tmp_path / "pond/leases/quant/set-g1.json").unlink()
    kept.close()

    again = ponds.opened(tmp_path / "pond")

    assert not again.run("quant", "set-g1").exists()
    again.close()


@pytest.mark.parametrize("act", ["get_lease", "release"])
def test_lease_is_not_found_in_other_namespace(kept: store.PondStore, act: str) -> None:
    wanted = lease(put(kept, FILES))
    kept.lease(wanted)

    with pytest.raises(errors.LeaseRefused, match="namespace other has no lease 'set-g1'"):
        getattr(kept, act)("other", "set-g1")

    assert list(kept.all_leases()) == [wanted]


@pytest.mark.parametrize(
    ("namespace", "name"),
    [("..", "a"), ("a/b", "c"), ("a", ".."), ("a", "b/../c"), ("", "a"), ("a", ""), ("A", "b")],
)
def test_lease_names_outside_of_directory_are_refused(
    kept: store.PondStore, namespace: str, name: str
) -> None:
    with pytest.raises(errors.LeaseRefused):
        kept.lease(leases.Lease(namespace=namespace, name=name, snapshots=()))


def test_invalid_snapshot_names_are_refused(kept: store.PondStore) -> None:
    made = put(kept, FILES)
    for name in ("../x", ".hidden", "a/b"):
        one = leases.LeasedSnapshot(name=name, digest=made.digest)
        with pytest.raises(errors.LeaseRefused, match=r"snapshots\[0\].name"):
            kept.lease(leases.Lease(namespace="a", name="b", snapshots=(one,)))


def test_second_agent_of_same_pond_is_refused_as_shared(
    kept: store.PondStore, tmp_path: Path
) -> None:
    with pytest.raises(errors.PondShared, match=str(os.getpid())):
        ponds.opened(tmp_path / "pond")


def test_directory_of_another_pond_is_refused(kept: store.PondStore, tmp_path: Path) -> None:
    with pytest.raises(errors.PondInUse, match="is of DataPond quant/lake"):
        ponds.opened(tmp_path / "pond", pond="other/lake")
    kept.close()
    with pytest.raises(errors.PondInUse, match="is of DataPond quant/lake"):
        ponds.opened(tmp_path / "pond", pond="other/lake")


def test_directory_without_identity_is_refused(tmp_path: Path) -> None:
    ponds.opened(tmp_path / "pond").close()
    (tmp_path / "pond/identity").write_text("{")

    with pytest.raises(errors.PondError, match="not readable"):
        ponds.opened(tmp_path / "pond")


def test_new_file_system_can_become_a_pond(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()

    ponds.opened(tmp_path).close()


def test_empty_mount_directories_can_become_a_pond(tmp_path: Path) -> None:
    (tmp_path / "runs/quant/set-g1").mkdir(parents=True)
    (tmp_path / "outputs/quant/set-g1").mkdir(parents=True)

    ponds.opened(tmp_path).close()


def test_mount_directories_with_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "runs/quant").mkdir(parents=True)
    (tmp_path / "runs/quant/precious").write_text("mine")

    with pytest.raises(errors.PondError, match="neither empty nor a pond"):
        ponds.opened(tmp_path)


def test_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")

    with pytest.raises(errors.PondError, match="neither empty nor a pond"):
        ponds.opened(tmp_path)

    assert (tmp_path / "precious").read_text() == "mine"


def test_write_to_a_blob_is_noticed(kept: store.PondStore) -> None:
    made = put(kept, FILES)
    blob = kept.blobs.path(local_blobs.parse(ponds.digest_of(FILES["a.csv"])))
    blob.chmod(0o644)
    blob.write_bytes(b"9\n9\n")

    assert [file.path for file in kept.missing(made.files)] == ["a.csv"]
    assert kept.blobs.damaged == 1
    assert not blob.exists()


def test_touched_blob_is_verified_and_kept(kept: store.PondStore) -> None:
    made = put(kept, FILES)
    blob = kept.blobs.path(local_blobs.parse(ponds.digest_of(FILES["a.csv"])))
    os.utime(blob)

    assert kept.missing(made.files) == []
    assert blob.stat().st_mtime_ns == blob_files.STAMP_NS


def test_failed_sync_of_directory_is_repeated(kept: store.PondStore) -> None:
    """Entries that are not on disk yet are synced again after the error."""
    put(kept, FILES)
    content = b"another file"
    partial = kept.blobs.partial("another")
    partial.restart(blob_files.PartialFacts(origin="lake", stamp=""))
    partial.write(content)
    digest, _ = partial.commit()
    directory = kept.blobs.path(digest).parent
    aside = directory.rename(kept.root / "aside")

    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            kept.blobs.sync()
    aside.rename(directory)
    kept.blobs.sync()
    directory.rename(aside)

    kept.blobs.sync()  # the disk knows it


# room


def snapshots(kept: store.PondStore, time: clock.ManualClock, *names: str) -> list[str]:
    found = []
    for name in names:
        time.advance(10)
        made = put(kept, {name: name.encode() * 1000})
        kept.lease(lease(made, name=name))
        kept.release("quant", name)
        found.append(made.digest)
    return found


def test_eviction_keeps_usage_between_watermarks(tmp_path: Path) -> None:
    time = clock.ManualClock()
    kept = ponds.opened(tmp_path / "pond", time=time)
    kept.set_limits(store.PondLimits(capacity=10_000, high=0.5, low=0.3))

    digests = snapshots(kept, time, "a", "b", "c", "d", "e")
    assert {one.digest for one in kept.holdings()} == set(digests)
    snapshots(kept, time, "f")

    assert kept.blobs.used <= 4_000
    assert digests[0] not in {one.digest for one in kept.holdings()}
    assert digests[4] in {one.digest for one in kept.holdings()}
    assert kept.evicted_bytes >= 2_000
    kept.close()


def test_leased_snapshots_are_not_evicted(tmp_path: Path) -> None:
    time = clock.ManualClock()
    kept = ponds.opened(tmp_path / "pond", time=time)
    kept.set_limits(store.PondLimits(capacity=3_500, high=0.9, low=0.1))
    pinned = lease(put(kept, {"old": b"o" * 1000}), name="pinned")
    kept.lease(pinned)

    snapshots(kept, time, "a", "b", "c", "d")

    found = kept.find_manifest(pinned.snapshots[0].digest)
    assert found is not None
    assert kept.missing(found.files) == []
    kept.close()


def test_data_that_does_not_fit_beside_leases_is_refused(tmp_path: Path) -> None:
    kept = ponds.opened(tmp_path / "pond")
    kept.set_limits(store.PondLimits(capacity=2_500))
    kept.lease(lease(put(kept, {"old": b"o" * 1500}), name="pinned"))

    with pytest.raises(errors.PondFull, match="release leases"):
        put(kept, {"new": b"n" * 1500})

    assert list(kept.blobs.partials()) == []
    assert kept.used == 1500
    kept.close()


def test_nothing_is_evicted_for_data_that_does_not_fit(tmp_path: Path) -> None:
    kept = ponds.opened(tmp_path / "pond")
    kept.set_limits(store.PondLimits(capacity=3_000))
    pinned = put(kept, {"old": b"o" * 1000})  # no run has leased it yet
    kept.lease(lease(put(kept, {"used": b"u" * 500}), name="pinned"))

    with pytest.raises(errors.PondFull, match="of 3,000 500 are taken by leased snapshots"):
        put(kept, {"new": b"n" * 2_600})

    assert kept.missing(pinned.files) == []
    assert kept.evicted_bytes == 0
    kept.close()


def test_copy_tree_counts_against_capacity(tmp_path: Path) -> None:
    kept = ponds.opened(tmp_path / "pond")
    kept.set_limits(store.PondLimits(capacity=2_500))
    wanted = lease(put(kept, {"a": b"x" * 1500}), access="copy")
    kept.lease(wanted)

    with pytest.raises(errors.PondFull):
        kept.make_tree(wanted, wanted.snapshots[0])
    assert not (kept.run("quant", "set-g1") / "market").exists()

    kept.set_limits(store.PondLimits(capacity=5_000))
    kept.make_tree(wanted, wanted.snapshots[0])
    assert kept.used == 3_000
    kept.release("quant", "set-g1")
    assert kept.used == 1_500
    kept.close()


def test_shared_blob_stays_until_last_snapshot_is_evicted() -> None:
    a, b, c = (bytes([n]) for n in range(3))
    sizes = {a: 10, b: 10, c: 10}
    candidates = [
        eviction.Candidate("old", 1, (a, b)),
        eviction.Candidate("new", 2, (b, c)),
    ]

    first = eviction.choose(candidates, sizes, leased=(), excess=5)
    both = eviction.choose(candidates, sizes, leased=(), excess=15)

    assert first == eviction.Eviction(("old",), frozenset([a]), 10)
    assert both == eviction.Eviction(("old", "new"), frozenset([a, b, c]), 30)
    assert eviction.choose(candidates, sizes, leased={"old", "new"}, excess=99).freed == 0


def test_blobs_without_snapshot_are_evicted_first() -> None:
    found = eviction.choose(
        [eviction.Candidate("s", 1, (b"a",))], {b"a": 10, b"x": 3}, leased=(), excess=3
    )

    assert found == eviction.Eviction((), frozenset([b"x"]), 3)


def test_number_of_quarantined_files_is_limited(kept: store.PondStore) -> None:
    made = put(kept, {f"f{n}": bytes([n]) for n in range(40)})
    for file in made.files:
        path = kept.blobs.path(local_blobs.parse(file.digest))
        path.chmod(0o644)
        path.write_bytes(b"?")

    assert len(kept.missing(made.files)) == 40

    assert kept.blobs.damaged == 40
    assert len(list((kept.root / "quarantine").iterdir())) == blob_files.MAX_QUARANTINED


@pytest.mark.parametrize("name", ["dailyTrades", "_x", "x_", "2026", "a" * 63])
def test_snapshot_names_allow_names_of_expressions(kept: store.PondStore, name: str) -> None:
    made = put(kept, FILES)
    one = leases.LeasedSnapshot(name=name, digest=made.digest)
    wanted = leases.Lease(namespace="quant", name="set-g1", snapshots=(one,))

    kept.lease(wanted)
    kept.make_tree(wanted, one)

    assert ponds.read_files(kept.run("quant", "set-g1") / name) == FILES


def test_identity_is_checked_again_after_locking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = locks.OwnerLock.take

    def others_were_faster(lock: locks.OwnerLock) -> bool:
        monkeypatch.undo()
        ponds.opened(tmp_path, pond="other/lake").close()
        return taken(lock)

    monkeypatch.setattr(locks.OwnerLock, "take", others_were_faster)

    with pytest.raises(errors.PondInUse, match="is of DataPond other/lake"):
        ponds.opened(tmp_path)
    ponds.opened(tmp_path, pond="other/lake").close()
