"""Fixtures for commands without a server, and with a scripted one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import scripted_cli_server, serverless_cli


@pytest.fixture
def kiln(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> serverless_cli.ServerlessCli:
    """Return a runner of command lines that finds no server."""
    return serverless_cli.ServerlessCli(capsys, tmp_path / "no-kubeconfig")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[scripted_cli_server.ScriptedCliServer]:
    """Return a running server without responses."""
    with scripted_cli_server.ScriptedCliServer(tmp_path) as server:
        yield server


@pytest.fixture
def connected_kiln(
    capsys: pytest.CaptureFixture[str], server: scripted_cli_server.ScriptedCliServer
) -> serverless_cli.ServerlessCli:
    """Return a runner of command lines that finds `server`."""
    return serverless_cli.ServerlessCli(capsys, server.kubeconfig)
