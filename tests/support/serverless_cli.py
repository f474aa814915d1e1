"""Runs `kiln` without a server: what commands check before they connect."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from kilnwork.cli import main


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class ServerlessCli:
    """`kiln` with a kubeconfig that does not exist: a command that would connect exits with 3."""

    capsys: pytest.CaptureFixture[str]
    kubeconfig: Path

    def run(self, *args: str) -> CommandResult:
        """Run one command line."""
        code = main.main(["--kubeconfig", str(self.kubeconfig), *args])
        printed = self.capsys.readouterr()
        return CommandResult(code, printed.out, printed.err)
