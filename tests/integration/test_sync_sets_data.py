"""SyncSets on nodes with data: who waits for whom, on a real API server with played agents."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import kinds, resource
from kilnwork.jobs.flows import model
from support import controlled, played_agents, ponds, set_world, waiting


class World(set_world.SetWorld):
    """With the agents of a pond."""

    def __init__(self, kube: Any) -> None:
        super().__init__(kube)
        self.agents = played_agents.PlayedAgents(self.controllers.ledger)

    async def set_with_data(self, order: str, **group: Any) -> None:
        """A SyncSet of two workers that reads one snapshot in shards."""
        snapshot = {"name": "trades", "from": {"source": "lake"}, "shard": {"by": "files"}}
        data = {"snapshots": [snapshot], "pond": {"order": order}}
        await self.set(resources={"groups": self.groups(near=["trades"], **group)}, data=data)

    async def until_leased(self, *nodes: str) -> None:
        """Let agents pin, until exactly these nodes are to have the data."""

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


async def test_lead_fetches_where_workers_fit_and_opens_the_gate_then(world: World) -> None:
    await world.gangs.node("a")
    await world.gangs.node("b", cpu="1")  # has no room for both
    world.agents.start("a", "b")
    await world.set_with_data("lead")
    await world.until_leased("a")
    status = await world.set_is("Fetching", "Fetching")
    assert status["snapshots"]["trades"]["digest"] == world.agents.snapshot.digest
    assert status["snapshots"]["trades"]["shards"] == 3
    assert (status["dataReady"], status["gang"]) == ("0/1", "0/2")
    assert "node a has 1 of 6 bytes" in status["message"]
    assert await world.gangs.bound() == {}
    world.agents.ready.add("a")
    await world.agents.work("a")
    await world.gathered()
    assert set((await world.gangs.bound()).values()) == {"a"}
    await world.set_is("Running")
    [run] = world.flows.started
    assert run.snapshots["trades"].digest == world.agents.snapshot.digest
    assert len(run.snapshots["trades"].shards or ()) == 3
    world.flows.move(1, model.FlowPhase.SUCCEEDED)
    await world.set_is("Succeeded")

    async def released() -> bool:
        return await world.agents.leases("a") == set()

    await waiting.wait_until_async(released, what="the lease is released")


async def test_follow_binds_workers_and_the_flow_waits_for_their_data(world: World) -> None:
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
    status = await world.set_is("Fetching", "Fetching")
    assert status["gang"] == "2/2"
    assert world.flows.started == []
    world.agents.ready |= set(nodes)
    await world.agents.work(*nodes)
    await world.set_is("Running")


async def test_node_that_is_lost_while_it_fetches_is_replaced(world: World) -> None:
    await world.gangs.node("a")
    world.agents.start("a", "b")
    await world.set_with_data("lead")
    await world.until_leased("a")
    await world.gangs.node("b")
    await world.kube.delete(resource.NODES, "a")
    world.agents.ledger.node_gone(controlled.NS, played_agents.POND, "a")

    async def wanted() -> bool:
        await world.agents.work("b")
        return "risk-g1" in await world.agents.leases("b")

    await waiting.wait_until_async(wanted, what="the data is wanted on b")
    world.agents.ready.add("b")
    await world.agents.work("b")
    await world.gathered()
    await world.set_is("Running")
    assert set((await world.gangs.bound()).values()) == {"b"}


async def test_node_that_is_lost_under_workers_that_wait_for_data_is_replaced(
    world: World,
) -> None:
    await world.gangs.node("a")
    world.agents.start("a", "b")
    await world.set_with_data("follow")
    await world.until_leased("a")
    await world.gathered()
    await world.gangs.node("b")
    await world.kube.delete(resource.NODES, "a")
    world.agents.ledger.node_gone(controlled.NS, played_agents.POND, "a")
    for name in await world.gangs.bound():
        await world.kube.delete(resource.PODS, name, controlled.NS, grace_s=0)

    async def wanted() -> bool:
        await world.agents.work("b")
        return "risk-g1" in await world.agents.leases("b")

    await waiting.wait_until_async(wanted, what="the data is wanted on b")
    await world.gathered()
    assert world.flows.started == []
    world.agents.ready.add("b")
    await world.agents.work("b")
    await world.set_is("Running")
    assert set((await world.gangs.bound()).values()) == {"b"}


async def test_workers_go_only_where_an_agent_is(world: World) -> None:
    await world.gangs.node("a")
    await world.gangs.node("without", cpu="64")
    world.agents.start("a")
    await world.set_with_data("lead")
    await world.until_leased("a")


async def test_new_manager_wants_the_same_data_again_and_the_digest_stays(world: World) -> None:
    await world.gangs.node("a")
    world.agents.start("a")
    await world.set_with_data("lead")
    await world.until_leased("a")
    before = (await world.set_is("Fetching"))["snapshots"]["trades"]["digest"]
    await world.restart()
    world.agents.ledger = world.controllers.ledger
    world.agents.start("a")
    await world.until_leased("a")
    world.agents.ready.add("a")
    await world.agents.work("a")
    await world.gathered()
    status = await world.set_is("Running")
    assert status["snapshots"]["trades"]["digest"] == before


@pytest.mark.parametrize("order", ["lead", "follow"])
@pytest.mark.parametrize("seed", range(3))
async def test_managers_that_die_all_the_time_start_the_flow_once(
    world: World, order: str, seed: int
) -> None:
    """A new manager after a few milliseconds, again and again: what counts is in objects, in the
    engine, and with the agents."""
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
    """The source has other data by the time at which a new manager asks for what was pinned."""
    await world.gangs.node("a")
    world.agents.start("a")
    await world.set_with_data("lead")
    await world.until_leased("a")
    await world.set_is("Fetching")
    await world.restart()
    world.agents.ledger = world.controllers.ledger
    changed = {**played_agents.FILES, "0.csv": b"other\n"}
    world.agents.snapshot = ponds.manifest_of(changed)
    world.agents.start("a")

    async def told() -> bool:
        await world.agents.work("a")
        return bool((await world.set_status())["phase"] == "Failed")

    await waiting.wait_until_async(told, what="it has failed")
    assert (await world.set_status())["reason"] in ("SourceChanged", "DataCorrupt")


async def test_deleted_set_releases_its_lease(world: World) -> None:
    await world.gangs.node("a")
    world.agents.start("a")
    await world.set_with_data("lead")
    await world.until_leased("a")
    await world.kube.delete(kinds.SYNC_SETS, "risk", controlled.NS, propagation="Background")

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
    await world.gathered()
    await world.set_is("Running")
    [lost] = [name for name, node in (await world.gangs.bound()).items() if node == "a"]
    await world.kube.delete(resource.NODES, "a")
    world.agents.ledger.node_gone(controlled.NS, played_agents.POND, "a")
    await world.kube.delete(resource.PODS, lost, controlled.NS, grace_s=0)
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


async def elastic(world: World, **shard: Any) -> None:
    """A SyncSet whose flow runs, of two workers that may be four; one shard for each."""
    await world.gangs.node("a", cpu="8")
    world.agents.start("a")
    world.agents.ready.add("a")
    group = {"min": 1, "elastic": {"max": 4}}
    snapshot = {"name": "trades", "from": {"source": "lake"}, "shard": shard}
    data = {"snapshots": [snapshot], "pond": {"order": "lead"}}
    await world.set(resources={"groups": world.groups(**group)}, data=data)
    await world.until_leased("a")
    await world.agents.work("a")
    await world.gathered()
    await world.set_is("Running")


async def shards_are(world: World, count: int) -> None:
    async def told() -> bool:
        status = await world.set_status()
        return bool(status["snapshots"]["trades"]["shards"] == count)

    await waiting.wait_until_async(told, what=f"{count} shards")


async def test_shards_that_follow_workers_are_divided_anew_while_no_step_reads_them(
    world: World,
) -> None:
    """Statement 5, within a generation: what steps have begun to read stays (`jobs.flows`)."""
    await elastic(world, by="range", group="worker")
    [started] = world.flows.started
    assert len(started.snapshots["trades"].shards or ()) == 2
    groups = world.groups(replicas=3, min=1, elastic={"max": 4})
    await world.change(resources={"groups": groups})
    await shards_are(world, 3)
    [now] = world.flows.kept.values()
    found = now.snapshots["trades"].shards or []
    assert [one["count"] for one in found] == [3, 3, 3]
    assert now.snapshots["trades"].digest == started.snapshots["trades"].digest
    await world.gathered(3)
    assert len(world.flows.started) == 1


async def test_shards_of_a_fixed_number_stay_when_workers_become_more(world: World) -> None:
    await elastic(world, by="range", count=2)
    await world.change(resources={"groups": world.groups(replicas=4, min=1, elastic={"max": 4})})
    await world.gathered(4)
    await shards_are(world, 2)
    [now] = world.flows.kept.values()
    assert len(now.snapshots["trades"].shards or ()) == 2


async def test_suspended_flow_keeps_its_workers_and_their_data(world: World) -> None:
    await elastic(world, by="files")
    bound = await world.gangs.bound()
    await world.change(suspend=True)
    await world.set_is("Suspended")
    assert world.flows.suspended == [True]
    assert await world.gangs.bound() == bound
    assert await world.agents.leases("a") == {"risk-g1"}
    await world.change(suspend=False)
    await world.set_is("Running")
    assert world.flows.suspended == [True, False]
    assert len(world.flows.started) == 1


async def test_fewer_workers_leave_their_nodes(world: World) -> None:
    await elastic(world, by="files")
    await world.change(resources={"groups": world.groups(replicas=1, min=1, elastic={"max": 4})})

    async def one_left() -> bool:
        await world.gangs.end_pods()
        status = await world.set_status()
        told = (status["phase"], status["gang"], status["groups"]["worker"]["desired"])
        return told == ("Running", "1/1", 1) and len(await world.gangs.bound()) == 1

    await waiting.wait_until_async(one_left, what="one worker is left, and the flow goes on")


async def test_outputs_are_kept_though_managers_die_meanwhile(world: World) -> None:
    """The digest is told when nodes hold it, and they do until the generation is forgotten."""
    await world.gangs.node("a")
    world.agents.start("a")
    world.agents.ready.add("a")
    outputs = [{"name": "prices", "step": "price"}]
    await world.set(
        resources={"groups": world.groups()}, data={"outputs": outputs}, keep={"generations": 1}
    )

    async def bound() -> bool:
        await world.agents.work("a")
        return len(await world.gangs.bound()) == 2

    await waiting.wait_until_async(bound, what="workers have nodes")
    await world.gangs.connect()
    await world.until_leased("a")
    await world.agents.work("a")
    await world.set_is("Running")
    world.flows.instances = [
        model.InstanceView(
            key="price",
            step="price",
            state=model.InstanceState.SUCCEEDED,
            task="t",
            node="a",
            attempt=1,
        )
    ]
    world.agents.ready.clear()
    world.flows.move(1, model.FlowPhase.SUCCEEDED)
    await world.set_is("Running", "KeepingOutputs")
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
    status = await world.set_is("Succeeded")
    assert status["outputs"]["prices"]["digest"] == world.agents.snapshot.digest
    await world.pods_end()
    assert "risk-g1.out" in await world.agents.leases("a")
    await world.kube.delete(kinds.SYNC_SETS, "risk", controlled.NS)

    async def released() -> bool:
        return await world.agents.leases("a") == set()

    await waiting.wait_until_async(released, what="the output goes with its set")
