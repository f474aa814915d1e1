"""A session of a driver with a scripted dispatcher at the other end of a real socket."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.sdk import driver_session
from support import scripted_dispatcher, scripted_session, short_paths


@pytest.fixture
def socket_directory() -> Iterator[Path]:
    made = short_paths.directory()
    yield made
    shutil.rmtree(made)


@pytest.fixture
def dispatcher(socket_directory: Path) -> Iterator[scripted_dispatcher.ScriptedDispatcher]:
    made = scripted_dispatcher.ScriptedDispatcher(socket_directory)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def session(dispatcher: scripted_dispatcher.ScriptedDispatcher) -> Iterator[driver_session.Driver]:
    with scripted_session.open_driver(dispatcher) as made:
        yield made
