"""Directories of kilnwork, and private files in them."""

from pathlib import Path

import pytest

from kilnwork.kit import data_directories, errors


def test_the_data_directory_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert data_directories.data_dir() == Path("/data/kilnwork")
    monkeypatch.setenv("XDG_DATA_HOME", "")
    monkeypatch.setenv("HOME", "/home/ann")
    assert data_directories.data_dir() == Path("/home/ann/.local/share/kilnwork")


@pytest.mark.parametrize(
    ("name", "is_one"), [("journal.lock", True), ("node-identity", True), ("notes.txt", False)]
)
def test_a_data_directory_has_a_lock_or_an_identity(
    tmp_path: Path, name: str, *, is_one: bool
) -> None:
    assert not data_directories.is_data_dir(tmp_path)
    (tmp_path / name).touch()
    assert data_directories.is_data_dir(tmp_path) is is_one


@pytest.mark.parametrize("durable", [True, False])
def test_a_private_file_is_replaced_whole(tmp_path: Path, *, durable: bool) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"old")
    path.chmod(0o644)
    data_directories.write_private(path, b"new", durable=durable)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["token"]


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "token").mkdir()
    with pytest.raises(OSError, match="token"):
        data_directories.write_private(tmp_path / "token", b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["token"]


def test_sockets_of_a_long_directory_are_elsewhere_and_always_there(tmp_path: Path) -> None:
    short = Path("/srv/kiln")
    assert data_directories.runtime_dir(short) == short / "run"
    long = tmp_path / ("x" * data_directories.MAX_SOCKET_DIRECTORY)
    found = data_directories.runtime_dir(long)
    assert found == data_directories.runtime_dir(long)
    assert found.parent == Path("/tmp")
    assert found != data_directories.runtime_dir(long / "y")


def test_a_private_directory_is_ours_alone(tmp_path: Path) -> None:
    made = tmp_path / "run"
    made.mkdir(mode=0o755)
    data_directories.make_private(made)
    assert made.stat().st_mode & 0o777 == 0o700


def test_a_link_or_a_file_is_no_private_directory(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "target")
    with pytest.raises(errors.ConfigurationError, match="no directory of yours"):
        data_directories.make_private(link)
