"""What mypy and pyright make of programs that use kilnwork."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "support" / "typed_program.py"
ROOT = Path(__file__).parents[3]

WRONG = """\
import kilnwork as kiln

@kiln.task(retries=3)
def count(shard: str) -> int:
    return len(shard)

@kiln.task(retries="many")  # wrong
def first() -> None: ...

@kiln.task(retry=3)  # wrong
def second() -> None: ...

@kiln.job(schedule="@daily", parallel=3)
def indexed(index: int) -> int:
    return index

@kiln.job(schedule="@daily", concurrency="Sometimes")  # wrong
def third() -> None: ...

@kiln.job(shedule="@daily")  # wrong
def fourth() -> None: ...

@kiln.job
def report(day: str = "") -> str:
    return day

def main() -> None:
    report.submit(dya="")  # wrong
    report.submit(3)  # wrong
    length: int = report.submit("a").result()  # wrong
    report.options(retries=3)  # wrong
    indexed.submit()
    kiln.job("report", retries=3)  # wrong
    count(3)  # wrong
    number: str = count.submit("a").result()  # wrong
    count.options(keys="k")  # wrong
    count.map("ab", max_in_flight="2")  # wrong
    count.submitt("a")  # wrong
    fine: int = count.submit(count.submit("a")).result()
"""


def marked() -> list[int]:
    return [n for n, line in enumerate(WRONG.splitlines(), 1) if line.endswith("# wrong")]


def mypy(file: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return [line for line in done.stdout.splitlines() if ": error:" in line]


def lines(errors: list[str]) -> list[int]:
    return sorted({int(n) for line in errors for n in re.findall(r"wrong\.py:(\d+)", line)})


@pytest.mark.timeout(300)
def test_mypy_reports_exactly_the_expected_errors(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    found = mypy(file)
    assert lines(found) == marked(), found


@pytest.mark.timeout(300)
@pytest.mark.skipif(not shutil.which("pyright"), reason="pyright is not on PATH")
def test_pyright_agrees(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    command = ["pyright", "--pythonpath", sys.executable, str(PROGRAM), str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if " - error:" in line]
    assert [line for line in errors if PROGRAM.name in line] == []
    assert lines(errors) == marked(), done.stdout
