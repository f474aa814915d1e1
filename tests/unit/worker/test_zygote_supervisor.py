"""The supervisor of the zygote, with zygotes that are only a link and a future of their exit."""

import asyncio
import contextlib
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator

import pytest

from kilnwork.kit import coroutines
from kilnwork.worker import errors, orphans, reaper, zygote_link, zygote_supervisor

EXIT = reaper.ProcessExit(-signal.SIGKILL, resource.getrusage(resource.RUSAGE_SELF))
SLOT = bytes(range(16))


class _Reaper(reaper.Reaper):
    """Reaper of exits that the test sets as results of `exits`, the oldest zygote's first."""

    def __init__(self) -> None:
        super().__init__()
        self.exits: list[asyncio.Future[reaper.ProcessExit]] = []

    def watch(self, pid: int) -> asyncio.Future[reaper.ProcessExit]:
        self.exits.append(asyncio.get_running_loop().create_future())
        return self.exits[-1]


class _Orphans(orphans.Orphans):
    """Orphans whose processes are gone once the test says so."""

    def __init__(self, waiter: reaper.Reaper) -> None:
        super().__init__(waiter)
        self.cleared = asyncio.Event()

    async def clear(self, root: orphans.RootProcess) -> bool:
        await self.cleared.wait()
        return True


class _World:
    """A supervisor, and what it has reported."""

    def __init__(self) -> None:
        self.background = coroutines.BackgroundWork("test")
        self.reaper = _Reaper()
        self.orphans = _Orphans(self.reaper)
        self.ended: list[zygote_link.SlotEnded] = []
        self.broken: list[errors.NoZygote] = []
        self.links: list[socket.socket] = []
        self.supervisor = zygote_supervisor.ZygoteSupervisor(
            background=self.background,
            waiter=self.reaper,
            orphan_processes=self.orphans,
            on_ended=self.ended.append,
            on_broken=self.broken.append,
        )

    async def adopt(self, *, ready: bool) -> socket.socket:
        """Have the supervisor adopt a new zygote; return the zygote's end of the link."""
        own, link = zygote_link.make_pair()
        self.links += own, link
        self.supervisor.adopt(
            zygote_link.ZygoteHandle(os.getpid(), own, zygote_link.open_errors_file())
        )
        if ready:
            zygote_link.send(link, zygote_link.Ready())
        await _turns()
        return link


async def _turns() -> None:
    """Let the event loop read the links and run what waits for a future."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[_World]:
    made = _World()
    yield made
    await made.background.stop()
    for link in made.links:
        with contextlib.suppress(ValueError):  # closed, which the loop knows
            asyncio.get_running_loop().remove_reader(link)
        link.close()


async def test_zygote_adopted_while_the_last_is_cleared_is_waited_for(world: _World) -> None:
    await world.adopt(ready=True)
    world.reaper.exits[0].set_result(EXIT)
    await _turns()  # the first has exited, and its processes are being killed
    await world.adopt(ready=True)
    world.orphans.cleared.set()
    await _turns()
    closing = asyncio.ensure_future(world.supervisor.close(timeout_s=10))
    await _turns()
    assert not closing.done()  # the second has not exited
    world.reaper.exits[1].set_result(EXIT)
    await closing


async def test_ready_zygote_that_died_is_no_failed_start_of_the_next(world: _World) -> None:
    for died in range(zygote_supervisor.MAX_FAILED_STARTS):
        await world.adopt(ready=True)
        world.supervisor.fork_slot(SLOT, "secret", ())
        world.reaper.exits[died].set_result(EXIT)
        await _turns()
    await world.adopt(ready=False)
    world.orphans.cleared.set()
    await _turns()
    assert [each.message for each in world.ended] == ["", "", ""]
    assert world.broken == []


async def test_pid_of_a_zygote_that_was_waited_for_is_not_signalled(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    signalled: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: signalled.append(pid))
    monkeypatch.setattr(zygote_supervisor, "START_S", 0.0)
    # Both timers in one turn: the pid is free once its exit is known, before `_keep` runs.
    asyncio.get_running_loop().call_later(0, lambda: world.reaper.exits[0].set_result(EXIT))
    await world.adopt(ready=False)
    assert world.reaper.exits[0].done()
    assert signalled == []


async def test_zygote_that_is_not_ready_in_time_is_killed(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    signalled: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signalled.append((pid, number)))
    monkeypatch.setattr(zygote_supervisor, "START_S", 0.0)
    await world.adopt(ready=False)
    assert signalled == [(os.getpid(), signal.SIGKILL)]
