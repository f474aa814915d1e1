"""`kiln down`: only ever signals a server of ours."""

import json
import os
from pathlib import Path

import pytest

from kilnwork.cli import main
from kilnwork.cli.commands import down


@pytest.mark.parametrize("content", ["", "{", '{"pid": "x"}', '{"pid": 0}', '{"pid": 4194304}'])
def test_a_folder_without_a_server(tmp_path: Path, content: str) -> None:
    (tmp_path / "endpoints.json").write_text(content)
    assert down.running(tmp_path) is None


def test_a_pid_that_now_belongs_to_another_program(tmp_path: Path) -> None:
    (tmp_path / "endpoints.json").write_text(json.dumps({"pid": os.getppid()}))
    assert down.running(tmp_path) is None


def test_nothing_to_stop_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["down", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no server runs on {tmp_path}\n"
