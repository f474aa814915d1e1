"""Cancelling a task with and without its children."""

import time
from pathlib import Path

import pytest

import kilnwork as kiln
from support import waiting


@kiln.task
def until(path: str) -> str:
    while not Path(path).exists():
        time.sleep(0.01)
    return "went on"


@kiln.task
def spawn(path: str, note: str) -> None:
    child = until.submit(path)
    Path(note).write_text(child.id)
    time.sleep(60)


@pytest.mark.parametrize("recursive", [True, False])
def test_children_are_cancelled_by_default(tmp_path: Path, *, recursive: bool) -> None:
    gate, note = tmp_path / "gate", tmp_path / "note"
    with kiln.start(slots=2):
        parent = spawn.submit(str(gate), str(note))
        waiting.wait_until(lambda: note.exists() and note.read_text(), what="it has a child")
        child = kiln.future(note.read_text())
        assert parent.cancel(recursive=recursive)
        with pytest.raises(kiln.Cancelled):
            parent.result(30)
        if recursive:
            with pytest.raises(kiln.Cancelled):
                child.result(30)
        else:
            gate.touch()
            assert child.result(30) == "went on"
