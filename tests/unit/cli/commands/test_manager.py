"""`kiln manager`: which addresses, names and limits it accepts."""

from pathlib import Path

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--listen", "7443", "write HOST:PORT"),
        ("--listen", "0.0.0.0:65536", "write HOST:PORT"),
        ("--advertise", "0.0.0.0:7443", "that others reach"),
        ("--advertise", "host", "that others reach"),
        ("--allow-kind", "Books.example.com", "write PLURAL.GROUP"),
        ("--lease", "1s", "at least"),
        ("--callback-url", "ftp://host", "write http(s)://HOST"),
        ("--data", "", "a directory's name is missing"),
    ],
)
def test_invalid_options_are_rejected(
    kiln: serverless_cli.ServerlessCli, option: str, value: str, words: str
) -> None:
    ended = kiln.run("manager", option, value)
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


def test_manager_without_a_kubeconfig_does_not_start(
    kiln: serverless_cli.ServerlessCli, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    config = tmp_path / "none"
    ended = kiln.run("manager", "--kubeconfig", str(config), "--data", str(data))
    assert ended.code in (exits.Exit.FAILED, exits.Exit.UNREACHABLE)
    assert f"{config} does not exist" in ended.err
    assert not (data / "journal.db").exists()
