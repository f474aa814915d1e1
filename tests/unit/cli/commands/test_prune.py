"""`kiln prune`: a limit must be given."""

import shlex

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "name what to delete"),
        ("--dry-run --keyed", "name what to delete"),
        ("--older-than soon", "not a duration"),
        ("--keep -1", "--keep"),
        ("--free much", "--free"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
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
def test_valid_arguments_need_a_server(kiln: serverless_cli.ServerlessCli, line: str) -> None:
    ended = kiln.run("prune", *shlex.split(line))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err
