"""`kiln redrive`: the target of the result is checked before the job runs again."""

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
        ("a b", "unexpected extra argument"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, tmp_path: Path, line: str, words: str
) -> None:
    ended = kiln.run("redrive", *shlex.split(line.format(tmp=tmp_path)))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a --watch",
        "a -o {tmp}/result",
        "a -o -",
    ],
)
def test_valid_arguments_need_a_server(
    kiln: serverless_cli.ServerlessCli, tmp_path: Path, line: str
) -> None:
    ended = kiln.run("redrive", *shlex.split(line.format(tmp=tmp_path)))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err
