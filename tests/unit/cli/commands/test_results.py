"""`kiln results`: target of the result, and selection of a part."""

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
        ("a --part 0", "--part"),
        ("a --part x", "--part"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, tmp_path: Path, line: str, words: str
) -> None:
    ended = kiln.run("results", *shlex.split(line.format(tmp=tmp_path)))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a --part 1 --errors",
        "a --partial --wait -o {tmp}/result",
    ],
)
def test_valid_arguments_need_a_server(
    kiln: serverless_cli.ServerlessCli, tmp_path: Path, line: str
) -> None:
    ended = kiln.run("results", *shlex.split(line.format(tmp=tmp_path)))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err
