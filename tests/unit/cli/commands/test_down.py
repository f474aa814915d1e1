"""`kiln down`: it signals only a server of kilnwork, which `controlplane.lock` identifies."""

from pathlib import Path

import pytest

from kilnwork.cli import exits, main


def test_missing_server_is_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["down", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no server runs on {tmp_path}\n"


def test_unreadable_directory_is_rejected_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main.main(["down", "--data", str(tmp_path / "file" / "below")]) == exits.Exit.USAGE
    assert "cannot be read: Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["up", "down"])
def test_empty_directory_name_is_not_the_current_directory(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--data "$UNSET"` must not spread a server's files over whatever directory one is in."""
    assert main.main([command, "--data", ""]) == exits.Exit.USAGE
    assert "a directory's name is missing" in capsys.readouterr().err
