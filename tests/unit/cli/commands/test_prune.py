"""`kiln prune`: what may go must be said."""

import shlex

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "say what may go"),
        ("--dry-run --keyed", "say what may go"),
        ("--older-than soon", "not a duration"),
        ("--keep -1", "--keep"),
        ("--free much", "--free"),
    ],
)
def test_a_line_that_cannot_be_used_is_refused_before_a_server_is_asked(
    kiln: serverless_cli.ServerlessCli, line: str, words: str
) -> None:
    ended = kiln.run("prune", *shlex.split(line))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "--older-than 1d",
        "--keep 0",
        "--free 5Gi",
        "--keep 1 --free 1Mi --keyed --dry-run -A",
    ],
)
def test_a_line_that_can_be_used_needs_a_server(
    kiln: serverless_cli.ServerlessCli, line: str
) -> None:
    ended = kiln.run("prune", *shlex.split(line))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err
