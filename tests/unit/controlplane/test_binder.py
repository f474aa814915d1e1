"""Pods find a node that fits, or a reason."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import meta, resource
from kilnwork.controlplane import binder
from support import objects, waiting

PODS, NODES = resource.PODS, resource.NODES
SPEC: dict[str, Any] = {"containers": [{"name": "main", "image": "host"}]}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[objects.World]:
    async with objects.world(tmp_path) as found:
        await waiting.wait_until_async(
            lambda: found.get(resource.SERVICE_ACCOUNTS, "default"), what="the default account"
        )
        running = binder.Binder(found.writer)
        running.start()
        yield found
        await running.stop()


async def add_node(world: objects.World, name: str, *, ready: bool = True, **spec: Any) -> None:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    await world.create(NODES, name, spec=spec, status={"conditions": [condition]})


def pod(world: objects.World, name: str = "p") -> meta.JsonObject:
    found = world.get(PODS, name)
    assert found is not None
    return found


def scheduled(world: objects.World, name: str = "p") -> dict[str, Any]:
    conditions = pod(world, name)["status"].get("conditions", ())
    return next((c for c in conditions if c["type"] == "PodScheduled"), {})


async def test_a_pod_goes_to_the_ready_node(world: objects.World) -> None:
    await add_node(world, "n")
    await world.create(PODS, "p", spec=SPEC)
    await waiting.wait_until_async(lambda: pod(world)["spec"].get("nodeName"), what="bound")
    assert pod(world)["spec"]["nodeName"] == "n"
    assert scheduled(world)["status"] == "True"
    assert pod(world)["metadata"]["generation"] >= 1


async def test_a_pod_waits_with_a_reason_until_a_node_comes(world: objects.World) -> None:
    await add_node(world, "away", ready=False)
    await add_node(world, "closed", unschedulable=True)
    await world.create(PODS, "p", spec=SPEC)
    await waiting.wait_until_async(lambda: scheduled(world), what="a reason")
    assert scheduled(world)["reason"] == "Unschedulable"
    assert scheduled(world)["message"] == (
        "0/2 nodes are available: 1 node(s) were not ready, 1 node(s) were unschedulable."
    )
    await add_node(world, "n")
    await waiting.wait_until_async(lambda: pod(world)["spec"].get("nodeName") == "n", what="bound")
    assert scheduled(world)["status"] == "True"


async def test_a_reason_is_written_once(world: objects.World) -> None:
    await world.create(PODS, "p", spec=SPEC)
    await waiting.wait_until_async(lambda: scheduled(world), what="a reason")
    before = pod(world)["metadata"]["resourceVersion"]
    again = binder.Binder(world.writer)
    again.start()
    await world.create(PODS, "q", spec=SPEC)
    await waiting.wait_until_async(lambda: scheduled(world, "q"), what="the next one's reason")
    await again.stop()
    assert pod(world)["metadata"]["resourceVersion"] == before


@pytest.mark.parametrize("more", [{"schedulerName": "mine"}, {"nodeName": "elsewhere"}])
async def test_other_pods_are_not_ours(world: objects.World, more: dict[str, str]) -> None:
    await add_node(world, "n")
    await world.create(PODS, "other", spec=SPEC | more)
    await world.create(PODS, "p", spec=SPEC)
    await waiting.wait_until_async(lambda: pod(world)["spec"].get("nodeName"), what="p is bound")
    assert pod(world, "other")["spec"].get("nodeName") == more.get("nodeName")
