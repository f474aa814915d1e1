"""Commands of `kiln` in the process of the tests, as one who types them sees them."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from kilnwork.cli import main
from support import up as up_support


class Done(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


Kiln = Callable[..., Done]


def of(
    server: up_support.Up, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Kiln:
    """For this test: as the administrator of that server, in its folder."""
    monkeypatch.setenv("KUBECONFIG", str(server.data / "kubeconfig"))
    monkeypatch.chdir(server.workdir)

    def run(*args: str) -> Done:
        capfd.readouterr()
        code = main.main([*args])
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return run
