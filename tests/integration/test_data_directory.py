"""The data directory and the directory for sockets: long paths, symlinks in /tmp, clean-up."""

from pathlib import Path

import pytest

from kilnwork.kit import data_directories, errors
from support import embedded_server


@pytest.fixture
def long_path(tmp_path: Path) -> Path:
    return tmp_path / ("a" * 100) / ("b" * 100)


async def test_long_path_leaves_nothing_in_tmp(long_path: Path) -> None:
    async with embedded_server.control_plane(long_path) as plane:
        run = plane.run_dir
        assert run.is_dir()
        assert len(str(run)) < data_directories.MAX_SOCKET_DIRECTORY
        assert run.stat().st_mode & 0o777 == 0o700
    assert not run.exists()


async def test_symlink_in_tmp_is_not_followed(long_path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    run = data_directories.runtime_dir(long_path)
    run.symlink_to(victim)
    try:
        with pytest.raises(errors.ConfigurationError, match="is no directory of yours"):
            async with embedded_server.control_plane(long_path):
                pass
        assert victim.stat().st_mode & 0o777 == 0o755
    finally:
        run.unlink()


@pytest.mark.parametrize("name", ["token", "kubeconfig", "pki/ca.key", "control.db"])
async def test_unwritable_path_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "data" / name).mkdir(parents=True)
    with pytest.raises(errors.ConfigurationError, match="data"):
        async with embedded_server.control_plane(tmp_path / "data"):
            pass


@pytest.mark.parametrize("name", ["token", "pki/ca.key", "pki/sa.key", "control.db"])
async def test_corrupt_files_are_refused_and_named(tmp_path: Path, name: str) -> None:
    async with embedded_server.control_plane(tmp_path / "data"):
        pass
    (tmp_path / "data" / name).write_bytes(bytes(range(128, 256)) * 40)
    with pytest.raises(errors.ConfigurationError, match=name.split("/", maxsplit=1)[0]):
        async with embedded_server.control_plane(tmp_path / "data"):
            pass


async def test_file_instead_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(errors.ConfigurationError, match="cannot be used"):
        async with embedded_server.control_plane(tmp_path / "data"):
            pass
