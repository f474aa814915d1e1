"""Volumes and mounts of a Pod as real files."""

from pathlib import Path

import pytest

from kilnwork.controlplane.node import errors, pods, recipe, sources, volumes


def done(
    *links: recipe.Link, files: tuple[sources.File, ...] = (), empty: str = "data"
) -> recipe.Recipe:
    both = (sources.Volume("conf", files), sources.Volume(empty, None))
    return recipe.Recipe(["x"], {}, "/", both, links)


@pytest.fixture
def folder(tmp_path: Path) -> volumes.PodFolder:
    return volumes.PodFolder(tmp_path, "uid")


def test_files_have_their_modes_in_a_private_folder(folder: volumes.PodFolder) -> None:
    files = (sources.File("a", b"1", 0o644), sources.File("x/b", b"2", 0o600))
    folder.prepare("main", done(recipe.Link("etc/conf", "conf", ""), files=files))
    mounted = folder.root("main") / "etc/conf"
    assert (mounted / "a").read_bytes() == b"1"
    assert (mounted / "a").stat().st_mode & 0o777 == 0o644
    assert (mounted / "x/b").stat().st_mode & 0o777 == 0o600
    assert folder.path.stat().st_mode & 0o777 == 0o700


def test_a_second_start_renews_files_and_keeps_empty_dirs(folder: volumes.PodFolder) -> None:
    link = (recipe.Link("conf", "conf", ""), recipe.Link("data", "data", ""))
    folder.prepare("main", done(*link, files=(sources.File("old", b"1", 0o644),)))
    (folder.root("main") / "data" / "kept").write_text("x")
    folder.prepare("main", done(*link, files=(sources.File("new", b"2", 0o644),)))
    assert [p.name for p in (folder.root("main") / "conf").iterdir()] == ["new"]
    assert (folder.root("main") / "data" / "kept").read_text() == "x"


def test_a_sub_path_of_an_empty_dir_is_made(folder: volumes.PodFolder) -> None:
    folder.prepare("main", done(recipe.Link("a", "data", "x/y")))
    (folder.root("main") / "a" / "f").write_text("1")
    assert (folder.path / "volumes/data/x/y/f").read_text() == "1"


def test_a_sub_path_that_is_not_there_waits(folder: volumes.PodFolder) -> None:
    with pytest.raises(errors.NotYet, match='subPath "nope" is not in volume "conf"'):
        folder.prepare("main", done(recipe.Link("a", "conf", "nope")))


def test_a_sub_path_through_a_link_out_of_the_volume_is_refused(
    folder: volumes.PodFolder, tmp_path: Path
) -> None:
    folder.prepare("main", done(recipe.Link("data", "data", "")))
    (folder.root("main") / "data" / "out").symlink_to(tmp_path)
    with pytest.raises(errors.NotYet, match="leaves volume"):
        folder.prepare("main", done(recipe.Link("a", "data", "out/x")))
    assert not (tmp_path / "x").exists()


def test_mounts_nest(folder: volumes.PodFolder) -> None:
    folder.prepare(
        "main", done(recipe.Link("a", "data", ""), recipe.Link("a/b", "conf", ""), files=())
    )
    assert (folder.root("main") / "a/b").resolve() == folder.path / "volumes/conf"


def test_account_files_are_private(folder: volumes.PodFolder) -> None:
    folder.write_account(token="t", ca=b"pem", namespace="ns")
    assert {p.name: p.read_bytes() for p in folder.account.iterdir()} == {
        "token": b"t",
        "ca.crt": b"pem",
        "namespace": b"ns",
    }
    assert all(p.stat().st_mode & 0o077 == 0 for p in folder.account.iterdir())


def test_removing_leaves_nothing(folder: volumes.PodFolder) -> None:
    folder.prepare("main", done(recipe.Link("a", "data", "")))
    folder.remove()
    assert not folder.path.exists()


def test_a_host_path_is_the_machines_own(folder: volumes.PodFolder, tmp_path: Path) -> None:
    host = pods.HostPath(str(tmp_path / "host"), "DirectoryOrCreate")
    made = recipe.Recipe(
        ["x"], {}, "/", (sources.Volume("h", None, host),), (recipe.Link("a", "h", ""),)
    )
    folder.prepare("main", made)
    (folder.root("main") / "a" / "f").write_text("1")
    assert (tmp_path / "host" / "f").read_text() == "1"
    folder.remove()
    assert (tmp_path / "host" / "f").exists()


def test_a_host_path_of_another_type_waits(folder: volumes.PodFolder, tmp_path: Path) -> None:
    volume = sources.Volume("h", None, pods.HostPath(str(tmp_path), "File"))
    with pytest.raises(errors.NotYet, match=r"hostPath type check failed: .* is not a file"):
        folder.fill([volume])
