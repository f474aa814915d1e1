"""The shim and its supervisor, with a real process, whichever server has started it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kilnwork.controlplane.node import errors, shim, shim_container, shim_supervisor
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


def running_shim(directory: Path) -> processes.ProcessId:
    pid = locks.read_owner(directory / shim.LOCK)
    assert pid is not None
    process = processes.identify(pid)
    assert process is not None
    return process


async def refuse(*, grace_s: float) -> None:
    """Fail as `ShimLink.leave` does without a reply."""
    raise errors.ShimAway(f"no reply, {grace_s} s")


@pytest.mark.parametrize("adopted", [False, True])
@pytest.mark.parametrize("replies", [True, False])
async def test_stop_waits_until_the_shim_has_ended(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *, adopted: bool, replies: bool
) -> None:
    """A shim started by a killed server is not a child of the next one."""
    minder = minding(directory)
    await minder.start()
    process = running_shim(directory)
    if adopted:
        await minder.detach()
        minder = minding(directory)
        await minder.start()
    if not replies:
        monkeypatch.setattr(minder.link, "leave", refuse)
    await minder.stop(grace_s=0)
    assert not process.alive()


async def test_stop_ends_a_shim_without_an_open_link(directory: Path) -> None:
    minder = minding(directory)
    await minder.start()
    process = running_shim(directory)
    await minder.detach()
    minder = minding(directory)  # as while it opens the next link
    await minder.stop(grace_s=0)
    assert not process.alive()
