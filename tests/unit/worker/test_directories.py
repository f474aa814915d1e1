"""Directories of attempts: named by ids, private, removed."""

import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.api import attempts
from kilnwork.kit import ids
from kilnwork.worker import directories, errors, settings

REF = attempts.AttemptRef(ids.new_task_id(), 1000, 1000)


@pytest.fixture
def made() -> Iterator[directories.Directories]:
    found = directories.Directories()
    yield found
    found.close()


async def test_socket_listens_before_the_command_runs(made: directories.Directories) -> None:
    place = made.make(REF, inputs=b"{}")
    assert len(str(place.address)) < 107
    assert place.input is not None
    assert place.input.read_bytes() == b"{}"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(place.address))
    await place.remove()
    assert list(made.base.iterdir()) == [made.base / "lock"]


async def test_large_directory_is_removed(made: directories.Directories) -> None:
    place = made.make(REF, inputs=None)
    for number in range(50):
        (place.directory / str(number)).mkdir()
    await place.remove()
    assert not place.directory.exists()


async def test_second_directory_of_an_attempt_is_refused_and_the_first_stays(
    made: directories.Directories,
) -> None:
    place = made.make(REF, inputs=None)
    with pytest.raises(errors.CannotStartHere):
        made.make(REF, inputs=None)
    assert place.directory.exists()
    assert place.address.exists()
    await place.remove()


def test_temporary_directory_with_a_long_path_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    found = directories.Directories()
    assert len(str(found.base)) < 50
    found.close()


def test_only_unlocked_directories_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    held = directories.Directories()
    left = base / f"{settings.DIRECTORY_PREFIX}left"
    left.mkdir()
    (left / "lock").touch()
    stranger = base / f"{settings.DIRECTORY_PREFIX}without-lock"
    stranger.mkdir()
    second = directories.Directories()
    assert held.base.exists()
    assert stranger.exists()
    assert not left.exists()
    second.close()
    held.close()
    stranger.rmdir()
    base.rmdir()
