"""`kiln adjust`: which settings it accepts, and that one is required."""

import shlex

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("job", "name what to change"),
        ("job --parallelism 0", "--parallelism"),
        ("job --parallelism 100001", "--parallelism"),
        ("job --priority 1000001", "--priority"),
        ("job --ttl soon", "not a duration"),
        ("job --max-failed many", "many"),
        ("--priority 1", "Missing argument"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, line: str, words: str
) -> None:
    ended = kiln.run("adjust", *shlex.split(line))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "job --parallelism 1",
        "job --priority -1000000",
        "job --ttl 1h",
        "job --max-failed 1%",
        "job --max-failed 0",
    ],
)
def test_valid_arguments_need_a_server(kiln: serverless_cli.ServerlessCli, line: str) -> None:
    ended = kiln.run("adjust", *shlex.split(line))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err
