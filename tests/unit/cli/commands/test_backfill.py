"""`kiln backfill`: which times and limits it accepts."""

import shlex

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("c", "--from"),
        ("c --from 2026-01-01", "--to"),
        ("c --from then --to 2026-01-02", "--from"),
        ("c --from 2026-01-01 --to 2026-01-02 --limit 0", "--limit"),
        ("c --from 2026-01-01 --to 2026-01-02 --limit 10001", "--limit"),
        ("task/c --from 2026-01-01 --to 2026-01-02", "write NAME or jobconfig/NAME"),
        ("c --from 2026-01-01 --to 2026-01-02 --concurrency-policy Later", "--concurrency-policy"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, line: str, words: str
) -> None:
    ended = kiln.run("backfill", *shlex.split(line))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "c --from 2026-01-01 --to 2026-01-02",
        "jobconfig/c --from 2026-01-01 --to 2026-01-02T03:04Z --limit 10000",
        "c --from 2026-01-01 --to 2026-01-02 --concurrency-policy allow -o name",
    ],
)
def test_valid_arguments_need_a_server(kiln: serverless_cli.ServerlessCli, line: str) -> None:
    ended = kiln.run("backfill", *shlex.split(line))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err
