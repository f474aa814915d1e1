"""`kiln status`: its options, and waiting for a missing server."""

import shlex

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a", "unexpected extra argument"),
        ("--timeout soon", "not a duration"),
        ("-o wide", "wide"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, line: str, words: str
) -> None:
    ended = kiln.run("status", *shlex.split(line))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "",
        "-o json",
        "-n default",
    ],
)
def test_valid_arguments_need_a_server(kiln: serverless_cli.ServerlessCli, line: str) -> None:
    ended = kiln.run("status", *shlex.split(line))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err


def test_wait_for_a_missing_server_times_out(
    kiln: serverless_cli.ServerlessCli,
) -> None:
    ended = kiln.run("status", "--wait", "--timeout", "0.01s")
    assert ended.code == exits.Exit.TIMED_OUT
    assert "not ready within 0.01 s" in ended.err
    assert "no-kubeconfig does not exist" in ended.err
