"""Fixtures of every level. Heavier ones (a real server) start only where a test names them."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from support import up as up_support

# A shared machine may be slow at any moment; what CI tries must be the same in every run.
hypothesis.settings.register_profile("kilnwork", deadline=None, derandomize="CI" in os.environ)
hypothesis.settings.load_profile("kilnwork")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--server real` needs Go or a built `hack.kube`; everything else does not."""
    parser.addoption(
        "--server",
        choices=("ours", "real"),
        default="ours",
        help="the API server of tests/conformance: our own (default) or the real one",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start the real API server, but only for who asks for it."""
    if config.getoption("--server") == "real":
        config.pluginmanager.import_plugin("support.real_for_all")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that speak to a task's socket with curl need it; nothing else of kilnwork does."""
    if item.get_closest_marker("curl") and shutil.which("curl") is None:
        pytest.skip("curl is not on PATH: install it, for example with apt install curl")


@pytest.fixture
def examples() -> Path:
    """The examples folder of this checkout."""
    return Path(__file__).parent.parent / "examples"


@pytest.fixture
def up(tmp_path: Path) -> Iterator[up_support.Up]:
    """A ready `kiln up` on free ports; stopped afterwards, and nothing of it may be left."""
    server = up_support.Up(tmp_path / "data", workdir=tmp_path)
    server.start()
    try:
        yield server
    finally:
        code = server.stop()
    assert code == 0, server.log.read_text()[-4000:]
    assert server.leftovers() == {}
