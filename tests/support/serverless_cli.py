"""Runs `kiln` where there is no server: what a command checks before it connects."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from kilnwork.cli import main


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command line ended."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class ServerlessCli:
    """`kiln` with a kubeconfig that does not exist: 3 is the exit code of what would connect."""

    capsys: pytest.CaptureFixture[str]
    kubeconfig: Path

    def run(self, *args: str) -> CommandResult:
        """Run one command line."""
        code = main.main(["--kubeconfig", str(self.kubeconfig), *args])
        printed = self.capsys.readouterr()
        return CommandResult(code, printed.out, printed.err)
