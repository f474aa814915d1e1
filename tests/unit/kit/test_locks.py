"""One process has a lock; the file tells which, and its end gives the lock back."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from kilnwork.kit import locks
from support import file_descriptors

HOLD = """
import sys
from pathlib import Path
from kilnwork.kit import locks
assert locks.OwnerLock(Path(sys.argv[1])).take()
print("taken", flush=True)
sys.stdin.read()
"""


def test_lock_is_exclusive_and_released_at_the_end_of_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"taken\n"
        ours = locks.OwnerLock(path)
        assert not ours.take()
        assert not ours.held
        assert locks.read_owner(path) == other.pid
        assert locks.is_locked(path)
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert not locks.is_locked(path)
    assert locks.read_owner(path) == other.pid  # the file says it still
    assert ours.take()
    assert locks.read_owner(path) == os.getpid()


def test_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    lock = locks.OwnerLock(tmp_path / "lock")
    assert lock.take()
    assert lock.take()
    assert not locks.OwnerLock(lock.path).take()
    lock.release()
    lock.release()
    assert locks.read_owner(lock.path) is None
    assert locks.OwnerLock(lock.path).take()


def test_a_child_that_forgets_leaves_it_to_its_parent(tmp_path: Path) -> None:
    lock = locks.OwnerLock(tmp_path / "lock")
    assert lock.take()
    pid = os.fork()
    if not pid:
        lock.forget()
        os._exit(0)
    os.waitpid(pid, 0)
    assert locks.is_locked(lock.path)
    assert locks.read_owner(lock.path) == os.getpid()


def test_program_that_is_started_does_not_inherit_the_lock(tmp_path: Path) -> None:
    lock = locks.OwnerLock(tmp_path / "lock")
    assert lock.take()
    wait = "import sys; print('started', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", wait]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == b"started\n"
        lock.forget()
        assert not locks.is_locked(lock.path)


def test_lock_file_is_private_and_holds_only_the_pid(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch(0o600)
    path.write_text("1234567890123456789\n")
    lock = locks.OwnerLock(path)
    assert lock.take()
    assert path.read_text() == f"{os.getpid()}\n"
    new = locks.OwnerLock(tmp_path / "new")
    assert new.take()
    assert stat.S_IMODE(new.path.stat().st_mode) == 0o600


def test_refused_lock_leaves_no_descriptor_open(tmp_path: Path) -> None:
    lock = locks.OwnerLock(tmp_path / "lock")
    assert lock.take()
    other = locks.OwnerLock(lock.path)
    before = file_descriptors.open_descriptors()
    for _ in range(3):
        assert not other.take()
    assert file_descriptors.open_descriptors() == before


@pytest.mark.parametrize(
    ("text", "owner"), [("12\n", 12), (" 12 ", 12), ("", None), ("12 x", None), ("-1", None)]
)
def test_owner_is_the_only_number_in_the_file(tmp_path: Path, text: str, owner: int | None) -> None:
    path = tmp_path / "lock"
    path.write_text(text)
    assert locks.read_owner(path) == owner


def test_concurrent_check_of_a_lock_is_not_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)  # as another `is_locked` does
        assert not locks.is_locked(path)


def test_path_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        locks.is_locked(tmp_path)
    assert locks.read_owner(tmp_path) is None


def test_no_file_is_no_lock(tmp_path: Path) -> None:
    assert not locks.is_locked(tmp_path / "none")
    assert locks.read_owner(tmp_path / "none") is None
