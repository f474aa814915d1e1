"""Files of homes that were killed with all their processes: removed if no process can need them."""

import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.sdk import home_cleanup
from support import short_paths

PREFIX = f"kiln-{os.getuid()}-"
FOREIGN = f"kiln-{(1 << 30)}-x"


@pytest.fixture
def directory() -> Iterator[Path]:
    made = short_paths.directory()
    yield made
    shutil.rmtree(made)


def age(path: Path) -> float:
    """Make it look an hour old; gives now."""
    now = path.stat().st_mtime
    os.utime(path, (now - 3600, now - 3600))
    return now


def test_old_unlocked_temporary_directories_are_removed(tmp_path: Path) -> None:
    names = (f"{PREFIX}old", f"{PREFIX}held", f"{PREFIX}young", "kiln-w-x", FOREIGN)
    for name in names:
        (tmp_path / name / "blobs").mkdir(parents=True)
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "kiln-w-x")
    for name in names:
        if not name.endswith("young"):
            now = age(tmp_path / name)
    held = os.open(tmp_path / f"{PREFIX}held", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        home_cleanup.temporary_directories(tmp_path, now=now)
    finally:
        os.close(held)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {*names, f"{PREFIX}link"} - {f"{PREFIX}old"}
    home_cleanup.temporary_directories(tmp_path / "gone", now=now)


def test_old_directories_of_sockets_without_a_listener_are_removed(directory: Path) -> None:
    dead, live, young, odd, empty = (directory / f"kiln-{number:016x}" for number in range(5))
    kept = []
    for path in (dead, live, young, odd, empty):
        path.mkdir()
    for path in (dead, live, young, odd):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.bind(str(path / "channel.sock"))
        made.listen()
        if path == live:
            kept.append(made)
        else:
            made.close()
    (odd / "file").touch()
    now = [age(path) for path in (dead, live, odd, empty)][-1]
    home_cleanup.socket_directories(directory, now=now)
    assert {path.name for path in directory.iterdir()} == {live.name, young.name, odd.name}
    assert (odd / "channel.sock").is_socket(), "nothing of it is touched"
    for made in kept:
        made.close()


def test_socket_of_another_program_is_not_connected_to(directory: Path) -> None:
    """The shim of a `kiln up` takes any client for the node of a new server."""
    theirs = directory / f"kiln-{7:016x}"
    theirs.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(theirs / "shim.sock"))
        listener.listen()
        listener.setblocking(False)
        home_cleanup.socket_directories(directory, now=age(theirs))
        with pytest.raises(BlockingIOError):
            listener.accept()
    home_cleanup.socket_directories(directory, now=age(theirs))
    assert (theirs / "shim.sock").is_socket()
