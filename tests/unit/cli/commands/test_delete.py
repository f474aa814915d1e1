"""`kiln delete`: which ways of naming objects it accepts."""

import shlex
from pathlib import Path

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with a file that has one object, and one that has none."""
    (tmp_path / "map.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
    (tmp_path / "empty.yaml").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "name what to delete"),
        ("task a -f {tmp}/map.yaml", "name what to delete"),
        ("upload/", "name one"),
        ("files", "name the file jobs"),
        ("file/a --all", "name the file jobs"),
        ("files --all -l a=b", "name the file jobs"),
        ("tasks --all -l a=b", "--all and -l exclude each other"),
        ("-f {tmp}/empty.yaml", "no objects in there"),
        ("task a --timeout soon", "not a duration"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, directory: Path, line: str, words: str
) -> None:
    ended = kiln.run("delete", *shlex.split(line.format(tmp=directory)))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "task/a",
        "task a b",
        "upload/a",
        "file/a",
        "files --all",
        "tasks --all",
        "tasks -l a=b",
        "-f {tmp}/map.yaml",
    ],
)
def test_valid_arguments_need_a_server(
    kiln: serverless_cli.ServerlessCli, directory: Path, line: str
) -> None:
    ended = kiln.run("delete", *shlex.split(line.format(tmp=directory)))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err
