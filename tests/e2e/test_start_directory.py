"""`kiln.start(DIRECTORY)`: tasks outlive drivers and dispatchers; drivers find them again."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import kilnwork as kiln
from kilnwork.dispatch.journal.sqlite import journal
from kilnwork.kit import data_directories, errors, processes
from kilnwork.sdk import durable_home, home_supervisor
from support import driver_program, waiting


@pytest.fixture
def directory(tmp_path: Path, mark: str) -> Iterator[Path]:
    """Yield a directory for a journal; its processes have `mark`, and its sockets are removed at
    the end.
    """
    path = tmp_path / "home"
    yield path
    waiting.wait_until(lambda: not processes.find_marked(mark), what="nothing is left")
    assert not data_directories.runtime_dir(path).exists()


@kiln.task
def double(number: int) -> int:
    return 2 * number


@kiln.task
def until(path: str) -> str:
    """Run until a file exists."""
    Path(f"{path}.begun").touch()
    while not Path(path).exists():
        time.sleep(0.02)
    return "went on"


def dispatcher(directory: Path) -> int:
    found = json.loads((directory / "endpoints.json").read_text())
    return int(found["dispatcher"]["pid"])


def worker(directory: Path) -> int:
    found = json.loads((directory / "endpoints.json").read_text())
    return int(found["worker"]["pid"])


def test_result_is_found_again_by_id(directory: Path) -> None:
    with kiln.start(directory, slots=1):
        future = double.submit(21)
        assert future.result(30) == 42
    assert directory.stat().st_mode & 0o777 == 0o700
    for name in ("token", "endpoints.json", "journal.db", "owner.lock"):
        assert (directory / name).stat().st_mode & 0o777 == 0o600, name
    with kiln.start(directory, slots=1):
        assert kiln.future(future.id).result(30) == 42


def test_driver_without_remaining_work_leaves_no_process(directory: Path, mark: str) -> None:
    with kiln.start(directory, slots=1):
        assert double.submit(1).result(30) == 2
    waiting.wait_until(lambda: not processes.find_marked(mark), what="all have ended")


def test_task_continues_without_its_driver(directory: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with kiln.start(directory, slots=1):
        future = until.submit(str(gate))
        waiting.wait_until(Path(f"{gate}.begun").exists, what="it runs")
        pid = dispatcher(directory)
    with kiln.start(directory, slots=1):
        assert dispatcher(directory) == pid
        assert not kiln.future(future.id).done()
        gate.touch()
        assert kiln.future(future.id).result(30) == "went on"


def test_processes_end_with_the_last_running_task(
    directory: Path, tmp_path: Path, mark: str
) -> None:
    gate = tmp_path / "gate"
    with kiln.start(directory, slots=1):
        future = until.submit(str(gate))
        waiting.wait_until(Path(f"{gate}.begun").exists, what="it runs")
    assert processes.find_marked(mark), "the task goes on"
    gate.touch()
    waiting.wait_until(lambda: not processes.find_marked(mark), what="all have ended")
    with kiln.start(directory, slots=1):
        assert kiln.future(future.id).result(30) == "went on"


def test_dispatcher_that_is_killed_is_started_again(directory: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with kiln.start(directory, slots=1):
        future = until.submit(str(gate))
        waiting.wait_until(Path(f"{gate}.begun").exists, what="it runs")
        pid = dispatcher(directory)
        os.kill(pid, signal.SIGKILL)
        waiting.wait_until(lambda: dispatcher(directory) != pid, what="another dispatcher")
        gate.touch()
        assert future.result(30) == "went on"
        assert double.submit(1).result(30) == 2


def test_worker_that_is_killed_is_started_again(directory: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with kiln.start(directory, slots=1):
        future = until.submit(str(gate))
        waiting.wait_until(Path(f"{gate}.begun").exists, what="it runs")
        pid = worker(directory)
        os.kill(pid, signal.SIGKILL)
        waiting.wait_until(lambda: worker(directory) != pid, what="another worker")
        gate.touch()
        assert future.result(30) == "went on"


def test_second_session_of_the_directory_is_a_guest(directory: Path) -> None:
    with kiln.start(directory, slots=1):
        pid = dispatcher(directory)
        with kiln.start(directory, slots=7), kiln.connect(directory):
            assert dispatcher(directory) == pid
            assert double.submit(2).result(30) == 4
        assert double.submit(3).result(30) == 6


def test_guest_takes_over_after_the_owner_has_ended(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_home, "TAKE_OVER_S", 0.05)
    owner = kiln.start(directory, slots=1)
    with kiln.start(directory, slots=1):
        owner.close()
        own = str(os.getpid())
        lock = directory / "owner.lock"
        waiting.wait_until(lambda: lock.read_text().strip() == own, what="it has the lock")
        os.kill(dispatcher(directory), signal.SIGKILL)
        assert double.submit(1).result(30) == 2


def test_connect_needs_a_serving_process(directory: Path, mark: str) -> None:
    with kiln.start(directory, slots=1):
        assert double.submit(1).result(30) == 2
    waiting.wait_until(lambda: not processes.find_marked(mark), what="all have ended")
    with pytest.raises(
        errors.ConfigurationError, match=r"no process serves .* any more: kiln\.start"
    ):
        kiln.connect(directory)
    with pytest.raises(errors.ConfigurationError, match="no process has served"):
        kiln.connect(directory.parent)


def test_home_has_one_namespace_and_one_cluster(directory: Path) -> None:
    with kiln.start(directory, slots=1):
        assert double.submit(1).result(30) == 2  # its worker is connected, and asked to leave
        with pytest.raises(errors.ConfigurationError, match="default with cluster default"):
            kiln.connect(directory, namespace="other")


def test_directory_of_a_server_is_refused(tmp_path: Path) -> None:
    (tmp_path / "control.db").touch()
    with pytest.raises(errors.ConfigurationError, match=r"`kiln up`: use kiln\.connect"):
        kiln.start(tmp_path)


def test_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.ConfigurationError, match="cannot be used"):
        kiln.start(tmp_path / "file" / "home")


def test_directory_served_by_another_process_is_refused(directory: Path, tmp_path: Path) -> None:
    """Also if the files that name its process are gone: its socket is not removed."""
    with kiln.start(directory, slots=1):
        pid = dispatcher(directory)
        for name in ("owner.lock", "endpoints.json"):
            (directory / name).rename(tmp_path / name)
        with pytest.raises(errors.ConfigurationError, match=f"in use by process {pid}"):
            kiln.start(directory, slots=1)
        for name in ("owner.lock", "endpoints.json"):
            (tmp_path / name).rename(directory / name)
        assert double.submit(1).result(30) == 2


def test_journal_open_in_another_process_is_refused(directory: Path) -> None:
    directory.mkdir()
    held = journal.Journal(directory / "journal.db")
    held.open()
    try:
        with pytest.raises(errors.KilnError, match=f"in use by process {os.getpid()}"):
            kiln.start(directory, slots=1)
    finally:
        held.close()


DRIVER = """
    import sys, time
    from pathlib import Path
    import kilnwork as kiln

    @kiln.task
    def until(path):
        Path(f"{path}.begun").touch()
        while not Path(path).exists():
            time.sleep(0.02)
        return "went on"

    if __name__ == "__main__":
        kiln.start(sys.argv[1], slots=2)
        print(until.submit(sys.argv[2]).id, flush=True)
        time.sleep(60)
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[driver_program.Program]:
    made = driver_program.Program(tmp_path, DRIVER)
    yield made
    made.destroy()


def test_processes_of_a_killed_driver_are_adopted(
    program: driver_program.Program, directory: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    program.start(str(directory), str(gate))
    task = program.line()
    waiting.wait_until(Path(f"{gate}.begun").exists, what="it runs")
    pids = dispatcher(directory), worker(directory)
    program.kill()
    with kiln.start(directory, slots=2):
        assert (dispatcher(directory), worker(directory)) == pids
        gate.touch()
        assert kiln.future(task).result(30) == "went on"
    program.wait_gone()


def test_unrecorded_dispatcher_is_adopted(
    program: driver_program.Program, directory: Path, tmp_path: Path
) -> None:
    """Its driver was killed just after starting it in the place of an ended one."""
    gate = tmp_path / "gate"
    program.start(str(directory), str(gate))
    task = program.line()
    waiting.wait_until(Path(f"{gate}.begun").exists, what="it runs")
    pid, file = dispatcher(directory), directory / "endpoints.json"
    program.kill()
    written = json.loads(file.read_text())
    written["dispatcher"]["started"] -= 1
    file.write_text(json.dumps(written))
    with kiln.start(directory, slots=2):
        assert dispatcher(directory) == pid
        gate.touch()
        assert kiln.future(task).result(30) == "went on"
    program.wait_gone()


def test_dispatcher_without_driver_and_work_ends(
    program: driver_program.Program, directory: Path, tmp_path: Path
) -> None:
    program.path.write_text(
        program.path.read_text().replace(
            "import kilnwork as kiln",
            "import kilnwork as kiln\nfrom kilnwork.sdk import home_supervisor\n"
            "home_supervisor.IDLE_S = 0.2",
        )
    )
    gate = tmp_path / "gate"
    gate.touch()
    program.start(str(directory), str(gate))
    program.line()
    waiting.wait_until(Path(f"{gate}.begun").exists, what="the worker is connected")
    program.kill()  # a worker that the dispatcher does not know stays for a minute
    program.wait_gone()
    assert home_supervisor.IDLE_S == 60
