"""`retry --failed`: failed tasks run again with their dependents, and succeeded ones are reused.

Attempts are counted in the journal on disk.
"""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import kilnwork as kiln
from kilnwork.cli import main
from kilnwork.kit import errors, processes
from support import waiting

WIDE = 10_000


@pytest.fixture
def directory(tmp_path: Path, mark: str) -> Iterator[Path]:
    yield tmp_path / "home"
    waiting.wait_until(lambda: not processes.find_marked(mark), what="nothing is left")


@kiln.task
def leaf(number: int, gate: str) -> int:
    """Fail for number 7 until the gate is open."""
    if number == 7 and not Path(gate).exists():
        raise ValueError("bad leaf")
    return number


@kiln.task
def add(first: int, second: int) -> int:
    return first + second


@kiln.task
def total(first: int, count: int, gate: str) -> int:
    """Return the sum of the leaves, each of which is a child."""
    return sum(kiln.gather(*leaf.map(range(first, first + count), [gate] * count)).result())


@kiln.task
def grand_total(parents: int, count: int, gate: str) -> int:
    found = [total.submit(number * count, count, gate) for number in range(parents)]
    return sum(kiln.gather(*found).result())


@kiln.task
def delegated(gate: str) -> "kiln.Future[int]":
    return leaf.submit(7, gate)


def attempts(directory: Path) -> Counter[str]:
    """Return how many runs of each function have started; each of these tasks has at most one
    attempt.
    """
    connection = apsw.Connection(str(directory / "journal.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        rows = connection.execute(
            "SELECT json_extract(CAST(p.spec AS TEXT), '$.call.function'), count(t.started)"
            " FROM task t JOIN template p ON p.template = t.template GROUP BY 1"
        ).fetchall()
    finally:
        connection.close()
    return Counter({str(name).rpartition(":")[2]: int(str(count)) for name, count in rows})


def counted(directory: Path, before: Counter[str]) -> dict[str, int]:
    return dict(attempts(directory) - before)


@pytest.mark.timeout(400)
def test_only_the_failed_one_of_ten_thousand_children_runs_again(
    directory: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    with kiln.start(directory, slots=2):
        future = grand_total.submit(10, WIDE // 10, str(gate))
        assert isinstance(future.exception(120), ValueError)
        waiting.wait_until(
            lambda: attempts(directory)["leaf"] == WIDE,
            what="the others have ended too",
            timeout_s=120.0,
        )
        before = attempts(directory)
        gate.touch()
        assert future.retry().result(120) == sum(range(WIDE))
        assert counted(directory, before) == {"leaf": 1, "total": 1, "grand_total": 1}


@pytest.mark.timeout(400)
def test_only_the_path_of_the_failed_input_runs_again(directory: Path, tmp_path: Path) -> None:
    """A tree of sums over 5,000 leaves, by futures as arguments: the path to the root runs again,
    whichever task of it is named."""
    gate, count = tmp_path / "gate", WIDE // 2
    with kiln.start(directory, slots=2):
        level: list[kiln.Future[int]] = list(leaf.map(range(count), [str(gate)] * count))
        bad, height = level[7], 0
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=False)
            level = [add.submit(one, two) for one, two in pairs] + level[len(level) & ~1 :]
            height += 1
        assert isinstance(level[0].exception(120), kiln.InputFailed)
        before = attempts(directory)
        gate.touch()
        assert bad.retry().result(60) == 7
        assert kiln.future(level[0].id).result(60) == sum(range(count))
        assert counted(directory, before) == {"leaf": 1, "add": height}


@pytest.mark.parametrize("start", [leaf, total])
def test_retry_works_in_a_volatile_home(tmp_path: Path, start: "kiln.Task[..., int]") -> None:
    gate = tmp_path / "gate"
    with kiln.start(slots=2):
        future = total.submit(0, 20, str(gate)) if start is total else leaf.submit(7, str(gate))
        after = add.submit(future, 1)
        assert isinstance(future.exception(60), ValueError)
        gate.touch()
        expected = sum(range(20)) if start is total else 7
        assert after.retry().result(60) == expected + 1
        assert kiln.future(future.id).result(60) == expected


def test_delegate_runs_again(directory: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with kiln.start(directory, slots=1):
        future = delegated.submit(str(gate))
        assert isinstance(future.exception(60), ValueError)
        before = attempts(directory)
        gate.touch()
        assert future.retry().result(60) == 7
        assert counted(directory, before) == {"leaf": 1, "delegated": 1}


def test_call_with_a_key_runs_again_in_the_next_session(directory: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"

    def program() -> "kiln.Future[int]":
        one = total.options(key="sum").submit(0, 20, str(gate))
        return add.options(key="one more").submit(one, 1)

    with kiln.start(directory, slots=2, retry_failed=True):
        assert isinstance(program().exception(60), kiln.InputFailed)
        assert isinstance(program().exception(60), kiln.InputFailed)
        waiting.wait_until(lambda: attempts(directory)["leaf"] == 20, what="the others have ended")
        before = attempts(directory)
        assert before["total"] == 1, "what failed in this session has failed"
    gate.touch()
    with kiln.start(directory, slots=2):
        assert isinstance(program().exception(60), kiln.InputFailed)
        assert attempts(directory) == before, "it stays failed unless asked"
    with kiln.start(directory, slots=2, retry_failed=True):
        assert program().result(60) == sum(range(20)) + 1
        assert counted(directory, before) == {"leaf": 1, "total": 1, "add": 1}


def test_killed_dispatcher_continues_the_retry(directory: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with kiln.start(directory, slots=2):
        future = grand_total.submit(5, 40, str(gate))
        assert isinstance(future.exception(60), ValueError)
        waiting.wait_until(lambda: attempts(directory)["leaf"] == 200, what="the others have ended")
        before = attempts(directory)
        gate.touch()
        again = future.retry()
        os.kill(_dispatcher(directory), signal.SIGKILL)
        assert again.result(60) == sum(range(200))
        ran = counted(directory, before)
    assert ran["leaf"] == 1, "losses of a dispatcher that was away repeat no success"


def _dispatcher(directory: Path) -> int:
    return int(json.loads((directory / "endpoints.json").read_text())["dispatcher"]["pid"])


def test_impossible_retry_is_refused(directory: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with kiln.start(directory, slots=1):
        well = leaf.submit(1, str(gate))
        assert well.result(30) == 1
        with pytest.raises(errors.ConfigurationError, match="has succeeded"):
            well.retry()
        assert kiln.retry(well.id, failed=False, force=True).result(30) == 1
        with pytest.raises(errors.ConfigurationError, match="does not know"):
            kiln.retry("01a20fd1-9066-723a-800b-0b6e0265b8d9")


def test_gather_runs_its_failed_calls_again(directory: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with kiln.start(directory, slots=2):
        both = kiln.gather(leaf.submit(7, str(gate)), leaf.submit(1, str(gate)))
        assert isinstance(both.exception(30), ValueError)
        gate.touch()
        assert both.retry().result(30) == [7, 1]


def test_command_line_reaches_a_directory(
    directory: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also while a process serves it."""
    gate = tmp_path / "gate"

    def run(*words: str) -> str:
        capfd.readouterr()
        assert main.main([words[0], "--data", str(directory), *words[1:]]) == 0, (
            capfd.readouterr().err
        )
        return capfd.readouterr().out

    with kiln.start(directory, slots=1):
        future = total.submit(0, 20, str(gate))
        assert isinstance(future.exception(60), ValueError)
        one = add.submit(future, 1).id
    assert len(run("tasks", "--state", "Failed", "-o", "name").split()) == 3
    assert "ValueError: bad leaf" in run("why", one)
    assert run("logs", future.id) == ""
    gate.touch()
    assert "as run 2" in run("retry", one, "--failed", "--wait")
    assert run("result", one) == "191\n"
    assert run("tasks", "--state", "Failed") == ""
    assert main.main(["tasks", "-n", "other", "--data", str(directory)]) == 4
    assert 'namespace "other" does not exist: a kiln.start()' in capfd.readouterr().err
    with kiln.start(directory, slots=1):
        gate.unlink()
        other = leaf.submit(7, str(gate))
        assert isinstance(other.exception(60), ValueError)
        gate.touch()
        assert "as run 2" in run("retry", other.id, "--failed", "--wait")
        assert kiln.future(other.id).result(60) == 7
    assert main.main(["why", "--data", str(tmp_path / "nowhere"), "x"]) == 4


def test_task_retries_its_children(directory: Path, tmp_path: Path) -> None:
    with kiln.start(directory, slots=1):
        assert tries_again.submit(str(tmp_path / "gate")).result(60) == 7


@kiln.task
def tries_again(gate: str) -> int:
    first = leaf.submit(7, gate)
    assert first.exception() is not None
    Path(gate).touch()
    return first.retry().result()
