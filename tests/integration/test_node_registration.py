"""Node and Lease objects of our node: taints, conditions, annotations, and removal."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from kilnwork.api import api_resources
from kilnwork.controlplane.node import node_lease, node_removal, registration, virtual_node
from kilnwork.kit import clock
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import errors
from support import control_plane_world, waiting

TAINT = registration.NodeTaint("k", "v", "NoSchedule")


class World(control_plane_world.World):
    """An API server without a node, and a registration."""

    def __init__(self) -> None:
        super().__init__()
        self.removals = 0

    def registration(self, *taints: registration.NodeTaint) -> registration.Registration:
        identity = registration.NodeIdentity("n", "127.0.0.1", 1, {"zone": "a"}, taints)
        return registration.Registration(
            self.kube, identity, now=clock.SystemClock(), on_remove=self._removed
        )

    def _removed(self) -> None:
        self.removals += 1

    async def node(self) -> dict[str, Any]:
        return await self.kube.get(api_resources.NODES, "n")

    async def conditions(self) -> dict[str, str]:
        return {c["type"]: c["status"] for c in (await self.node())["status"]["conditions"]}


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    async with World() as made:
        yield made


async def test_new_node_has_its_taint_and_labels(world: World) -> None:
    await world.registration(TAINT).register()
    node = await world.node()
    assert node["spec"]["taints"] == [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    assert node["metadata"]["labels"]["zone"] == "a"
    wanted = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False"}
    assert (await world.conditions()).items() >= wanted.items()


async def test_existing_node_gets_the_taint_and_keeps_foreign_taints(world: World) -> None:
    await world.registration().register()
    other = {"key": "other", "effect": "NoExecute"}
    await world.kube.merge_patch(api_resources.NODES, "n", {"spec": {"taints": [other]}})
    await world.registration(TAINT).register()
    taints = (await world.node())["spec"]["taints"]
    assert [(t["key"], t["effect"]) for t in taints] == [
        ("other", "NoExecute"),
        ("k", "NoSchedule"),
    ]


async def test_node_of_a_kubelet_is_unchanged(world: World) -> None:
    await world.registration().register()
    info = {"containerRuntimeVersion": "containerd://1.7.0", "kubeletVersion": "v1.33.0"}
    patch = {"status": {"nodeInfo": info}}
    before = await world.kube.merge_patch(api_resources.NODES, "n", patch, subresource="status")
    with pytest.raises(kit_errors.ConfigurationError, match="another --name"):
        await world.registration(TAINT).register()
    settings = virtual_node.VirtualNodeSettings("n", world.data, world.data, "127.0.0.1")
    config = world.plane.admin_config()
    with pytest.raises(kit_errors.ConfigurationError, match=r"a kubelet \(v1\.33\.0, containerd"):
        await node_removal.remove(config, settings, say=print, time=clock.SystemClock())
    assert await world.node() == before


async def test_foreign_conditions_are_kept(world: World) -> None:
    await world.registration().register()
    status = (await world.node())["status"]
    foreign = {"type": "NetworkUnavailable", "status": "False", "reason": "r", "message": "m"}
    patch = {"status": {"conditions": [*status["conditions"], foreign]}}
    await world.kube.merge_patch(api_resources.NODES, "n", patch, subresource="status")
    await world.registration().register()
    assert (await world.conditions())["NetworkUnavailable"] == "False"


async def test_stopping_node_reports_not_ready(world: World) -> None:
    known = world.registration()
    await known.register()
    await known.leave()
    conditions = await world.conditions()
    assert (conditions["Ready"], conditions["MemoryPressure"]) == ("False", "False")


async def test_lease_is_owned_by_the_node_and_removed_with_it(world: World) -> None:
    known = world.registration()
    await known.register()
    keeping = asyncio.create_task(known.keep())

    async def lease() -> dict[str, Any]:
        try:
            return await world.kube.get(api_resources.LEASES, "n", node_lease.NAMESPACE)
        except errors.NotFound:
            return {}

    await waiting.wait_until_async(lease, what="the lease is there")
    keeping.cancel()
    owner = (await lease())["metadata"]["ownerReferences"][0]
    assert owner["uid"] == (await world.node())["metadata"]["uid"]
    await known.remove()
    assert await lease() == {}
    with pytest.raises(errors.NotFound):
        await world.node()


async def test_removal_annotation_is_cleared_by_a_new_start(world: World) -> None:
    known = world.registration()
    await known.register()
    mark = {"metadata": {"annotations": {registration.REMOVE: "true"}}}
    await world.kube.merge_patch(api_resources.NODES, "n", mark)
    keeping = asyncio.create_task(known.keep())
    await waiting.wait_until_async(lambda: world.removals == 1, what="it is asked to go")
    keeping.cancel()
    await world.registration().register()
    assert registration.REMOVE not in ((await world.node())["metadata"].get("annotations") or {})
