"""Two processes that claim the same node name: the Lease decides."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kilnwork.api import api_resources
from kilnwork.controlplane.node import node_lease, registration, virtual_node
from kilnwork.kit import clock
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import errors
from support import control_plane_world, waiting


class World(control_plane_world.World):
    """An API server without a node, and a clock that machines share unless they have their own."""

    def __init__(self) -> None:
        super().__init__()
        self.now = clock.ManualClock()
        self.taken: list[str] = []

    def node(self, holder: str, now: clock.Clock | None = None) -> registration.Registration:
        identity = registration.NodeIdentity("n", "127.0.0.1", 1, holder=holder)
        return registration.Registration(
            self.kube, identity, now=now or self.now, on_taken=lambda: self.taken.append(holder)
        )

    async def claimed(self, holder: str, now: clock.Clock | None = None) -> None:
        await self.node(holder, now).claim()

    async def lease(self) -> dict[str, Any]:
        return await self.kube.get(api_resources.LEASES, "n", node_lease.NAMESPACE)

    async def holder(self) -> str:
        return str((await self.lease())["spec"]["holderIdentity"])

    def virtual_node(self, directory: str, *, port: int = 0) -> virtual_node.VirtualNode:
        (self.data / directory).mkdir()
        settings = virtual_node.VirtualNodeSettings(
            "n", self.data / directory, self.data, "127.0.0.1", taints=(), port=port
        )
        return virtual_node.VirtualNode(
            self.plane.admin_config(), settings, on_removed=lambda: self.taken.append(directory)
        )


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with World() as made:
        yield made


async def test_second_node_is_refused_with_the_name_of_the_first(world: World) -> None:
    await world.claimed("first_1")
    before = await world.lease()
    world.now.advance(7)
    with pytest.raises(kit_errors.ConfigurationError) as refused:
        await world.claimed("second_2")
    assert str(refused.value) == (
        "node n is run by first_1, whose Lease was renewed 7 s ago "
        f"({before['spec']['renewTime']}): stop it there, or choose another --name; "
        "a name is free 80 s after its last renewal"
    )
    assert await world.lease() == before
    with pytest.raises(errors.NotFound):
        await world.kube.get(api_resources.NODES, "n")


async def test_restarted_node_gets_its_name_at_once(world: World) -> None:
    await world.claimed("first_1")
    await world.claimed("first_1")


async def test_only_one_of_many_nodes_gets_the_name(world: World) -> None:
    names = [f"m_{number}" for number in range(8)]
    ends = await asyncio.gather(*map(world.claimed, names), return_exceptions=True)
    [winner] = [name for name, end in zip(names, ends, strict=True) if end is None]
    assert await world.holder() == winner
    refused = [end for end in ends if end is not None]
    assert all(isinstance(end, kit_errors.ConfigurationError) for end in refused), ends


async def test_long_expired_lease_is_taken_over_at_once(world: World) -> None:
    await world.claimed("first_1")
    world.now.advance(node_lease.LEASE_S + node_lease.CLOCKS_S + 1)
    await world.claimed("second_2")
    assert await world.holder() == "second_2"


async def test_silent_lease_is_taken_over_after_observation(world: World) -> None:
    await world.claimed("first_1")
    world.now.advance(node_lease.LEASE_S + 1)
    second = asyncio.create_task(world.claimed("second_2"))
    await asyncio.wait([second], timeout=1.2)
    assert await world.holder() == "first_1"
    world.now.advance(node_lease.SILENT_S)
    await asyncio.wait_for(second, 30)
    assert await world.holder() == "second_2"


async def test_lease_renewed_by_a_slow_clock_is_not_taken_over(world: World) -> None:
    slow = clock.ManualClock()
    first = world.node("first_1", slow)
    await first.claim()
    world.now.advance(node_lease.LEASE_S + 5)
    second = asyncio.create_task(world.claimed("second_2"))
    await asyncio.wait([second], timeout=0.2)
    slow.advance(3)
    keeping = asyncio.create_task(first.keep())
    with pytest.raises(kit_errors.ConfigurationError, match="first_1"):
        await asyncio.wait_for(second, 30)
    keeping.cancel()


async def test_stopping_node_releases_its_name(world: World) -> None:
    first = world.node("first_1")
    await first.claim()
    await first.register()
    await first.leave()
    await world.claimed("second_2")
    assert await world.holder() == "second_2"


async def test_name_is_released_during_a_renewal(world: World) -> None:
    """The server has the renewal, and its response was not awaited."""
    first = world.node("first_1")
    await first.claim()
    await first.register()
    unheard = {"spec": {"renewTime": clock.rfc3339_micro(world.now.wall() + 1)}}
    await world.kube.merge_patch(api_resources.LEASES, "n", unheard, node_lease.NAMESPACE)
    await first.leave()
    await world.claimed("second_2")
    assert await world.holder() == "second_2"


async def test_lease_belongs_to_the_node_from_the_first_renewal(world: World) -> None:
    first = world.node("first_1")
    await first.claim()
    await first.register()
    keeping = asyncio.create_task(first.keep())

    async def owner() -> str:
        owners = (await world.lease())["metadata"].get("ownerReferences") or [{"uid": ""}]
        return str(owners[0]["uid"])

    uid = await waiting.wait_until_async(owner, what="an owner")
    assert uid == (await world.kube.get(api_resources.NODES, "n"))["metadata"]["uid"]
    keeping.cancel()


async def test_node_that_was_away_too_long_notices_its_loss(world: World) -> None:
    first = world.node("first_1")
    await first.claim()
    await first.register()
    world.now.advance(node_lease.LEASE_S + node_lease.CLOCKS_S + 1)
    await world.claimed("second_2")
    await asyncio.wait_for(first.keep(), 30)
    assert world.taken == ["first_1"]
    assert await world.holder() == "second_2"
    before = await world.kube.get(api_resources.NODES, "n")
    await first.leave()
    assert await world.holder() == "second_2"
    assert await world.kube.get(api_resources.NODES, "n") == before


async def test_second_kiln_node_starts_nothing(world: World) -> None:
    first, second = world.virtual_node("one"), world.virtual_node("two")
    await first.start()
    try:
        with pytest.raises(kit_errors.ConfigurationError, match="node n is run by "):
            await second.start()
        await second.stop()
        assert not (world.data / "two" / "shim").exists()
        assert not (world.data / "two" / "pods").exists()
    finally:
        await first.stop()
    again = world.virtual_node("three")
    await again.start()
    await again.stop()


async def test_kiln_node_that_lost_its_name_ends_its_pods_silently(world: World) -> None:
    first = world.virtual_node("one")
    await first.start()
    try:
        marker = world.data / "pid"
        script = f"echo $PPID > {marker}.new; mv {marker}.new {marker}; sleep 100"
        await _pod(world, ["sh", "-c", f"sh -c '{script}'; true"])
        await waiting.wait_until_async(marker.exists, what="it runs")
        pid = int(marker.read_text())
        assert Path(f"/proc/{pid}").exists()
        patch = {"spec": {"holderIdentity": "second_2"}}
        await world.kube.merge_patch(api_resources.LEASES, "n", patch, node_lease.NAMESPACE)
        await waiting.wait_until_async(lambda: world.taken == ["one"], what="it stops renewing")
        assert not Path(f"/proc/{pid}").exists()
        pod = await world.kube.get(api_resources.PODS, "p", "default")
        assert pod["status"]["phase"] == "Running"
    finally:
        await first.stop()
    assert await world.holder() == "second_2"


async def _pod(world: World, command: list[str]) -> None:
    container = {"name": "main", "image": "label", "command": command}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n", "containers": [container]},
    }
    await world.kube.create(api_resources.PODS, body, "default")
