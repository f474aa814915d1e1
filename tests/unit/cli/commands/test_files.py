"""`kiln files`: which options apply to jobs, to parts and to uploads."""

import shlex

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a --uploads", "leave out the rest"),
        ("--uploads --parts", "leave out the rest"),
        ("--uploads --name n", "leave out the rest"),
        ("--uploads --phase failed", "leave out the rest"),
        ("--parts", "are of one job"),
        ("--state Failed", "are of one job"),
        ("--limit 0", "--limit"),
        ("--phase soon", "--phase"),
        ("-o table", "table"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, line: str, words: str
) -> None:
    ended = kiln.run("files", *shlex.split(line))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "",
        "a",
        "a --parts --state Failed",
        "--uploads -o json",
        "--name n --phase failed --limit 1",
    ],
)
def test_valid_arguments_need_a_server(kiln: serverless_cli.ServerlessCli, line: str) -> None:
    ended = kiln.run("files", *shlex.split(line))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err
