"""Pods find a node that fits, or a reason."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork.api import api_resources, meta
from kilnwork.controlplane import binder
from kilnwork.controlplane.apiserver import write_types
from support import store_world, waiting

PODS, NODES = api_resources.PODS, api_resources.NODES
SPEC: dict[str, Any] = {"containers": [{"name": "main", "image": "host"}]}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[store_world.World]:
    async with store_world.open_world(tmp_path) as found:
        await waiting.wait_until_async(
            lambda: found.get(api_resources.SERVICE_ACCOUNTS, "default"), what="the default account"
        )
        running = binder.Binder(found.writer)
        running.start()
        yield found
        await running.stop()


async def add_node(world: store_world.World, name: str, *, ready: bool = True, **spec: Any) -> None:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    await world.create(NODES, name, spec=spec, status={"conditions": [condition]})


def pod(world: store_world.World, name: str = "p") -> meta.JsonObject:
    found = world.get(PODS, name)
    assert found is not None
    return found


def scheduled_condition(world: store_world.World, name: str = "p") -> dict[str, Any]:
    conditions = pod(world, name)["status"].get("conditions", ())
    return next((c for c in conditions if c["type"] == "PodScheduled"), {})


async def test_pod_is_bound_to_the_ready_node(world: store_world.World) -> None:
    await add_node(world, "n")
    await world.create(PODS, "p", spec=SPEC)
    await waiting.wait_until_async(lambda: pod(world)["spec"].get("nodeName"), what="bound")
    assert pod(world)["spec"]["nodeName"] == "n"
    assert scheduled_condition(world)["status"] == "True"
    assert pod(world)["metadata"]["generation"] >= 1


async def test_pod_is_unschedulable_until_a_node_appears(world: store_world.World) -> None:
    await add_node(world, "away", ready=False)
    await add_node(world, "closed", unschedulable=True)
    await world.create(PODS, "p", spec=SPEC)
    await waiting.wait_until_async(lambda: scheduled_condition(world), what="a reason")
    assert scheduled_condition(world)["reason"] == "Unschedulable"
    assert scheduled_condition(world)["message"] == (
        "0/2 nodes are available: 1 node(s) were not ready, 1 node(s) were unschedulable."
    )
    await add_node(world, "n")
    await waiting.wait_until_async(lambda: pod(world)["spec"].get("nodeName") == "n", what="bound")
    assert scheduled_condition(world)["status"] == "True"


async def test_unchanged_reason_is_written_once(world: store_world.World) -> None:
    await world.create(PODS, "p", spec=SPEC)
    await waiting.wait_until_async(lambda: scheduled_condition(world), what="a reason")
    before = pod(world)["metadata"]["resourceVersion"]
    again = binder.Binder(world.writer)
    again.start()
    await world.create(PODS, "q", spec=SPEC)
    await waiting.wait_until_async(
        lambda: scheduled_condition(world, "q"), what="the next one's reason"
    )
    await again.stop()
    assert pod(world)["metadata"]["resourceVersion"] == before


@pytest.mark.parametrize("more", [{"schedulerName": "mine"}, {"nodeName": "elsewhere"}])
async def test_pods_of_other_schedulers_are_ignored(
    world: store_world.World, more: dict[str, str]
) -> None:
    await add_node(world, "n")
    await world.create(PODS, "other", spec=SPEC | more)
    await world.create(PODS, "p", spec=SPEC)
    await waiting.wait_until_async(lambda: pod(world)["spec"].get("nodeName"), what="p is bound")
    assert pod(world, "other")["spec"].get("nodeName") == more.get("nodeName")


async def change_pod(
    world: store_world.World, name: str, *, subresource: str = "", **part: Any
) -> None:
    """Write parts of a Pod as its user or its node does."""
    place = write_types.target_of(PODS, "default", name)
    await world.writer.change_internally(
        place,
        lambda found: {**found, **part},
        write_types.WriteContext(),
        subresource=subresource,
    )


def node_status(**allocatable: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True"}
    return {"conditions": [ready], "allocatable": {"pods": "10", **allocatable}}


def spec_requesting(**requests: str) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "host", "resources": {"requests": requests}}]}


async def test_requests_count_until_a_pod_has_ended(world: store_world.World) -> None:
    await world.create(NODES, "n", status=node_status(cpu="2", memory="1Gi"))
    await world.create(PODS, "one", spec=spec_requesting(cpu="1500m", memory="512Mi"))
    await waiting.wait_until_async(lambda: pod(world, "one")["spec"].get("nodeName"), what="bound")
    await world.create(PODS, "p", spec=spec_requesting(cpu="1", memory="600Mi"))
    await waiting.wait_until_async(lambda: scheduled_condition(world), what="a reason")
    assert scheduled_condition(world)["message"] == (
        "0/1 nodes are available: 1 Insufficient cpu, Insufficient memory."
    )
    await change_pod(world, "one", subresource="status", status={"phase": "Succeeded"})
    await waiting.wait_until_async(lambda: pod(world)["spec"].get("nodeName") == "n", what="bound")


@pytest.mark.parametrize(
    ("taint", "toleration", "node"),
    [
        ({"key": "a", "value": "b", "effect": "NoSchedule"}, None, ""),
        ({"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "a", "value": "b"}, "n"),
        ({"key": "a", "value": "b", "effect": "NoExecute"}, {"key": "a", "value": "c"}, ""),
        ({"key": "a", "effect": "NoExecute"}, {"operator": "Exists"}, "n"),
        ({"key": "a", "effect": "PreferNoSchedule"}, None, "n"),
    ],
)
async def test_untolerated_taints_prevent_binding(
    world: store_world.World, taint: dict[str, str], toleration: dict[str, str] | None, node: str
) -> None:
    await add_node(world, "n", taints=[taint])
    tolerations = [toleration] if toleration else []
    await world.create(PODS, "p", spec={**SPEC, "tolerations": tolerations})
    await waiting.wait_until_async(lambda: scheduled_condition(world), what="a decision")
    assert pod(world)["spec"].get("nodeName", "") == node
    if not node:
        text = f"1 node(s) had untolerated taint {{a: {taint.get('value', '')}}}."
        assert scheduled_condition(world)["message"] == f"0/1 nodes are available: {text}"


def affinity(*expressions: dict[str, Any], **more: Any) -> dict[str, Any]:
    term = {"matchExpressions": list(expressions), **more}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(
    ("wanted", "node"),
    [
        (affinity({"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}), "n"),
        (affinity({"key": "disk", "operator": "NotIn", "values": ["ssd"]}), ""),
        (affinity({"key": "gpu", "operator": "Exists"}), ""),
        (affinity({"key": "gpu", "operator": "DoesNotExist"}), "n"),
        (affinity({"key": "cores", "operator": "Gt", "values": ["8"]}), "n"),
        (
            affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["x"]}]),
            "",
        ),
        (affinity(), ""),
    ],
)
async def test_required_node_affinity_is_respected(
    world: store_world.World, wanted: dict[str, Any], node: str
) -> None:
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    labels = {"disk": "ssd", "cores": "16"}
    await world.create(NODES, "n", metadata={"labels": labels}, status=status)
    await world.create(PODS, "p", spec={**SPEC, "affinity": wanted})
    await waiting.wait_until_async(lambda: scheduled_condition(world), what="a decision")
    assert pod(world)["spec"].get("nodeName", "") == node


async def test_gated_pod_waits_until_its_gates_are_removed(world: store_world.World) -> None:
    await add_node(world, "n")
    await world.create(PODS, "p", spec={**SPEC, "schedulingGates": [{"name": "a/b"}]})
    await waiting.wait_until_async(lambda: scheduled_condition(world), what="a reason")
    assert scheduled_condition(world)["reason"] == "SchedulingGated"
    await change_pod(world, "p", spec={**pod(world)["spec"], "schedulingGates": []})
    await waiting.wait_until_async(lambda: pod(world)["spec"].get("nodeName") == "n", what="bound")
