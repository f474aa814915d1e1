"""`files.map` with real slots: killed ones, files that change, and memory."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

import kilnwork as kiln
from kilnwork import files
from kilnwork.data import errors as data_errors
from support import waiting

LINES = 2_000


def numbers(path: Path) -> None:
    path.write_text("".join(f'{{"id": {number}}}\n' for number in range(LINES)))


def dies_once(record: dict[str, Any]) -> int:
    """Kill the slot in the middle of the file, once."""
    note = Path(os.environ["KILN_TEST_NOTE"])
    if record["id"] == LINES // 2 and not note.exists():
        note.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return int(record["id"])


def test_slot_that_is_killed_leaves_no_gap(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("KILN_TEST_NOTE", str(tmp_path / "note"))
    numbers(tmp_path / "in.jsonl")
    with kiln.start(slots=2):
        mapped = files.map(tmp_path / "in.jsonl", dies_once, items_per_part=100)
        assert list(mapped) == list(range(LINES))
    assert (tmp_path / "note").exists()


def wait_for(record: dict[str, Any]) -> int:
    """Hold the part until the gate file exists."""
    gate = Path(os.environ["KILN_TEST_NOTE"])
    waiting.wait_until(gate.exists, what="the gate opens")
    return int(record["id"])


@pytest.mark.filterwarnings("ignore:calls of this session that are not over:RuntimeWarning")
def test_mapped_content_is_the_indexed_content(tmp_path: Path, monkeypatch: Any) -> None:
    """A file that is overwritten in the meantime causes an error, never another file's results."""
    gate, path = tmp_path / "gate", tmp_path / "in.jsonl"
    monkeypatch.setenv("KILN_TEST_NOTE", str(gate))
    numbers(path)
    with kiln.start(slots=1):
        mapped = files.map(path, wait_for, items_per_part=100, retries=0)
        path.write_text(path.read_text().replace('"id": 1', '"id": 7'))
        gate.touch()
        seen: list[int] = []
        try:
            seen.extend(mapped)
        except (data_errors.FileChanged, data_errors.InputChanged) as error:
            assert str(path) in str(error) or "part" in str(error)  # noqa: PT017
        else:
            raise AssertionError("a file that changed was mapped")
    assert seen == list(range(len(seen)))
