"""`kiln apply`: files are read before the server is asked."""

import shlex
from pathlib import Path

import pytest

from kilnwork.cli import exits
from support import serverless_cli


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with a file that has one object, and one that has none."""
    (tmp_path / "map.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
    (tmp_path / "empty.yaml").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "Missing option"),
        ("-f {tmp}/none.yaml", "No such file"),
        ("-f {tmp}/empty.yaml", "no objects in there"),
        ("-f {tmp}/map.yaml --validate maybe", "--validate"),
        ("-f {tmp}/map.yaml -o wide", "wide"),
    ],
)
def test_invalid_arguments_are_rejected_without_a_server(
    kiln: serverless_cli.ServerlessCli, directory: Path, line: str, words: str
) -> None:
    ended = kiln.run("apply", *shlex.split(line.format(tmp=directory)))
    assert ended.code == exits.Exit.USAGE
    assert words in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "-f {tmp}/map.yaml",
        "-f {tmp}/map.yaml --validate false --dry-run -o name",
    ],
)
def test_valid_arguments_need_a_server(
    kiln: serverless_cli.ServerlessCli, directory: Path, line: str
) -> None:
    ended = kiln.run("apply", *shlex.split(line.format(tmp=directory)))
    assert ended.code == exits.Exit.UNREACHABLE
    assert "no-kubeconfig does not exist" in ended.err
