"""One server per data directory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kilnwork.controlplane import lock
from kilnwork.kit import errors, processes

_HOLD = """
import sys, time
from pathlib import Path
from kilnwork.controlplane import lock
lock.DirectoryLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_second_acquire_names_the_holder(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(errors.ConfigurationError, match=f"in use by process {process.pid} "):
            lock.DirectoryLock(tmp_path).acquire()
    finally:
        process.kill()
        process.communicate()


def test_lock_of_a_killed_holder_is_free(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.communicate()
    assert (tmp_path / "control.lock").read_text().strip() == str(process.pid)
    taken = lock.DirectoryLock(tmp_path)
    taken.acquire()
    taken.release()


def test_released_lock_can_be_acquired_again(tmp_path: Path) -> None:
    for _ in range(2):
        taken = lock.DirectoryLock(tmp_path)
        taken.acquire()
        assert lock.holder(tmp_path) == processes.identify(os.getpid())
        taken.release()
        assert lock.holder(tmp_path) is None


@pytest.mark.parametrize("content", ["", "{", str(os.getpid())], ids=["empty", "odd", "pid"])
def test_unlocked_file_has_no_holder(tmp_path: Path, content: str) -> None:
    (tmp_path / "control.lock").write_text(content)
    assert lock.holder(tmp_path) is None


def test_holder_is_the_process_that_acquired_the_lock(tmp_path: Path) -> None:
    held = lock.DirectoryLock(tmp_path)
    held.acquire()
    try:
        found = lock.holder(tmp_path)
        assert found is not None
        assert found.pid == os.getpid()
    finally:
        held.release()
    assert lock.holder(tmp_path) is None
