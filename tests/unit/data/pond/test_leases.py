"""Leases on disk belong to one namespace; only names that are valid in paths are accepted."""

from pathlib import Path

import pytest

from kilnwork.data import errors
from kilnwork.data.pond import leases


def lease(namespace: str = "default", name: str = "run-1", *snapshots: str) -> leases.Lease:
    held = tuple(leases.LeasedSnapshot(name=one, digest=f"digest-{one}") for one in snapshots)
    return leases.Lease(namespace=namespace, name=name, snapshots=held)


@pytest.fixture
def files(tmp_path: Path) -> leases.LeaseFiles:
    return leases.LeaseFiles(tmp_path)


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (lease("Default"), "namespace"),
        (lease("a" * 64), "namespace"),
        (lease("../other"), "namespace"),
        (lease("default", "a..b"), "name"),
        (lease("default", "a/b"), "name"),
        (lease("default", "a" * 254), "name"),
        (lease("default", "run", "-a"), r"snapshots\[0\].name"),
        (lease("default", "run", "ok", "a.b"), r"snapshots\[1\].name"),
        (lease("default", "run", "a" * 64), r"snapshots\[0\].name"),
        (lease("default", "run", "a", "b", "a"), r"snapshots\[2\].name.*twice"),
    ],
)
def test_name_that_is_not_a_path_is_refused_with_field(bad: leases.Lease, field: str) -> None:
    with pytest.raises(errors.LeaseRefused, match=rf"^{field}"):
        leases.check(bad)


def test_names_of_maximum_length_are_accepted() -> None:
    leases.check(lease("a" * 63, "a" * 253, "a" * 63, "dailyTrades", "_b"))


def test_lease_survives_the_agent(files: leases.LeaseFiles, tmp_path: Path) -> None:
    files.put(lease("default", "run-1", "a", "b"))
    files.put(lease("other", "run-1", "c"))
    later = leases.LeaseFiles(tmp_path)
    later.scan()
    assert set(later) == set(files)
    assert later.get("other", "run-1") == lease("other", "run-1", "c")
    assert later.digests == {"digest-a", "digest-b", "digest-c"}


def test_lease_is_invisible_to_other_namespaces(files: leases.LeaseFiles) -> None:
    files.put(lease())
    for refused in (files.get, files.remove):
        with pytest.raises(errors.LeaseRefused, match="namespace other has no lease 'run-1'"):
            refused("other", "run-1")
    assert files.get("default", "run-1") == lease()


def test_removed_lease_is_deleted_from_disk(files: leases.LeaseFiles, tmp_path: Path) -> None:
    files.put(lease())
    files.remove("default", "run-1")
    assert list(files) == []
    assert not list(tmp_path.glob("*/*.json"))


def test_other_files_are_left_alone(files: leases.LeaseFiles, tmp_path: Path) -> None:
    files.put(lease())
    good = tmp_path / "default" / "run-1.json"
    (tmp_path / "default" / "another-name.json").write_bytes(good.read_bytes())
    (tmp_path / "default" / "damaged.json").write_bytes(b"{")
    later = leases.LeaseFiles(tmp_path)
    later.scan()
    assert list(later) == [lease()]
    assert len(list(tmp_path.glob("*/*.json"))) == 3


def test_unchanged_lease_is_not_written_again(files: leases.LeaseFiles, tmp_path: Path) -> None:
    files.put(lease())
    before = (tmp_path / "default" / "run-1.json").stat().st_ino
    files.put(lease())
    assert (tmp_path / "default" / "run-1.json").stat().st_ino == before
