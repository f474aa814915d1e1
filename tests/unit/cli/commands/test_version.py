"""`kiln version`: the version of the client is always shown."""

import json

import pytest

from kilnwork import version
from kilnwork.cli import exits
from support import serverless_cli


def test_client_version_needs_no_server(kiln: serverless_cli.ServerlessCli) -> None:
    ended = kiln.run("version", "--client")
    assert (ended.code, ended.out) == (exits.Exit.OK, f"client: kiln {version.__version__}\n")


def test_client_is_shown_before_the_error_about_the_server(
    kiln: serverless_cli.ServerlessCli,
) -> None:
    ended = kiln.run("version")
    assert (ended.code, ended.out) == (
        exits.Exit.UNREACHABLE,
        f"client: kiln {version.__version__}\n",
    )
    assert "does not exist" in ended.err


@pytest.mark.parametrize("arguments", [("--client",), ()])
def test_json_has_the_client_version_without_a_server(
    kiln: serverless_cli.ServerlessCli, arguments: tuple[str, ...]
) -> None:
    ended = kiln.run("version", "-o", "json", *arguments)
    assert json.loads(ended.out) == {"client": {"version": version.__version__}}


def test_unknown_format_is_rejected(kiln: serverless_cli.ServerlessCli) -> None:
    assert kiln.run("version", "-o", "name").code == exits.Exit.USAGE
