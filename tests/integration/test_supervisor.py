"""The shim and its supervisor, with a real process, whichever server has started it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.controlplane.node import shim, shim_container, shim_supervisor
from kilnwork.kit import locks, processes
from support import short_paths


@pytest.fixture
def directory() -> Iterator[Path]:
    made = short_paths.directory()
    yield made
    shutil.rmtree(made)


def ended(_: shim_container.ContainerRecord) -> None:
    """Ignore the end of a container: none runs in these tests."""


def opened(_: list[shim_container.ContainerRecord]) -> None:
    """Ignore the start of a container: none runs in these tests."""


def minding(directory: Path) -> shim_supervisor.Supervisor:
    return shim_supervisor.Supervisor(directory, directory / "s", on_ended=ended, on_opened=opened)


@pytest.mark.parametrize("adopted", [False, True])
async def test_stop_waits_until_the_shim_has_ended(directory: Path, *, adopted: bool) -> None:
    """A shim started by a killed server is not a child of the next one."""
    minder = minding(directory)
    await minder.start()
    pid = locks.read_owner(directory / shim.LOCK)
    assert pid is not None
    process = processes.identify(pid)
    assert process is not None
    if adopted:
        await minder.detach()
        minder = minding(directory)
        await minder.start()
    await minder.stop(grace_s=0)
    assert not process.alive()
