"""Pods leave nodes whose NoExecute taints they do not tolerate."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import api_resources, meta, node_fit
from kilnwork.controlplane import taint_eviction
from support import store_world, waiting

PODS, NODES = api_resources.PODS, api_resources.NODES
TAINT = {"key": "sick", "effect": "NoExecute"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[store_world.World]:
    async with store_world.open_world(tmp_path) as found:
        await waiting.wait_until_async(
            lambda: found.get(api_resources.SERVICE_ACCOUNTS, "default"), what="the default account"
        )
        running = taint_eviction.TaintEviction(found.writer)
        running.start()
        yield found
        await running.stop()


async def add_pod(world: store_world.World, name: str, *tolerations: dict[str, Any]) -> None:
    spec = {
        "containers": [{"name": "main", "image": "host"}],
        "nodeName": "n",
        "tolerations": list(tolerations),
    }
    await world.create(PODS, name, spec=spec)


def is_deleted(world: store_world.World, name: str) -> bool:
    pod = world.get(PODS, name)
    return pod is None or "deletionTimestamp" in pod["metadata"]


async def test_pods_without_toleration_are_evicted_with_a_condition(
    world: store_world.World,
) -> None:
    await add_pod(world, "stays", {"key": "sick", "operator": "Exists"})
    await add_pod(world, "goes")
    await add_pod(world, "later", {"key": "sick", "operator": "Exists", "tolerationSeconds": 1})
    await world.create(NODES, "n", spec={"taints": [TAINT]})
    await waiting.wait_until_async(lambda: is_deleted(world, "goes"), what="goes is deleted")
    pod = world.get(PODS, "goes")
    if pod is not None:
        conditions = {c["type"]: c["reason"] for c in pod["status"]["conditions"]}
        assert conditions["DisruptionTarget"] == "DeletionByTaintManager"
    await waiting.wait_until_async(lambda: is_deleted(world, "later"), what="later is deleted")
    assert not is_deleted(world, "stays")


async def test_pod_bound_to_a_tainted_node_is_evicted(world: store_world.World) -> None:
    await world.create(NODES, "n", spec={"taints": [TAINT]})
    await add_pod(world, "p")
    await waiting.wait_until_async(lambda: is_deleted(world, "p"), what="p is deleted")


@pytest.mark.parametrize(
    ("tolerations", "stays"),
    [
        ([], 0.0),
        ([{"operator": "Exists"}], None),
        ([{"key": "sick", "operator": "Exists", "effect": "NoSchedule"}], 0.0),
        ([{"key": "sick", "value": "very"}], 0.0),
        ([{"key": "sick", "tolerationSeconds": 7}, {"operator": "Exists"}], 7.0),
        ([{"key": "sick", "tolerationSeconds": -1}], 0.0),
    ],
)
def test_toleration_seconds_delay_the_eviction(
    tolerations: list[dict[str, Any]], stays: float | None
) -> None:
    node: meta.JsonObject = {"metadata": {"name": "n"}, "spec": {"taints": [TAINT]}}
    assert node_fit.tolerated_s(node, {"spec": {"tolerations": tolerations}}) == stays
