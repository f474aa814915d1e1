"""Fixtures for commands without a server."""

from pathlib import Path

import pytest

from support import serverless_cli


@pytest.fixture
def kiln(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> serverless_cli.ServerlessCli:
    """Return a runner of command lines that finds no server."""
    return serverless_cli.ServerlessCli(capsys, tmp_path / "no-kubeconfig")
