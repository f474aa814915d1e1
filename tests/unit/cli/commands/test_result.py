"""`kiln result`: source and target of the result."""

import shlex
from pathlib import Path

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "Missing argument"),
        ("a -o {tmp}/none/result", "none"),
        ("a --data", "requires an argument"),
        ("a b", "unexpected extra argument"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, tmp_path: Path, line: str, words: str
) -> None:
    ended = kiln.run("result", *shlex.split(line.format(tmp=tmp_path)))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a -o {tmp}/result",
        "job/a",
        "syncset/a",
    ],
)
def test_valid_arguments_need_a_server(
    kiln: serverless_cli.ServerlessCli, tmp_path: Path, line: str
) -> None:
    ended = kiln.run("result", *shlex.split(line.format(tmp=tmp_path)))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err


def test_directory_without_a_journal_has_no_tasks(
    kiln: serverless_cli.ServerlessCli, tmp_path: Path
) -> None:
    ended = kiln.run("result", "a", "--data", str(tmp_path))
    assert ended.code == exits.Exit.NOT_FOUND
    assert "has no journal.db" in ended.err
