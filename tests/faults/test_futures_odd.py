"""Tasks, values and disks that misbehave have a defined effect, and the session continues."""

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import kilnwork as kiln
from kilnwork.data import errors as data_errors
from kilnwork.kit import processes
from support import fault_home, misbehaving_tasks, small_disks, waiting

pytestmark = [pytest.mark.faults, pytest.mark.timeout(90)]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Start a durable home with one slot; yield its directory."""
    directory = tmp_path / "home"
    with kiln.start(directory, slots=1):
        yield directory


def has_ended(pid: int) -> bool:
    found = processes.identify(pid)
    return found is None or not found.alive()


def is_dispatcher(pid: int) -> bool:
    try:
        return b"kilnwork.dispatch" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return False


def count_runs(notes: Path) -> int:
    """Return how often a task has noted that it ran."""
    return len(notes.read_text())


# tasks


@pytest.mark.parametrize(
    "leaving_task",
    [misbehaving_tasks.forks, misbehaving_tasks.daemonises],
    ids=lambda t: t.__name__,
)
def test_process_left_behind_by_a_task_ends_with_the_session(
    leaving_task: kiln.Task[[], int],
) -> None:
    with kiln.start(slots=1):
        pid = leaving_task.submit().result(timeout=30)
        assert misbehaving_tasks.double.submit(4).result(timeout=30) == 8
    waiting.wait_until(lambda: has_ended(pid), what="the process left behind has ended")


def test_cancelled_task_that_ignores_signals_is_killed_with_its_child(home: Path) -> None:
    path = home / "pids"
    future = misbehaving_tasks.clings.submit(str(path))
    waiting.wait_until(path.exists, what="it runs")
    pids = [int(word) for word in path.read_text().split()]
    future.cancel()
    with pytest.raises(kiln.Cancelled):
        future.result(timeout=30)
    # The task is Killed only after its processes are proved gone.
    assert [has_ended(pid) for pid in pids] == [True, True]
    assert misbehaving_tasks.double.submit(4).result(timeout=30) == 8


# arguments


def test_child_with_equal_arguments_is_found_despite_other_pickles(home: Path) -> None:
    pairs = [misbehaving_tasks.Pair(reverse=False), misbehaving_tasks.Pair(reverse=True)]
    assert pairs[0] == pairs[1]
    assert pickle.dumps(pairs[0]) != pickle.dumps(pairs[1])
    notes = home / "notes"
    assert misbehaving_tasks.dies_once.submit(str(notes)).result(timeout=60) == 1
    assert count_runs(notes) == 1


def test_child_with_other_json_arguments_is_a_new_task(home: Path) -> None:
    notes = home / "notes"
    future = misbehaving_tasks.dies_once_and_changes_its_mind.submit(str(notes))
    assert future.result(timeout=60) == [2, 2]
    assert count_runs(notes) == 2


# blobs


def blob_files(home: Path) -> list[Path]:
    files = [path for path in (home / "blobs").rglob("*") if path.is_file()]
    return sorted(files, key=lambda path: path.stat().st_mtime_ns)


def test_damaged_blob_raises_blob_damaged_and_is_not_used(home: Path) -> None:
    future = misbehaving_tasks.large.submit(7, 300_000)
    waiting.wait_until(future.done, what="it is over")
    (blob,) = (path for path in blob_files(home) if path.stat().st_size >= 300_000)
    blob.chmod(0o600)
    with blob.open("r+b") as file:
        file.seek(1000)
        file.write(b"\0\1\2\3")
    with pytest.raises(data_errors.BlobDamaged):
        future.result(timeout=30)
    error = misbehaving_tasks.length.submit(future).exception(timeout=60)
    assert error is not None
    assert "blob" in str(error).lower()
    assert misbehaving_tasks.double.submit(4).result(timeout=30) == 8


def test_missing_blob_raises_blob_missing(home: Path) -> None:
    future = misbehaving_tasks.large.submit(8, 300_000)
    waiting.wait_until(future.done, what="it is over")
    for blob in blob_files(home):
        if blob.stat().st_size >= 300_000:
            blob.unlink()
    with pytest.raises(data_errors.BlobMissing):
        future.result(timeout=30)


# the disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disks.mounted(tmp_path) as made:
        yield made


def test_full_disk_delays_calls_and_loses_none(disk: Path) -> None:
    ballast = disk / "ballast"
    with kiln.start(disk / "home", slots=2):
        assert misbehaving_tasks.double.submit(1).result(timeout=30) == 2
        small_disks.fill(ballast)
        # Free room in the journal's last page may take some of them; then none is accepted.
        futures = [misbehaving_tasks.double.submit(number) for number in range(2_000)]
        with pytest.raises(TimeoutError):
            futures[-1].result(timeout=1.5)
        ballast.unlink()
        assert [future.result(timeout=60) for future in futures] == list(range(0, 4_000, 2))
    with kiln.start(disk / "home", slots=2):
        assert kiln.future(futures[7].id).result(timeout=30) == 14


# homes without a directory


def test_killed_volatile_dispatcher_raises_dispatcher_lost(tmp_path: Path) -> None:
    with kiln.start(slots=1):
        [pid] = [pid for pid in processes.children(os.getpid()) if is_dispatcher(pid)]
        future = misbehaving_tasks.clings.submit(str(tmp_path / "pids"))
        waiting.wait_until((tmp_path / "pids").exists, what="it runs")
        os.kill(pid, 9)
        with pytest.raises(kiln.DispatcherLost):
            future.result(timeout=30)
    for word in (tmp_path / "pids").read_text().split():
        waiting.wait_until(lambda pid=int(word): has_ended(pid), what="the task's process is gone")  # type: ignore[misc]


def test_volatile_home_ends_when_its_driver_is_killed(tmp_path: Path) -> None:
    home = fault_home.FaultHome(tmp_path)
    home.start(str(tmp_path), "stuck", "volatile")
    try:
        waiting.wait_until(lambda: len(home.noted()) == 2, what="both run")
        assert home.driver is not None
        home.driver.kill()
        home.driver.wait()
        home.wait_until_gone()
    finally:
        home.destroy()
