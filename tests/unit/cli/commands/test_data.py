"""`kiln data`: one action at a time, on one pond."""

import shlex

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("p --snapshots --leases", "--snapshots and --leases are two things"),
        ("p --fetch s --release l", "--fetch and --release are two things"),
        ("--snapshots", "--snapshots is of one pond"),
        ("--fetch s", "--fetch is of one pond"),
        ("p --path a", "are of --fetch"),
        ("p --glob *", "are of --fetch"),
        ("p --lease l --release l", "are of --fetch"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, line: str, words: str
) -> None:
    ended = kiln.run("data", *shlex.split(line))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "",
        "p",
        "p --snapshots",
        "p --leases",
        "p --fetch s --path a --glob * --lease l",
        "p --release l",
        "-o json",
    ],
)
def test_valid_arguments_need_a_server(kiln: serverless_cli.ServerlessCli, line: str) -> None:
    ended = kiln.run("data", *shlex.split(line))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err
