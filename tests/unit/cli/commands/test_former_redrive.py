"""`kiln redrive`: where its result goes is checked before the job runs again."""

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
def test_a_line_that_cannot_be_used_is_refused_before_a_server_is_asked(
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
def test_a_line_that_can_be_used_needs_a_server(
    kiln: serverless_cli.ServerlessCli, tmp_path: Path, line: str
) -> None:
    ended = kiln.run("redrive", *shlex.split(line.format(tmp=tmp_path)))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err
