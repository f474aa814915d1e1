"""`kiln up`: options that are checked before anything starts."""

from pathlib import Path

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--port", "65535", "--port"),
        ("--port", "-1", "--port"),
        ("--slots", "0", "--slots"),
        ("--slots", "1001", "--slots"),
        ("--allow-kind", "*.", "write PLURAL.GROUP"),
        ("--data", "", "a directory's name is missing"),
        ("--keep-for", "soon", "not a duration"),
    ],
)
def test_invalid_options_are_rejected(
    kiln: serverless_cli.ServerlessCli, option: str, value: str, words: str
) -> None:
    ended = kiln.run("up", option, value)
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


def test_missing_workdir_is_rejected(kiln: serverless_cli.ServerlessCli, tmp_path: Path) -> None:
    ended = kiln.run("up", "--data", str(tmp_path / "data"), "--workdir", str(tmp_path / "none"))
    assert ended.code == exits.Exit.USAGE
    assert "--workdir" in ended.err
    assert not (tmp_path / "data").exists()


def test_data_directory_below_a_file_is_rejected(
    kiln: serverless_cli.ServerlessCli, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    ended = kiln.run("up", "--data", str(tmp_path / "file" / "data"))
    assert ended.code != exits.Exit.OK
    assert "file" in ended.err
