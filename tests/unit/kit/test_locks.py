"""One process has a lock; the file tells which, and its end gives the lock back."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from kilnwork.kit import locks

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


def test_no_file_is_no_lock(tmp_path: Path) -> None:
    assert not locks.is_locked(tmp_path / "none")
    assert locks.read_owner(tmp_path / "none") is None
