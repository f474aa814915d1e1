"""`kiln token`: which options need a ServiceAccount."""

import shlex
from pathlib import Path

import pytest
import yaml

from kilnwork.cli import exits
from support import serverless_cli


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--duration 1h", "name the account"),
        ("--audience a", "name the account"),
        ("a --duration soon", "not a duration"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, line: str, words: str
) -> None:
    ended = kiln.run("token", *shlex.split(line))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a --duration 1h --audience x --audience y",
        "",
    ],
)
def test_valid_arguments_need_a_server(kiln: serverless_cli.ServerlessCli, line: str) -> None:
    ended = kiln.run("token", *shlex.split(line))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err


@pytest.mark.parametrize(
    ("user", "code", "shown"),
    [({"token": "abc"}, exits.Exit.OK, "abc"), ({}, exits.Exit.FAILED, "holds no token")],
)
def test_token_of_the_kubeconfig_is_printed(
    kiln: serverless_cli.ServerlessCli,
    tmp_path: Path,
    user: dict[str, str],
    code: exits.Exit,
    shown: str,
) -> None:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
    }
    (tmp_path / "no-kubeconfig").write_text(yaml.safe_dump(document))
    ended = kiln.run("token")
    assert ended.code == code
    assert shown in (ended.out if code == exits.Exit.OK else ended.err)
