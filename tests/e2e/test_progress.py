"""`progress=True` in a whole program: in a terminal, in a pipe, in a notebook."""

import json
import os
import subprocess
import sys
from pathlib import Path

from support import terminal

PROGRAM = """
import time
import kilnwork as kiln

@kiln.task
def leaf(n: int) -> int:
    time.sleep(0.05)
    if n == 3:
        raise ValueError("bad leaf")
    return n

with kiln.start(slots=2):
    made = leaf.map(range(10), progress=True)
    kiln.gather(*made, return_exceptions=True).result()
    assert len(list(kiln.as_completed(made, progress=True))) == 10
    assert kiln.gather(leaf.submit(1), leaf.submit(2), progress=True).result() == [1, 2]
print("over")
"""


def test_terminal_shows_progress(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    shown = terminal.Terminal([sys.executable, str(program)], dict(os.environ))
    assert shown.end() == 0
    assert "leaf failed: ValueError: bad leaf (" in shown.shown
    for line in ("leaf  [", "as_completed  [", "gather  ["):
        assert f"{line}##########] 100%" in shown.shown
    assert "1 failed" in shown.shown


def test_pipe_shows_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")


def test_notebook_shows_progress(tmp_path: Path) -> None:
    cell: dict[str, object] = {
        "cell_type": "code",
        "id": "one",
        "metadata": {},
        "source": PROGRAM,
        "outputs": [],
    }
    cell["execution_count"] = None
    path = tmp_path / "page.ipynb"
    document = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}
    path.write_text(json.dumps(document))
    command = [sys.executable, "-m", "jupyter", "execute", "--inplace", "--timeout", "60"]
    done = subprocess.run(
        [*command, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [executed] = json.loads(path.read_text())["cells"]
    said = "".join("".join(each.get("text", [])) for each in executed["outputs"])
    assert "leaf failed: ValueError: bad leaf" in said
    assert "10 of 10" in said
