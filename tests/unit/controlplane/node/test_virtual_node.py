"""How a virtual node stops, removes and yields, with a local node that is played."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kilnwork.controlplane.node import local_node, node_drain, virtual_node
from kilnwork.kit import clock
from kilnwork.kube import client, config
from support import waiting


class PlayedNode:
    """A local node whose long calls end when `go` is set."""

    def __init__(
        self, _: client.Client, settings: local_node.LocalNodeSettings, *, time: clock.Clock
    ) -> None:
        self.settings = settings
        self.time = time
        self.go = asyncio.Event()
        self.begun: list[str] = []
        self.ended: list[str] = []

    async def start(self) -> None:
        """Do nothing."""

    async def stop(self, *, grace_s: float) -> None:
        await self._work(f"stop {grace_s}")

    async def stop_without_statuses(self, *, grace_s: float) -> None:
        await self._work(f"yield {grace_s}")

    async def remove(self, _: node_drain.Say) -> None:
        await self._work("remove")

    async def _work(self, name: str) -> None:
        self.begun.append(name)
        await self.go.wait()
        self.ended.append(name)


class World:
    """A started virtual node."""

    def __init__(self, directory: Path) -> None:
        self.removed = 0
        settings = virtual_node.VirtualNodeSettings(
            "n", directory, directory, "127.0.0.1", client_ca=directory / "ca"
        )
        self.node = virtual_node.VirtualNode(
            config.Config(server="http://127.0.0.1:1"), settings, on_removed=self.on_removed
        )
        self.played: PlayedNode

    def on_removed(self) -> None:
        self.removed += 1

    async def begun(self, *names: str) -> None:
        await waiting.wait_until_async(
            lambda: self.played.begun == list(names), what="the played node works"
        )


@pytest_asyncio.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    made = World(tmp_path)

    def play(
        kube: client.Client, settings: local_node.LocalNodeSettings, *, time: clock.Clock
    ) -> PlayedNode:
        made.played = PlayedNode(kube, settings, time=time)
        return made.played

    monkeypatch.setattr(local_node, "LocalNode", play)
    await made.node.start()
    yield made
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert [name for name in names if name.startswith("virtual node/")] == []


async def test_stop_waits_until_a_node_that_was_taken_has_ended(world: World) -> None:
    world.played.settings.on_taken()
    await world.begun("yield 10.0")
    stopping = asyncio.create_task(world.node.stop())
    await asyncio.wait([stopping], timeout=0.05)
    assert not stopping.done()
    world.played.go.set()
    await stopping
    assert world.played.ended == ["yield 10.0"]
    assert world.removed == 1


async def test_node_that_is_taken_while_it_stops_does_not_stop_twice(world: World) -> None:
    stopping = asyncio.create_task(world.node.stop())
    await world.begun("stop 10.0")
    world.played.settings.on_taken()
    await asyncio.sleep(0)
    world.played.go.set()
    await stopping
    assert world.played.begun == ["stop 10.0"]


async def test_removal_ends_when_the_node_is_taken(world: World) -> None:
    world.played.settings.on_remove()
    await world.begun("remove")
    world.played.settings.on_taken()
    await world.begun("remove", "yield 10.0")
    world.played.go.set()
    await waiting.wait_until_async(lambda: world.removed, what="it has yielded")
    assert world.played.ended == ["yield 10.0"]
    await world.node.stop()
