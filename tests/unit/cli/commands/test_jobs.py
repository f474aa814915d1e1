"""`kiln jobs`: which options apply to the list and which to one Job."""

import shlex

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--indexes", "are of one Job"),
        ("--watch", "are of one Job"),
        ("a --active", "--active chooses among Jobs"),
        ("a --config c", "--config chooses among Jobs"),
        ("a --state Failed", "add --indexes"),
        ("task/a", "write NAME or job/NAME"),
        ("job/", "is empty"),
        ("--limit 0", "--limit"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, line: str, words: str
) -> None:
    ended = kiln.run("jobs", *shlex.split(line))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "",
        "a",
        "job/a --watch",
        "a --indexes --state Failed",
        "--active --queued --finished --limit 1",
        "--state Failed --config c",
    ],
)
def test_valid_arguments_need_a_server(kiln: serverless_cli.ServerlessCli, line: str) -> None:
    ended = kiln.run("jobs", *shlex.split(line))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err
