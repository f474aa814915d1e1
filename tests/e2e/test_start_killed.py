"""Drivers of a directory that are killed at each step of their start: the next one takes over."""

import operator
import os
import signal
import time
from pathlib import Path

import pytest

import kilnwork as kiln
from kilnwork.kit import data_directories, database_loss_check, processes
from support import driver_program, waiting

PROGRAM = """
    import os, signal, sys
    from pathlib import Path
    import kilnwork as kiln
    from kilnwork.kit import locks, data_directories
    from kilnwork.endpoints import endpoint_files
    from kilnwork.sdk import child_processes, driver_session, durable_home, home_supervisor

    STEPS = {
        "lock": (locks.OwnerLock, "take"),
        "blobs": (Path, "mkdir"),
        "token": (home_supervisor, "write_token"),
        "socket": (home_supervisor.Home, "_listen"),
        "spawn": (child_processes, "start"),
        "write": (endpoint_files, "write"),
        "link": (driver_session.Driver, "open"),
    }

    def dying(call, left, after):
        def wrapped(*args, **kwargs):
            left[0] -= 1
            if left[0] == 0 and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*args, **kwargs)
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result
        return wrapped

    directory, step, count, when = sys.argv[1:]
    place, name = STEPS[step]
    setattr(place, name, dying(getattr(place, name), [int(count)], when == "after"))
    if __name__ == "__main__":
        kiln.start(directory, slots=1)
        os.kill(os.getpid(), signal.SIGKILL)
"""

SOON_S = 20.0
"""A dispatcher stays for 60 s without a driver; a busy machine needs some seconds to start one."""


add = kiln.task(operator.add)


def killed_driver(tmp_path: Path, directory: Path, *step: str) -> None:
    """Run a driver until it kills itself."""
    program = driver_program.Program(tmp_path, PROGRAM)
    program.mark = f"KILN_TEST_MARK={os.environ['KILN_TEST_MARK']}"
    program.start(str(directory), *step)
    assert program.process is not None
    program.process.communicate(timeout=60)
    assert program.process.returncode == -signal.SIGKILL


def running(mark: str, module: str) -> list[int]:
    """Return the processes of this test that were started as `module`, without their forks."""
    found = {}
    for pid in processes.find_marked(mark):
        try:
            if module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found[pid] = processes.identify(pid)
        except OSError:
            continue
    forked = {child for pid in found for child in processes.children(pid)}
    return sorted(found.keys() - forked)


def take_over(directory: Path, mark: str) -> None:
    """Check what every driver after a killed one finds: one working home, soon."""
    began = time.monotonic()
    with kiln.start(directory, slots=1):
        assert add.submit(40, 2).result(30) == 42
        assert time.monotonic() - began < SOON_S
        assert len(running(mark, "kilnwork.dispatch")) == 1
        waiting.wait_until(
            lambda: len(running(mark, "kilnwork.worker")) == 1, what="there is one worker"
        )
    waiting.wait_until(lambda: not processes.find_marked(mark), what="nothing is left")
    assert not data_directories.runtime_dir(directory).exists()


@pytest.mark.parametrize(
    "step",
    [
        f"{name} {count} {when}"
        for name, counts in (
            ("lock", (1,)),
            ("token", (1,)),
            ("socket", (1,)),
            ("spawn", (1, 2)),
            ("write", (1, 2)),
            ("link", (1,)),
        )
        for count in counts
        for when in ("before", "after")
    ],
)
def test_next_driver_takes_over_after_a_kill(tmp_path: Path, mark: str, step: str) -> None:
    directory = tmp_path / "home"
    killed_driver(tmp_path, directory, *step.split())
    take_over(directory, mark)


@pytest.mark.parametrize("step", ["spawn 1 after", "write 2 before", "write 2 after"])
def test_next_driver_takes_over_processes_that_are_starting(
    tmp_path: Path, mark: str, step: str
) -> None:
    """They are found by their identity, not by how far they have started."""
    directory = tmp_path / "home"
    killed_driver(tmp_path, directory, *step.split())
    made = database_loss_check.marker_path(directory / "journal.db")
    waiting.wait_until(made.exists, what="the dispatcher has the journal")
    take_over(directory, mark)


def test_successively_killed_drivers_leave_one_home(tmp_path: Path, mark: str) -> None:
    directory = tmp_path / "home"
    for step in ("spawn 1 after", "spawn 1 after", "spawn 2 after", "write 1 after"):
        killed_driver(tmp_path, directory, *step.split())
    take_over(directory, mark)
