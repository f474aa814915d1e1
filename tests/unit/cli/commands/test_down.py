"""`kiln down`: only ever signals a server of ours."""

import os
from pathlib import Path

import pytest

from kilnwork.cli import main
from kilnwork.cli.commands import down
from kilnwork.controlplane import lock


@pytest.mark.parametrize("content", ["", "{", str(os.getpid())], ids=["empty", "odd", "pid"])
def test_a_lock_file_that_nobody_holds(tmp_path: Path, content: str) -> None:
    (tmp_path / "control.lock").write_text(content)
    assert down.running(tmp_path) is None


def test_the_holder_of_the_lock_is_the_server(tmp_path: Path) -> None:
    held = lock.DirectoryLock(tmp_path)
    held.acquire()
    try:
        found = down.running(tmp_path)
        assert found is not None
        assert found.pid == os.getpid()
    finally:
        held.release()
    assert down.running(tmp_path) is None


def test_nothing_to_stop_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["down", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no server runs on {tmp_path}\n"
