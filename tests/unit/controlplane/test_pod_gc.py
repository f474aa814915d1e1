"""Pods whose node was deleted fail and go; what a finalizer holds says so and stays."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kilnwork.api import api_resources, meta
from kilnwork.controlplane import pod_gc
from kilnwork.controlplane.apiserver import deletion, write_types
from support import store_world, waiting

PODS, NODES = api_resources.PODS, api_resources.NODES


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[store_world.World]:
    async with store_world.open_world(tmp_path) as found:
        await waiting.wait_until_async(
            lambda: found.get(api_resources.SERVICE_ACCOUNTS, "default"), what="the default account"
        )
        running = pod_gc.PodCollector(found.writer, found.deleter, quarantine_s=0.1, check_s=0.02)
        running.start()
        yield found
        await running.stop()


async def add_pod(world: store_world.World, name: str, node: str, **metadata: object) -> None:
    spec = {"containers": [{"name": "main", "image": "host"}], "nodeName": node}
    await world.create(PODS, name, spec=spec, metadata=metadata)


def stored_pod(world: store_world.World) -> meta.JsonObject:
    found = world.get(PODS, "held")
    assert found is not None
    return found


async def test_pods_of_a_deleted_node_fail_and_are_deleted(world: store_world.World) -> None:
    for node in ("stays", "goes"):
        await world.create(NODES, node)
    await add_pod(world, "other", "stays")
    await add_pod(world, "free", "goes")
    await add_pod(world, "held", "goes", finalizers=["example.com/wait"])
    await world.delete(PODS, "held", grace_s=0)
    await world.deleter.delete(write_types.target_of(NODES, "", "goes"), deletion.DeleteOptions())
    await world.gone(PODS, "free")
    assert world.get(PODS, "other")
    await waiting.wait_until_async(
        lambda: stored_pod(world)["status"].get("phase") == "Failed", what="held has failed"
    )
    [condition] = [
        c for c in stored_pod(world)["status"]["conditions"] if c["type"] == "DisruptionTarget"
    ]
    assert (condition["status"], condition["reason"]) == ("True", "DeletionByPodGC")
