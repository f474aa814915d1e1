"""Fixtures of every level. Heavier ones (a real server) start only where a test names them."""

import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from support import short_paths
from support import up_server as up_support

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
    """Hear signals; start the real API server, but only for who asks for it."""
    _hear_signals()
    if config.getoption("--server") == "real":
        config.pluginmanager.import_plugin("support.shared_real_server")


def _hear_signals() -> None:
    """Tests send them to themselves and to processes of theirs, which inherit what is ignored.

    A process that runs tests in the background has some of them ignored: a script's `&`, `nohup`
    (signal(7)).
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name binary parameters by their argument: compressed data contains the time of its creation.

    xdist refuses to run when two of its processes collect different ids.
    """
    if isinstance(val, bytes) and not (val.isascii() and val.decode("ascii").isprintable()):
        return argname
    return None


def pytest_unconfigure() -> None:
    """Leave nothing in the directory of everybody."""
    short_paths.remove_all()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that speak to a task's socket with curl need it; nothing else of kilnwork does."""
    if item.get_closest_marker("curl") and shutil.which("curl") is None:
        pytest.skip("curl is not on PATH: install it, for example with apt install curl")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, bool, bool]:
    """Undo `logs.setup` of a command that a test runs in this process: its handler writes to the
    standard error of that test, which is closed afterwards.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        return (yield)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


@pytest.fixture
def examples() -> Path:
    """The examples directory of this checkout."""
    return Path(__file__).parent.parent / "examples"


@pytest.fixture
def up(tmp_path: Path) -> Iterator[up_support.UpServer]:
    """A `kiln up` of one test; several modules have one for all of theirs, by the same name."""
    with up_support.serving(tmp_path) as server:
        yield server


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where that is possible: what a busy disk takes is not what is tried."""
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared, prefix="kiln-test-") as made:
        yield Path(made)
