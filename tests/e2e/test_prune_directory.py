"""`kiln prune --data DIRECTORY`: finished tasks in the directory of a `kiln.start(DIRECTORY)`."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import kilnwork as kiln
from kilnwork.cli import main
from kilnwork.kit import processes
from support import waiting


@kiln.task
def double(number: int) -> int:
    return 2 * number


@pytest.fixture
def directory(tmp_path: Path, mark: str) -> Iterator[Path]:
    yield tmp_path / "home"
    waiting.wait_until(lambda: not processes.find_marked(mark), what="nothing is left")


def make_older(directory: Path) -> None:
    """Set the end of finished tasks an hour back: nothing is pruned within its first minute."""
    connection = apsw.Connection(str(directory / "journal.db"))
    connection.execute("UPDATE task SET created = created - 3600, finished = finished - 3600")
    connection.close()


def prune(capfd: pytest.CaptureFixture[str], directory: Path, *words: str) -> str:
    capfd.readouterr()
    code = main.main(["prune", "--data", str(directory), *words])
    output = capfd.readouterr()
    assert code == 0, output.err
    return output.out


def left(capfd: pytest.CaptureFixture[str], directory: Path) -> list[str]:
    capfd.readouterr()
    assert main.main(["tasks", "--data", str(directory), "-o", "name"]) == 0
    return capfd.readouterr().out.split()


def test_directory_that_no_process_serves_is_pruned(
    directory: Path, mark: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with kiln.start(directory, slots=1):
        futures = double.map(range(3))
        assert kiln.gather(*futures).result(60) == [0, 2, 4]
        keyed = double.options(key="kept").submit(9)
        assert keyed.result(60) == 18
    waiting.wait_until(lambda: not processes.find_marked(mark), what="all have ended")
    make_older(directory)
    assert prune(capfd, directory, "--keep", "0", "--dry-run").startswith("3 tasks would be")
    assert len(left(capfd, directory)) == 4
    assert prune(capfd, directory, "--older-than", "30m").startswith("3 tasks forgotten")
    assert left(capfd, directory) == [keyed.id]
    assert prune(capfd, directory, "--older-than", "30m", "--keyed", "-A").startswith("1 tasks")
    assert left(capfd, directory) == []


def test_directory_is_pruned_while_a_program_has_it(
    directory: Path, mark: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with kiln.start(directory, slots=1):
        assert double.submit(1).result(60) == 2
    waiting.wait_until(lambda: not processes.find_marked(mark), what="all have ended")
    make_older(directory)
    with kiln.start(directory, slots=1):
        young = double.submit(2)
        assert young.result(60) == 4
        assert prune(capfd, directory, "--keep", "0").startswith("1 tasks forgotten")
        assert left(capfd, directory) == [young.id]
        assert double.submit(3).result(60) == 6
