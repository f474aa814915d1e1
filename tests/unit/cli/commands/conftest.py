"""The command line without a server."""

from pathlib import Path

import pytest

from support import serverless_cli


@pytest.fixture
def kiln(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> serverless_cli.ServerlessCli:
    """Command lines that find no server."""
    return serverless_cli.ServerlessCli(capsys, tmp_path / "no-kubeconfig")
