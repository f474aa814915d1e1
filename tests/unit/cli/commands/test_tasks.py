"""`kiln tasks`: which options apply to tasks and which to totals."""

import shlex

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--by function --limit 1", "--limit cannot be combined"),
        ("--by function --limit 0", "--limit cannot be combined"),
        ("--by function -o wide", "-o wide cannot be combined"),
        ("--by function -o name", "-o name cannot be combined"),
        ("--by worker", "--by"),
        ("--state running", "--state"),
        ("--sort name", "--sort"),
        ("--limit -1", "--limit"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, line: str, words: str
) -> None:
    ended = kiln.run("tasks", *shlex.split(line))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--by function",
        "--by function -o json --sort cpu",
        "--state Running --parent a --function m:f --spawned",
        "--limit 0",
        "--all",
        "-o wide",
    ],
)
def test_valid_arguments_need_a_server(kiln: serverless_cli.ServerlessCli, line: str) -> None:
    ended = kiln.run("tasks", *shlex.split(line))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err
