"""Reused results: across programs, inside tasks, no longer than allowed, and visible."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kilnwork as kiln
from support import up_server as up_support

pytestmark = pytest.mark.timeout(120)


def _ran(log: str, what: object) -> None:
    with Path(log).open("a") as file:
        file.write(f"{what}\n")


@kiln.task(cache="7d")
def double(number: int, log: str) -> int:
    _ran(log, number)
    return 2 * number


@kiln.task(cache=3600)
def large(size: int, log: str) -> bytes:
    _ran(log, size)
    return b"x" * size


@kiln.task
def parent(log: str) -> list[int]:
    return [future.result() for future in double.map(range(5), [log] * 5)]


@kiln.task(cache="1h")
def fails(log: str) -> None:
    _ran(log, "fails")
    raise ValueError("no")


@kiln.task
def add(left: int, right: int) -> int:
    return left + right


def _lines(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def test_second_program_gets_the_results_of_the_first(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with kiln.start(tmp_path / "journal", slots=2):
        assert kiln.gather(*double.map(range(20), [str(log)] * 20)).result(60) == [
            2 * n for n in range(20)
        ]
        size = 1_000_000
        assert len(large.submit(size, str(log)).result(30)) == size
    assert len(_lines(log)) == 21
    with kiln.start(tmp_path / "journal", slots=2):
        futures = double.map(range(21), [str(log)] * 21)
        assert kiln.gather(*futures).result(60) == [2 * n for n in range(21)]
        assert large.submit(size, str(log)).result(30) == b"x" * size
        assert add.submit(double.submit(3, str(log)), 1).result(30) == 7
    assert _lines(log)[21:] == ["20"]


def test_children_find_results_of_other_parents(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with kiln.start(slots=2):
        assert parent.submit(str(log)).result(30) == [0, 2, 4, 6, 8]
        assert parent.submit(str(log)).result(30) == [0, 2, 4, 6, 8]
    assert sorted(_lines(log)) == ["0", "1", "2", "3", "4"]


def test_only_a_success_of_the_same_call_within_its_age_is_used(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with kiln.start(tmp_path / "journal", slots=1):
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                fails.submit(str(log)).result(30)
        assert _lines(log) == ["fails"] * 2
        assert double.submit(1, str(log)).result(30) == 2
        assert double.options(cache=None).submit(1, str(log)).result(30) == 2
        assert _lines(log).count("1") == 2
        time.sleep(0.2)
        assert double.options(cache=0.1).submit(1, str(log)).result(30) == 2
        assert _lines(log).count("1") == 3
        assert double.submit(1, str(log)).result(30) == 2
        assert double.submit(2, str(log)).result(30) == 4
        assert _lines(log).count("1") == 3
        with pytest.raises(TypeError):
            double.submit(1).result(30)


PROGRAM = """
import sys
import kilnwork as kiln
{more}
@kiln.task(cache="1d")
def work(number: int, log: str) -> int:
    with open(log, "a") as file:
        file.write("x\\n")
    return number {body}

if __name__ == "__main__":
    with kiln.start(sys.argv[1], slots=1):
        print(work.submit(5, sys.argv[2]).result(60))
"""


def test_changed_body_is_another_function_in_any_place(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = tmp_path / "program.py"

    def run(body: str, more: str = "") -> str:
        program.write_text(PROGRAM.format(body=body, more=more))
        argv = [sys.executable, str(program), str(tmp_path / "journal"), str(log)]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    assert run("+ 1") == "6"
    assert run("+ 1", more="# moved\n\n") == "6"
    assert len(_lines(log)) == 1
    assert run("+ 2") == "7"
    assert run("+ 1") == "6"
    assert len(_lines(log)) == 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[up_support.UpServer]:
    with up_support.serving(tmp_path_factory.mktemp("up"), slots=2) as made:
        yield made


def test_reused_result_is_marked(server: up_support.UpServer, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    with kiln.connect(server.data):
        first = double.submit(1, log)
        first.result(60)
        second = double.submit(1, log)
        assert second.result(60) == 2
        assert second.id != first.id
    said = server.kiln("why", second.id).stdout
    assert f"it has the result of task {first.id}, which ended " in said
    assert "Cached" in server.kiln("get", "tasks", "--spawned").stdout
    assert server.kiln("result", second.id).stdout.strip() == "2"


def test_deleted_result_is_not_used(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with kiln.start(tmp_path / "journal", slots=1):
        assert double.submit(1, str(log)).result(30) == 2
    file = sqlite3.connect(tmp_path / "journal" / "journal.db")
    assert file.execute("SELECT count(*) FROM cached_result").fetchone() == (1,)
    file.execute("DELETE FROM task")
    file.commit()
    assert file.execute("SELECT count(*) FROM cached_result").fetchone() == (0,)
    file.close()
    with kiln.start(tmp_path / "journal", slots=1):
        assert double.submit(1, str(log)).result(30) == 2
    assert len(_lines(log)) == 2


@pytest.mark.parametrize("age", ["7", "7w", "-1d", "d", 0, -1, True, "1.5h", "०d"])
def test_invalid_age_is_rejected(age: Any) -> None:
    with pytest.raises(kiln.BadOption, match="cache="):
        kiln.task(cache=age)(lambda: None)


def test_generator_results_are_not_reused() -> None:
    @kiln.task(cache="1d")
    def many() -> Iterator[int]:
        yield 1

    with kiln.start(slots=1), pytest.raises(kiln.BadOption, match="return a list"):
        many.submit()
