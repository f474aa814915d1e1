"""docs/how-to/use-notebooks.md in a real Jupyter kernel: its cells in order, with their outputs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.kit import ids, processes
from support import pages, waiting

PAGE = pages.DOCS / "how-to" / "use-notebooks.md"
MARKER = "# cell\n"


def cells() -> Iterator[tuple[str, str | None]]:
    """Yield the cells of the page, each with the output that is stated below it."""
    cell: str | None = None
    for language, body in pages.steps(PAGE.read_text()):
        if cell is not None:
            yield cell, body.strip() if language == "text" else None
        cell = body.removeprefix(MARKER) if language == "python" else None
        assert language != "python" or body.startswith(MARKER)
    if cell is not None:
        yield cell, None


def notebook(sources: list[str]) -> dict[str, Any]:
    """Return a notebook of code cells, in the format of .ipynb files (nbformat 4.5)."""
    made: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": f"cell-{number}",
            "source": source,
            "outputs": [],
            "metadata": {},
            "execution_count": None,
        }
        for number, source in enumerate(sources)
    ]
    return {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def output(cell: dict[str, Any]) -> str:
    """Return what a reader sees below a cell: printed text, then its value."""
    printed = ["".join(each.get("text", [])) for each in cell["outputs"]]
    values = ["".join(each["data"]["text/plain"]) for each in cell["outputs"] if "data" in each]
    return "".join([*printed, *values]).strip()


@pytest.mark.timeout(150)
def test_every_cell_gives_the_documented_output(tmp_path: Path) -> None:
    written = list(cells())
    assert sum(stated is not None for _, stated in written) >= 7
    path = tmp_path / "page.ipynb"
    path.write_text(json.dumps(notebook([source for source, _ in written])))
    mark = f"KILN_TEST_MARK={ids.new_uid()}"
    environment = {**os.environ, **dict([mark.split("=")]), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "jupyter", "execute", "--inplace", "--timeout", "60", str(path)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    executed = json.loads(path.read_text())["cells"]
    for (source, stated), cell in zip(written, executed, strict=True):
        assert stated is None or output(cell) == stated, source
    waiting.wait_until(
        lambda: not processes.find_members(None, marker=mark), what="all processes have ended"
    )
