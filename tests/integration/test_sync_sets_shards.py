"""Data delivered by shards: the assignment to nodes, and the workers that read them.

On a real API server with fake agents, workers and flows; see `test_sync_sets_data`.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import api_resources
from support import controller_world, fake_pond_agents, ponds, set_world, waiting

FILES = {f"{number}.csv": b"1\n" for number in range(8)}
FLOW = {"do": [{"price": {"each": "s", "of": "data.trades", "command": ["true"]}}]}
CLUSTER = "risk-g1-worker"


class World(set_world.SetWorld):
    """Nodes with room for two workers each, and the agents of a pond."""

    def __init__(self, kube: Any) -> None:
        super().__init__(kube)
        self.agents = fake_pond_agents.FakePondAgents(self.controllers.ledger)
        self.agents.snapshot = ponds.manifest_of(FILES)
        self.nodes: list[str] = []

    async def add(self, *names: str, cpu: str = "2") -> None:
        for name in names:
            await self.gangs.node(name, cpu=cpu)
        self.nodes += names
        self.agents.start(*self.nodes)

    async def lose(self, name: str) -> None:
        """Remove a node with its agent and its workers."""
        lost = [pod for pod, node in (await self.gangs.bound()).items() if node == name]
        await self.kube.delete(api_resources.NODES, name)
        self.nodes.remove(name)
        self.agents.ledger.node_gone(controller_world.NS, fake_pond_agents.POND, name)
        for pod in lost:
            await self.kube.delete(api_resources.PODS, pod, controller_world.NS, grace_s=0)

    async def declare(self, *, replicas: int = 4, order: str = "lead", **group: Any) -> None:
        """Declare a SyncSet whose one step has a task for each of eight shards."""
        snapshot = {
            "name": "trades",
            "from": {"source": "lake"},
            "shard": {"by": "files", "count": 8},
            "deliver": "shard",
        }
        await self.declare_set(
            resources={"groups": self.groups(replicas=replicas, **group)},
            data={"snapshots": [snapshot], "pond": {"order": order}},
            flow=FLOW,
        )

    async def files(self, node: str) -> set[str]:
        """Return the files of the snapshot that a node is to have."""
        found: set[str] = set()
        for lease in (await self.agents.ordered(node)).leases:
            for one in lease.snapshots:
                assert one.paths is not None
                found |= set(one.paths)
        return found

    async def placed(self) -> dict[str, set[str]]:
        return {node: await self.files(node) for node in self.nodes}

    async def until(self, what: str, holds: Any) -> None:
        """Let agents and workers act until it holds."""

        async def held() -> bool:
            await self.agents.work(*self.nodes)
            await self.gangs.connect()
            return bool(await holds())

        await waiting.wait_until_async(held, what=what)

    async def runs(self) -> None:
        async def running() -> bool:
            return bool((await self.set_status()).get("phase") == "Running")

        await self.until("the flow runs", running)

    def served(self) -> dict[str, set[int]]:
        """Return the portions whose tasks go to workers of a node."""
        found = self.hub.portions.get(CLUSTER, {})
        return {node: set(has) for node, has in found.items()}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with set_world.running(tmp_path, World) as made:
        assert isinstance(made, World)
        yield made


@pytest.mark.parametrize("order", ["lead", "follow"])
async def test_each_node_gets_the_shards_of_its_workers(world: World, order: str) -> None:
    await world.add("a", "b")
    await world.declare(order=order)

    async def half_each() -> bool:
        found = await world.placed()
        return len(found["a"]) == len(found["b"]) == 4

    await world.until("each node is to have its half", half_each)
    found = await world.placed()
    assert found["a"] | found["b"] == set(FILES)
    world.agents.ready.add("a")

    async def fetching() -> bool:
        status = await world.set_status()
        wanted = status["snapshots"]["trades"].get("nodesWanted")
        return (status["phase"], wanted) == ("Fetching", 2)

    await world.until("both nodes are waited for", fetching)
    assert world.flows.started == []
    world.agents.ready.add("b")
    await world.runs()
    assert await world.placed() == found
    [run] = world.flows.started
    assert (run.by_shard, run.portions) == (("trades",), {"worker": 4})
    served = world.served()
    assert served["a"] | served["b"] == {0, 1, 2, 3}
    for node, portions in served.items():
        files = [f"{number}.csv" for number in range(8) if number // 2 in portions]
        assert found[node] == set(files)


async def test_replacement_gets_the_shards_of_the_lost_worker_and_waits_for_them(
    world: World,
) -> None:
    await world.add("a", "b")
    world.agents.ready |= {"a", "b", "c"}
    await world.declare()
    await world.runs()
    before = await world.placed()
    await world.add("c")
    world.agents.ready.discard("c")
    await world.lose("a")

    async def wanted_on_c() -> bool:
        return await world.files("c") == before["a"] and set(world.served()) == {"b"}

    await world.until("c is to have what a had", wanted_on_c)
    assert set((await world.gangs.bound()).values()) == {"b"}
    world.agents.ready.add("c")

    async def served_by_c() -> bool:
        return len(world.served().get("c", ())) == 2

    await world.until("c serves them", served_by_c)
    assert await world.files("b") == before["b"]


async def test_other_nodes_get_the_shards_when_there_is_no_room_for_a_replacement(
    world: World,
) -> None:
    await world.add("a", "b")
    world.agents.ready |= {"a", "b"}
    await world.declare()
    await world.runs()
    world.agents.ready.discard("b")
    await world.lose("a")

    async def all_on_b() -> bool:
        return await world.files("b") == set(FILES)

    await world.until("b is to have all", all_on_b)
    assert len(world.served()["b"]) == 2  # its earlier tasks go on meanwhile
    world.agents.ready.add("b")

    async def served_by_b() -> bool:
        return world.served() == {"b": {0, 1, 2, 3}}

    await world.until("b serves all", served_by_b)


async def test_more_workers_get_a_part_of_the_shards(world: World) -> None:
    await world.add("a", cpu="1")
    world.agents.ready |= {"a", "b"}
    await world.declare(replicas=1, min=1, elastic={"max": 2})
    await world.runs()
    assert await world.files("a") == set(FILES)
    await world.add("b", cpu="1")
    await world.change(resources={"groups": world.groups(replicas=2, min=1, elastic={"max": 2})})

    async def both_serve() -> bool:
        found = world.served()
        return found.get("a") == {0, 1} and len(found.get("b", ())) == 1

    await world.until("b serves a part", both_serve)
    assert len(await world.files("b")) == 4
    assert await world.files("a") == set(FILES)


async def test_new_manager_finds_the_shards_where_they_are(world: World) -> None:
    await world.add("a", "b")
    world.agents.ready |= {"a", "b"}
    await world.declare()
    await world.runs()
    before, served = await world.placed(), world.served()
    await world.restart()
    world.agents.ledger = world.controllers.ledger
    world.agents.start(*world.nodes)
    world.hub.portions.clear()

    async def served_again() -> bool:
        return world.served() == served

    await world.until("the same nodes serve the same", served_again)
    assert await world.placed() == before
