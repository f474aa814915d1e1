"""`kiln schedule`: previews without a server, and their options."""

import json
import re
import shlex

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--timezone UTC", "--timezone is of --cron"),
        ("a --timezone UTC", "--timezone is of --cron"),
        ("--next 0", "--next"),
        ("--next 1001", "--next"),
        ("--cron x", "has 1 field"),
        ("--cron '0 2 * * *' a b", "one CONFIG at most"),
        ("--cron '0 2 * * *' --timezone Moon/Base", "Moon/Base"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, line: str, words: str
) -> None:
    ended = kiln.run("schedule", *shlex.split(line))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "",
        "a b",
        "--next 1000 -A",
    ],
)
def test_valid_arguments_need_a_server(kiln: serverless_cli.ServerlessCli, line: str) -> None:
    ended = kiln.run("schedule", *shlex.split(line))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err


def test_ticks_of_an_expression_are_shown_without_a_server(
    kiln: serverless_cli.ServerlessCli,
) -> None:
    ended = kiln.run("schedule", "--cron", "0 2 1 1 *", "--next", "3", "-o", "json")
    assert ended.code == exits.Exit.OK
    (item,) = json.loads(ended.out)["items"]
    times = re.findall(r"\d{4}-01-01T02:00:00Z", json.dumps(item))
    assert len(set(times)) == 3


def test_h_depends_on_the_config_and_its_namespace(kiln: serverless_cli.ServerlessCli) -> None:
    lines = [("a",), ("jobconfig/a",), ("b",), ("a", "-n", "other")]
    shown = [kiln.run("schedule", "--cron", "H H * * *", "-o", "json", *line).out for line in lines]
    found = [sorted(set(re.findall(r"T(\d\d:\d\d):\d\dZ", text))) for text in shown]
    assert found[0] == found[1]
    assert found[0] != found[2]
    assert found[0] != found[3]
