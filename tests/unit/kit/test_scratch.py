"""Temporary directories go with their process."""

import subprocess
import sys
from pathlib import Path

import pytest

from kilnwork.kit import scratch


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A short directory, since sockets in it have a short path."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def make(parent: Path, name: str = "kiln-x-1") -> scratch.Scratch:
    return scratch.Scratch("kiln-x-", parent / name)


def test_scratch_directory_is_private_and_removed_by_close(tmp_path: Path) -> None:
    made = make(tmp_path)
    assert made.path == tmp_path / "kiln-x-1"
    assert made.path.stat().st_mode & 0o777 == 0o700
    (made.path / "file").touch()
    made.close()
    assert not made.path.exists()


def test_directory_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "kiln-x-left"
    program = "import os; from pathlib import Path; from kilnwork.kit import scratch; "
    program += f"scratch.Scratch('kiln-x-', Path({str(left)!r})); os._exit(1)"
    subprocess.run([sys.executable, "-c", program], check=False)
    assert left.exists()
    made = make(tmp_path)
    assert not left.exists()
    made.close()


def test_a_directory_in_use_stays(tmp_path: Path) -> None:
    one, other = make(tmp_path, "kiln-x-1"), make(tmp_path, "kiln-x-2")
    assert one.path.exists()
    one.close()
    assert other.path.exists()
    other.close()


def test_other_directories_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kiln-y-1").mkdir()
    (tmp_path / "kiln-x-unlocked").mkdir()
    make(tmp_path).close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["kiln-x-unlocked", "kiln-y-1"]


def test_the_path_has_room_for_sockets() -> None:
    made = scratch.Scratch("kiln-test-")
    try:
        assert len(str(made.path)) <= 50
        assert made.path.name.startswith("kiln-test-")
    finally:
        made.close()
