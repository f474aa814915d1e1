"""`kiln` commands run in the test process."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kilnwork.cli import main


class CommandResult(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Kiln = Callable[..., CommandResult]


def kiln_of(data: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Kiln:
    """Return a function that runs `kiln` as the administrator of the server of a data directory."""
    monkeypatch.setenv("KUBECONFIG", str(data / "kubeconfig"))

    def run(*args: str) -> CommandResult:
        capfd.readouterr()
        code = main.main([*args])
        out, err = capfd.readouterr()
        return CommandResult(code, out, err)

    return run
