"""SyncSets with data on nodes: order of data and workers, on a real API server with fake agents."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import api_resources, kinds
from kilnwork.jobs.flows import run_types
from support import controller_world, fake_pond_agents, ponds, set_world, waiting


class World(set_world.SetWorld):
    """A SyncSet world with the agents of a pond."""

    def __init__(self, kube: Any) -> None:
        super().__init__(kube)
        self.agents = fake_pond_agents.FakePondAgents(self.controllers.ledger)

    async def set_with_data(self, order: str, **group: Any) -> None:
        """Declare a SyncSet of two workers that reads one snapshot in shards."""
        snapshot = {"name": "trades", "from": {"source": "lake"}, "shard": {"by": "files"}}
        data = {"snapshots": [snapshot], "pond": {"order": order}}
        await self.declare_set(
            resources={"groups": self.groups(near=["trades"], **group)}, data=data
        )

    async def until_leased(self, *nodes: str) -> None:
        """Let agents pin until exactly these nodes have leases."""

        async def wanted() -> bool:
            await self.agents.work("a", "b")
            found = [n for n in ("a", "b") if "risk-g1" in await self.agents.leases(n)]
            return found == sorted(nodes)

        await waiting.wait_until_async(wanted, what=f"data is wanted on {nodes}")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with set_world.running(tmp_path, World) as made:
        assert isinstance(made, World)
        yield made


async def test_lead_mode_fetches_where_workers_fit_and_then_opens_the_gate(world: World) -> None:
    await world.gangs.node("a")
    await world.gangs.node("b", cpu="1")  # has no room for both
    world.agents.start("a", "b")
    await world.set_with_data("lead")
    await world.until_leased("a")
    status = await world.wait_for_set("Fetching", "Fetching")
    assert status["snapshots"]["trades"]["digest"] == world.agents.snapshot.digest
    assert status["snapshots"]["trades"]["shards"] == 3
    assert (status["dataReady"], status["gang"]) == ("0/1", "0/2")
    assert "node a has 1 of 6 bytes" in status["message"]
    assert await world.gangs.bound() == {}
    world.agents.ready.add("a")
    await world.agents.work("a")
    await world.connect_workers()
    assert set((await world.gangs.bound()).values()) == {"a"}
    await world.wait_for_set("Running")
    [run] = world.flows.started
    assert run.snapshots["trades"].digest == world.agents.snapshot.digest
    assert len(run.snapshots["trades"].shards or ()) == 3
    world.flows.move(1, run_types.FlowPhase.SUCCEEDED)
    await world.wait_for_set("Succeeded")

    async def released() -> bool:
        return await world.agents.leases("a") == set()

    await waiting.wait_until_async(released, what="the lease is released")


async def test_follow_mode_binds_workers_and_the_flow_waits_for_data(world: World) -> None:
    await world.gangs.node("a")
    await world.gangs.node("b")
    world.agents.start("a", "b")
    await world.set_with_data("follow")

    async def bound() -> bool:
        await world.agents.work("a", "b")
        return len(await world.gangs.bound()) == 2

    await waiting.wait_until_async(bound, what="workers have nodes")
    nodes = sorted(set((await world.gangs.bound()).values()))
    await world.gangs.connect()
    await world.until_leased(*nodes)
    status = await world.wait_for_set("Fetching", "Fetching")
    assert status["gang"] == "2/2"
    assert world.flows.started == []
    world.agents.ready |= set(nodes)
    await world.agents.work(*nodes)
    await world.wait_for_set("Running")


async def test_node_lost_while_fetching_is_replaced(world: World) -> None:
    await world.gangs.node("a")
    world.agents.start("a", "b")
    await world.set_with_data("lead")
    await world.until_leased("a")
    await world.gangs.node("b")
    await world.kube.delete(api_resources.NODES, "a")
    world.agents.ledger.node_gone(controller_world.NS, fake_pond_agents.POND, "a")

    async def wanted() -> bool:
        await world.agents.work("b")
        return "risk-g1" in await world.agents.leases("b")

    await waiting.wait_until_async(wanted, what="the data is wanted on b")
    world.agents.ready.add("b")
    await world.agents.work("b")
    await world.connect_workers()
    await world.wait_for_set("Running")
    assert set((await world.gangs.bound()).values()) == {"b"}


async def test_node_lost_under_waiting_workers_is_replaced(
    world: World,
) -> None:
    await world.gangs.node("a")
    world.agents.start("a", "b")
    await world.set_with_data("follow")
    await world.until_leased("a")
    await world.connect_workers()
    await world.gangs.node("b")
    await world.kube.delete(api_resources.NODES, "a")
    world.agents.ledger.node_gone(controller_world.NS, fake_pond_agents.POND, "a")
    for name in await world.gangs.bound():
        await world.kube.delete(api_resources.PODS, name, controller_world.NS, grace_s=0)

    async def wanted() -> bool:
        await world.agents.work("b")
        return "risk-g1" in await world.agents.leases("b")

    await waiting.wait_until_async(wanted, what="the data is wanted on b")
    await world.connect_workers()
    assert world.flows.started == []
    world.agents.ready.add("b")
    await world.agents.work("b")
    await world.wait_for_set("Running")
    assert set((await world.gangs.bound()).values()) == {"b"}


async def test_workers_are_placed_only_on_nodes_with_an_agent(world: World) -> None:
    await world.gangs.node("a")
    await world.gangs.node("without", cpu="64")
    world.agents.start("a")
    await world.set_with_data("lead")
    await world.until_leased("a")


async def test_new_manager_keeps_the_pinned_digest(world: World) -> None:
    await world.gangs.node("a")
    world.agents.start("a")
    await world.set_with_data("lead")
    await world.until_leased("a")
    before = (await world.wait_for_set("Fetching"))["snapshots"]["trades"]["digest"]
    await world.restart()
    world.agents.ledger = world.controllers.ledger
    world.agents.start("a")
    await world.until_leased("a")
    world.agents.ready.add("a")
    await world.agents.work("a")
    await world.connect_workers()
    status = await world.wait_for_set("Running")
    assert status["snapshots"]["trades"]["digest"] == before


@pytest.mark.parametrize("order", ["lead", "follow"])
@pytest.mark.parametrize("seed", range(3))
async def test_dying_managers_start_the_flow_once(world: World, order: str, seed: int) -> None:
    """A new manager every few milliseconds: the state is in objects, in the engine, and with the
    agents.
    """
    pauses = random.Random(seed)
    await world.gangs.node("a")
    await world.gangs.node("b")
    world.agents.start("a", "b")
    world.agents.ready |= {"a", "b"}
    await world.set_with_data(order)
    digests = set()
    for _ in range(12):
        await asyncio.sleep(pauses.uniform(0.0, 0.15))
        await world.agents.work("a", "b")
        await world.gangs.connect()
        found = (await world.set_status()).get("snapshots", {}).get("trades", {})
        digests |= {found["digest"]} if found.get("digest") else set()
        await world.restart()
        world.agents.ledger = world.controllers.ledger
        world.agents.start("a", "b")

    async def runs() -> bool:
        await world.agents.work("a", "b")
        await world.gangs.connect()
        return bool((await world.set_status())["phase"] == "Running")

    await waiting.wait_until_async(runs, what="the flow runs")
    assert len(world.flows.started) == 1
    assert digests <= {world.agents.snapshot.digest}
    assert await world.gangs.clusters() == ["risk-g1-worker"]
    assert len(await world.gangs.bound()) == 2


async def test_corrupt_data_fails_the_generation(world: World) -> None:
    """The source has other data when a new manager requests what was pinned."""
    await world.gangs.node("a")
    world.agents.start("a")
    await world.set_with_data("lead")
    await world.until_leased("a")
    await world.wait_for_set("Fetching")
    await world.restart()
    world.agents.ledger = world.controllers.ledger
    changed = {**fake_pond_agents.FILES, "0.csv": b"other\n"}
    world.agents.snapshot = ponds.manifest_of(changed)
    world.agents.start("a")

    async def reported() -> bool:
        await world.agents.work("a")
        return bool((await world.set_status())["phase"] == "Failed")

    await waiting.wait_until_async(reported, what="it has failed")
    assert (await world.set_status())["reason"] in ("SourceChanged", "DataCorrupt")


async def test_deleted_set_releases_its_lease(world: World) -> None:
    await world.gangs.node("a")
    world.agents.start("a")
    await world.set_with_data("lead")
    await world.until_leased("a")
    await world.kube.delete(kinds.SYNC_SETS, "risk", controller_world.NS, propagation="Background")

    async def released() -> bool:
        return await world.agents.leases("a") == set()

    await waiting.wait_until_async(released, what="the lease is released")


async def test_replacement_of_a_lost_worker_waits_for_its_data(world: World) -> None:
    await world.gangs.node("a", cpu="1")
    await world.gangs.node("b", cpu="1")
    world.agents.start("a", "b")
    await world.set_with_data("lead")
    await world.until_leased("a", "b")
    world.agents.ready |= {"a", "b"}
    await world.agents.work("a", "b")
    await world.connect_workers()
    await world.wait_for_set("Running")
    [lost] = [name for name, node in (await world.gangs.bound()).items() if node == "a"]
    await world.kube.delete(api_resources.NODES, "a")
    world.agents.ledger.node_gone(controller_world.NS, fake_pond_agents.POND, "a")
    await world.kube.delete(api_resources.PODS, lost, controller_world.NS, grace_s=0)
    await world.gangs.node("c", cpu="1")
    world.agents.start("b", "c")

    async def wanted() -> bool:
        await world.agents.work("b", "c")
        return "risk-g1" in await world.agents.leases("c")

    await waiting.wait_until_async(wanted, what="the data is wanted on c")
    assert sorted((await world.gangs.bound()).values()) == ["b"]
    world.agents.ready.add("c")

    async def replaced() -> bool:
        await world.agents.work("b", "c")
        return sorted((await world.gangs.bound()).values()) == ["b", "c"]

    await waiting.wait_until_async(replaced, what="the replacement has started")
    assert len(world.flows.started) == 1


async def run_elastic_set(world: World, **shard: Any) -> None:
    """Run a SyncSet whose flow runs on two workers that may become four, with one shard each."""
    await world.gangs.node("a", cpu="8")
    world.agents.start("a")
    world.agents.ready.add("a")
    group = {"min": 1, "elastic": {"max": 4}}
    snapshot = {"name": "trades", "from": {"source": "lake"}, "shard": shard}
    data = {"snapshots": [snapshot], "pond": {"order": "lead"}}
    await world.declare_set(resources={"groups": world.groups(**group)}, data=data)
    await world.until_leased("a")
    await world.agents.work("a")
    await world.connect_workers()
    await world.wait_for_set("Running")


async def wait_for_shards(world: World, count: int) -> None:
    async def reported() -> bool:
        status = await world.set_status()
        return bool(status["snapshots"]["trades"]["shards"] == count)

    await waiting.wait_until_async(reported, what=f"{count} shards")


async def test_unread_shards_are_divided_again_when_workers_change(
    world: World,
) -> None:
    """Statement 5, within a generation: shards that steps have begun to read stay
    (`jobs.flows`).
    """
    await run_elastic_set(world, by="range", group="worker")
    [started] = world.flows.started
    assert len(started.snapshots["trades"].shards or ()) == 2
    groups = world.groups(replicas=3, min=1, elastic={"max": 4})
    await world.change(resources={"groups": groups})
    await wait_for_shards(world, 3)
    [now] = world.flows.kept.values()
    found = now.snapshots["trades"].shards or []
    assert [one["count"] for one in found] == [3, 3, 3]
    assert now.snapshots["trades"].digest == started.snapshots["trades"].digest
    await world.connect_workers(3)
    assert len(world.flows.started) == 1


async def test_fixed_number_of_shards_stays_when_workers_grow(world: World) -> None:
    await run_elastic_set(world, by="range", count=2)
    await world.change(resources={"groups": world.groups(replicas=4, min=1, elastic={"max": 4})})
    await world.connect_workers(4)
    await wait_for_shards(world, 2)
    [now] = world.flows.kept.values()
    assert len(now.snapshots["trades"].shards or ()) == 2


async def test_suspended_flow_keeps_its_workers_and_their_data(world: World) -> None:
    await run_elastic_set(world, by="files")
    bound = await world.gangs.bound()
    await world.change(suspend=True)
    await world.wait_for_set("Suspended")
    assert world.flows.suspended == [True]
    assert await world.gangs.bound() == bound
    assert await world.agents.leases("a") == {"risk-g1"}
    await world.change(suspend=False)
    await world.wait_for_set("Running")
    assert world.flows.suspended == [True, False]
    assert len(world.flows.started) == 1


async def test_removed_workers_leave_their_nodes(world: World) -> None:
    await run_elastic_set(world, by="files")
    await world.change(resources={"groups": world.groups(replicas=1, min=1, elastic={"max": 4})})

    async def one_left() -> bool:
        await world.gangs.end_pods()
        status = await world.set_status()
        reported = (status["phase"], status["gang"], status["groups"]["worker"]["desired"])
        return reported == ("Running", "1/1", 1) and len(await world.gangs.bound()) == 1

    await waiting.wait_until_async(one_left, what="one worker is left, and the flow goes on")


async def test_outputs_are_kept_although_managers_die(world: World) -> None:
    """The digest is published when nodes hold the data, until the generation is forgotten."""
    await world.gangs.node("a")
    world.agents.start("a")
    world.agents.ready.add("a")
    outputs = [{"name": "prices", "step": "price"}]
    await world.declare_set(
        resources={"groups": world.groups()}, data={"outputs": outputs}, keep={"generations": 1}
    )

    async def bound() -> bool:
        await world.agents.work("a")
        return len(await world.gangs.bound()) == 2

    await waiting.wait_until_async(bound, what="workers have nodes")
    await world.gangs.connect()
    await world.until_leased("a")
    await world.agents.work("a")
    await world.wait_for_set("Running")
    world.flows.instances = [
        run_types.InstanceView(
            key="price",
            step="price",
            state=run_types.InstanceState.SUCCEEDED,
            task="t",
            node="a",
            attempt=1,
        )
    ]
    world.agents.ready.clear()
    world.flows.move(1, run_types.FlowPhase.SUCCEEDED)
    await world.wait_for_set("Running", "KeepingOutputs")
    await world.restart()
    world.agents.ledger = world.controllers.ledger
    world.agents.start("a")

    async def held() -> bool:
        await world.agents.work("a")
        return "risk-g1.out" in await world.agents.leases("a")

    await waiting.wait_until_async(held, what="the node is to hold the output")
    assert (await world.set_status())["phase"] == "Running"
    world.agents.ready.add("a")
    await world.agents.work("a")
    status = await world.wait_for_set("Succeeded")
    assert status["outputs"]["prices"]["digest"] == world.agents.snapshot.digest
    await world.end_all_pods()
    assert "risk-g1.out" in await world.agents.leases("a")
    await world.kube.delete(kinds.SYNC_SETS, "risk", controller_world.NS)

    async def released() -> bool:
        return await world.agents.leases("a") == set()

    await waiting.wait_until_async(released, what="the output goes with its set")
