"""`kiln run-job`: which options it accepts."""

import shlex

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "Missing argument"),
        ("c --at soon", "--at"),
        ("c --after soon", "not a duration"),
        ("c --priority high", "--priority"),
        ("c --concurrency-policy Later", "--concurrency-policy"),
        ("task/c", "write NAME or jobconfig/NAME"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, line: str, words: str
) -> None:
    ended = kiln.run("run-job", *shlex.split(line))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "c",
        "jobconfig/c --after 30m --enqueue",
        "c --at 2026-01-02T03:04Z --priority 3",
        "c --option a=1 --dry-run",
    ],
)
def test_valid_arguments_need_a_server(kiln: serverless_cli.ServerlessCli, line: str) -> None:
    ended = kiln.run("run-job", *shlex.split(line))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err
