"""Volumes and mounts of a Pod as real files."""

from pathlib import Path

import pytest

from kilnwork.controlplane.node import container_plan, errors, pod_types, volume_sources, volumes


def prepare(
    directory: volumes.PodDirectory,
    *links: container_plan.MountLink,
    files: tuple[volume_sources.VolumeFile, ...] = (),
) -> None:
    directory.fill(
        (volume_sources.VolumeContent("conf", files), volume_sources.VolumeContent("data", None))
    )
    directory.link("main", links)


def data(path: str, sub: str = "") -> container_plan.MountLink:
    return container_plan.MountLink(path, "data", sub, makes=True)


@pytest.fixture
def directory(tmp_path: Path) -> volumes.PodDirectory:
    return volumes.PodDirectory(tmp_path, "uid", links=tmp_path / "m")


def test_files_have_their_modes_in_a_private_directory(directory: volumes.PodDirectory) -> None:
    files = (
        volume_sources.VolumeFile("a", b"1", 0o644),
        volume_sources.VolumeFile("x/b", b"2", 0o600),
    )
    prepare(directory, container_plan.MountLink("etc/conf", "conf"), files=files)
    mounted = directory.root("main") / "etc/conf"
    assert (mounted / "a").read_bytes() == b"1"
    assert (mounted / "a").stat().st_mode & 0o777 == 0o644
    assert (mounted / "x/b").stat().st_mode & 0o777 == 0o600
    assert directory.path.stat().st_mode & 0o777 == 0o700


def test_container_gets_a_short_path_for_its_mounts(
    directory: volumes.PodDirectory, tmp_path: Path
) -> None:
    prepare(directory, data("v"))
    short = directory.mount_point("main")
    assert short.parent == tmp_path / "m"
    assert short.resolve() == directory.root("main").resolve()
    (short / "v" / "f").write_text("x")
    directory.remove()
    assert list(tmp_path.iterdir()) == []
    long = volumes.links_directory(tmp_path / ("x" * 60), tmp_path)
    assert len(str(long / short.name)) + len("/var/run/kilnwork/socket") < 107
    assert volumes.links_directory(Path("/run/k"), tmp_path) == Path("/run/k/m")


def test_second_start_rewrites_files_and_keeps_empty_dirs(directory: volumes.PodDirectory) -> None:
    link = (container_plan.MountLink("conf", "conf"), data("data"))
    prepare(directory, *link, files=(volume_sources.VolumeFile("old", b"1", 0o644),))
    (directory.root("main") / "data" / "kept").write_text("x")
    prepare(directory, *link, files=(volume_sources.VolumeFile("new", b"2", 0o644),))
    assert [p.name for p in (directory.root("main") / "conf").iterdir()] == ["new"]
    assert (directory.root("main") / "data" / "kept").read_text() == "x"


def test_sub_path_of_an_empty_dir_is_created(directory: volumes.PodDirectory) -> None:
    prepare(directory, data("a", "x/y"))
    (directory.root("main") / "a" / "f").write_text("1")
    assert (directory.path / "volumes/data/x/y/f").read_text() == "1"


def test_missing_sub_path_blocks_the_container(directory: volumes.PodDirectory) -> None:
    with pytest.raises(errors.InputsNotReady, match='subPath "nope" is not in volume "conf"'):
        prepare(directory, container_plan.MountLink("a", "conf", "nope"))


def test_sub_path_through_symlink_out_of_volume_is_refused(
    directory: volumes.PodDirectory, tmp_path: Path
) -> None:
    prepare(directory, data("data"))
    (directory.root("main") / "data" / "out").symlink_to(tmp_path)
    with pytest.raises(errors.InputsNotReady, match="leaves volume"):
        prepare(directory, data("a", "out/x"))
    assert not (tmp_path / "x").exists()


def test_mounts_can_be_nested(directory: volumes.PodDirectory) -> None:
    prepare(directory, data("a"), container_plan.MountLink("a/b", "conf"))
    assert (directory.root("main") / "a/b").resolve() == directory.path / "volumes/conf"


def test_account_files_are_private(directory: volumes.PodDirectory) -> None:
    directory.write_account(token="t", ca=b"pem", namespace="ns")
    assert {p.name: p.read_bytes() for p in directory.account.iterdir()} == {
        "token": b"t",
        "ca.crt": b"pem",
        "namespace": b"ns",
    }
    assert all(p.stat().st_mode & 0o077 == 0 for p in directory.account.iterdir())


def test_remove_leaves_nothing(directory: volumes.PodDirectory) -> None:
    prepare(directory, data("a"))
    directory.remove()
    assert not directory.path.exists()


def test_host_path_links_to_the_machine(directory: volumes.PodDirectory, tmp_path: Path) -> None:
    host = tmp_path / "host"
    volumes.check_host("h", pod_types.HostPath(str(host), "DirectoryOrCreate"))
    directory.link("main", [container_plan.MountLink("a", "h", makes=True, host=str(host))])
    (directory.root("main") / "a" / "f").write_text("1")
    assert (host / "f").read_text() == "1"
    directory.remove()
    assert (host / "f").exists()


def test_host_path_of_wrong_type_blocks_the_container(tmp_path: Path) -> None:
    with pytest.raises(
        errors.InputsNotReady, match=r"hostPath type check failed: .* is not a file"
    ):
        volumes.check_host("h", pod_types.HostPath(str(tmp_path), "File"))


def test_containers_have_separate_mounts(directory: volumes.PodDirectory) -> None:
    directory.link("one", [data("a")])
    directory.link("two", [data("b")])
    assert [p.name for p in directory.root("one").iterdir()] == ["a"]
    assert [p.name for p in directory.root("two").iterdir()] == ["b"]
