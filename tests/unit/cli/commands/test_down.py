"""`kiln down`: only ever signals a server of ours; which one, `controlplane.lock` says."""

from pathlib import Path

import pytest

from kilnwork.cli import main


def test_nothing_to_stop_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["down", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no server runs on {tmp_path}\n"
