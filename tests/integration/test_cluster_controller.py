"""The TaskCluster controller on the real API server, with a fake dispatcher."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kilnwork import controllers
from kilnwork.api import api_resources, kinds
from kilnwork.controllers import unserved_namespace_cleanup
from kilnwork.kit import clock
from kilnwork.kube import errors
from support import controller_world, waiting


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[controller_world.World]:
    async with controller_world.running(tmp_path) as made:
        yield made


async def test_cluster_gets_its_secret_and_pods(world: controller_world.World) -> None:
    await world.cluster("counter", replicas=3, deploymentName="dep", slotsPerWorker=2)
    pods = await world.wait_for_pods("dep-0", "dep-1", "dep-2")
    secret = await world.kube.get(api_resources.SECRETS, "counter-channel", controller_world.NS)
    mounted = pods["dep-0"]["spec"]["volumes"][0]["secret"]["secretName"]
    assert mounted == "counter-channel"
    assert secret["metadata"]["ownerReferences"][0]["name"] == "counter"


async def test_longest_cluster_name_gets_pods(world: controller_world.World) -> None:
    await world.cluster(controller_world.LONG)
    pods = await waiting.wait_until_async(world.pods, what="a Pod")
    assert all(len(name) <= 63 for name in pods)


async def test_deleted_pod_is_replaced_and_its_worker_is_lost(
    world: controller_world.World,
) -> None:
    await world.cluster()
    first = (await world.wait_for_pods("default-0"))["default-0"]
    world.hub.publish_cluster((controller_world.NS, "default"), controller_world.worker(first))
    await world.kube.delete(api_resources.PODS, "default-0", controller_world.NS)
    await waiting.wait_until_async(lambda: world.hub.gone, what="worker is removed")
    assert world.hub.gone[0] == first["metadata"]["uid"]

    async def replaced() -> bool:
        pods = await world.pods()
        return any(p["metadata"]["uid"] != first["metadata"]["uid"] for p in pods.values())

    await waiting.wait_until_async(replaced, what="replaced")


async def test_failed_pod_is_replaced(world: controller_world.World) -> None:
    await world.cluster()
    first = (await world.wait_for_pods("default-0"))["default-0"]
    patch = {"status": {"phase": "Failed", "reason": "Evicted"}}
    await world.kube.merge_patch(
        api_resources.PODS, "default-0", patch, controller_world.NS, subresource="status"
    )

    async def replaced() -> bool:
        pods = await world.pods()
        return any(p["metadata"]["uid"] != first["metadata"]["uid"] for p in pods.values())

    await waiting.wait_until_async(replaced, what="replaced")


async def test_fewer_replicas_delete_the_last_pods(world: controller_world.World) -> None:
    await world.cluster(replicas=3)
    before = await world.wait_for_pods("default-0", "default-1", "default-2")
    await world.scale("default", 1)
    left = await world.wait_for_pods("default-0")
    assert left["default-0"]["metadata"]["uid"] == before["default-0"]["metadata"]["uid"]


async def test_scale_down_deletes_idle_pods_first(
    world: controller_world.World,
) -> None:
    await world.cluster(replicas=3)
    pods = await world.wait_for_pods("default-0", "default-1", "default-2")
    key = (controller_world.NS, "default")
    busy = [controller_world.worker(pods[f"default-{n}"], busy=1) for n in (1, 2)]
    world.hub.publish_cluster(key, controller_world.worker(pods["default-0"]), *busy)
    await world.scale("default", 1)
    left = await world.wait_for_pods("default-1", "default-2")
    assert left["default-2"]["metadata"]["uid"] in world.hub.clusters[key].draining
    done = controller_world.worker(left["default-2"])
    draining = world.hub.clusters[key].draining
    world.hub.publish_cluster(key, busy[0], done, draining=draining)
    await world.wait_for_pods("default-1")


async def test_pods_that_stay_terminating_are_replaced(world: controller_world.World) -> None:
    await world.cluster(replicas=2)
    await world.wait_for_pods("default-0", "default-1")
    held = {"metadata": {"finalizers": ["test.kilnwork.dev/held"]}}
    await world.kube.merge_patch(api_resources.PODS, "default-0", held, controller_world.NS)
    await world.kube.delete(api_resources.PODS, "default-0", controller_world.NS)
    await world.wait_for_pods("default-0", "default-1", "default-2")
    freed: dict[str, Any] = {"metadata": {"finalizers": None}}
    await world.kube.merge_patch(api_resources.PODS, "default-0", freed, controller_world.NS)
    await world.wait_for_pods("default-1", "default-2")


async def test_status_counts_workers_slots_and_queue(world: controller_world.World) -> None:
    await world.cluster()
    pod = (await world.wait_for_pods("default-0"))["default-0"]
    world.hub.publish_cluster(
        (controller_world.NS, "default"), controller_world.worker(pod, busy=1), queued=3
    )

    async def reported() -> bool:
        status = await world.status("default", kinds.TASK_CLUSTERS)
        return status.get("readyReplicas") == 1 and status["slots"] == {"total": 2, "busy": 1}

    await waiting.wait_until_async(reported, what="status")
    status = await world.status("default", kinds.TASK_CLUSTERS)
    assert status["queued"] == 3
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Available": "True",
        "Ready": "True",
    }


async def test_taken_name_is_reported(world: controller_world.World) -> None:
    pod = controller_world.body(
        api_resources.PODS, "default-0", spec={"containers": [{"name": "x", "image": "x"}]}
    )
    await world.kube.create(api_resources.PODS, pod, controller_world.NS)
    await world.cluster()

    async def reported() -> bool:
        status = await world.status("default", kinds.TASK_CLUSTERS)
        return any(c["reason"] == "PodNameTaken" for c in status.get("conditions", ()))

    await waiting.wait_until_async(reported, what="PodNameTaken")
    await world.kube.delete(api_resources.PODS, "default-0", controller_world.NS)

    async def made() -> bool:
        found = (await world.pods()).get("default-0")
        return found is not None and "kilnwork.dev/cluster" in found["metadata"]["labels"]

    await waiting.wait_until_async(made, what="worker Pod")


async def test_new_slots_replace_idle_pods(world: controller_world.World) -> None:
    await world.cluster(replicas=1)
    await world.wait_for_pods("default-0")
    patch = {"spec": {"slotsPerWorker": 5}}
    await world.kube.merge_patch(kinds.TASK_CLUSTERS, "default", patch, controller_world.NS)

    async def renewed() -> bool:
        found = (await world.pods()).get("default-0")
        return (
            found is not None
            and {"name": "KILN_SLOTS", "value": "5"} in (found["spec"]["containers"][0]["env"])
        )

    await waiting.wait_until_async(renewed, what="new Pod")


async def test_refused_template_deletes_no_worker(world: controller_world.World) -> None:
    await world.cluster(replicas=1)
    await world.wait_for_pods("default-0")
    before = (await world.pods())["default-0"]["metadata"]["uid"]

    async def template(memory: str) -> None:
        worker = {"name": "worker", "resources": {"limits": {"memory": memory}}}
        patch = {"spec": {"template": {"spec": {"containers": [worker]}}}}
        await world.kube.merge_patch(kinds.TASK_CLUSTERS, "default", patch, controller_world.NS)

    async def refused() -> bool:
        status = (await world.kube.get(kinds.TASK_CLUSTERS, "default", controller_world.NS))[
            "status"
        ]
        return any(c["reason"] == "PodRefused" for c in status["conditions"])

    await template("-1Gi")
    await waiting.wait_until_async(refused, what="PodRefused")
    assert (await world.pods())["default-0"]["metadata"]["uid"] == before
    await template("1Gi")

    async def renewed() -> bool:
        found = (await world.pods()).get("default-0")
        return found is not None and found["metadata"]["uid"] != before

    await waiting.wait_until_async(renewed, what="new Pod")


async def test_deleted_secret_is_created_again_with_a_new_token(
    world: controller_world.World,
) -> None:
    await world.cluster()
    await world.wait_for_pods("default-0")
    before = await world.kube.get(api_resources.SECRETS, "default-channel", controller_world.NS)
    await world.kube.delete(api_resources.SECRETS, "default-channel", controller_world.NS)

    async def made() -> dict[str, Any] | None:
        try:
            found = await world.kube.get(
                api_resources.SECRETS, "default-channel", controller_world.NS
            )
        except errors.NotFound:
            return None
        return found if found["data"] != before["data"] else None

    assert await waiting.wait_until_async(made, what="new Secret")


async def test_deleted_cluster_is_closed_after_a_restart(
    world: controller_world.World,
) -> None:
    await world.cluster("gone")
    await world.kube.delete(kinds.TASK_CLUSTERS, "gone", controller_world.NS)
    await waiting.wait_until_async(
        lambda: (controller_world.NS, "gone") in world.hub.closed, what="closed"
    )
    await world.controllers.stop()
    world.hub.closed.clear()
    world.hub.publish_cluster((controller_world.NS, "gone"), queued=1)
    await world.restart()
    await waiting.wait_until_async(
        lambda: (controller_world.NS, "gone") in world.hub.closed, what="closed again"
    )


async def test_deleted_cluster_stays_until_its_tasks_have_ended(
    world: controller_world.World,
) -> None:
    await world.cluster("busy")
    pod = (await world.wait_for_pods("busy-0"))["busy-0"]
    key = (controller_world.NS, "busy")
    world.hub.publish_cluster(key, controller_world.worker(pod, busy=1), queued=1)

    async def held() -> bool:
        found = await world.kube.get(kinds.TASK_CLUSTERS, "busy", controller_world.NS)
        return bool(found["metadata"].get("finalizers") == ["kilnwork.dev/drain"])

    await waiting.wait_until_async(held, what="the finalizer")
    await world.kube.delete(kinds.TASK_CLUSTERS, "busy", controller_world.NS)
    await waiting.wait_until_async(lambda: key in world.hub.closing, what="the queue is closed")
    assert key not in world.hub.closed
    assert world.hub.clusters[key].draining == {pod["metadata"]["uid"]}

    async def reported() -> bool:
        status = await world.status("busy", kinds.TASK_CLUSTERS)
        return any(c["reason"] == "Draining" for c in status["conditions"])

    await waiting.wait_until_async(reported, what="it says so")
    world.hub.publish_cluster(
        key, controller_world.worker(pod), draining=world.hub.clusters[key].draining
    )
    await waiting.wait_until_async(lambda: key in world.hub.closed, what="closed")

    async def gone() -> bool:
        return not await world.pods()

    await waiting.wait_until_async(gone, what="cluster and Pods are gone")


async def test_idle_cluster_is_deleted_without_a_manager(world: controller_world.World) -> None:
    await world.cluster("idle")
    await world.wait_for_pods("idle-0")
    await world.controllers.stop()
    await world.kube.delete(kinds.TASK_CLUSTERS, "idle", controller_world.NS)
    with pytest.raises(errors.NotFound):
        await world.kube.get(kinds.TASK_CLUSTERS, "idle", controller_world.NS)


async def test_namespace_that_is_no_longer_served_loses_its_workers(
    world: controller_world.World,
) -> None:
    await world.cluster("left", replicas=2)
    pod = (await world.wait_for_pods("left-0", "left-1"))["left-0"]
    world.hub.publish_cluster((controller_world.NS, "left"), controller_world.worker(pod, busy=1))

    async def held() -> bool:
        found = await world.kube.get(kinds.TASK_CLUSTERS, "left", controller_world.NS)
        return bool(found["metadata"].get("finalizers"))

    await waiting.wait_until_async(held, what="the finalizer")
    await world.controllers.stop()
    for _ in range(2):
        await unserved_namespace_cleanup.clean_up(
            world.kube, controller_world.NS, time=clock.SystemClock()
        )
    status = await world.status("left", kinds.TASK_CLUSTERS)
    assert {(c["status"], c["reason"]) for c in status["conditions"]} == {("False", "NotServed")}
    assert not await held()
    await world.wait_for_no_pods()


async def start_default(world: controller_world.World, *, slots: int = 2) -> None:
    """Start and stop the controller that creates TaskCluster `default`."""
    made = controllers.DefaultCluster(world.kube, slots=slots, time=clock.SystemClock())
    await made.start()
    await made.stop()


async def slots_of_default(world: controller_world.World) -> int | None:
    """Return the slots of TaskCluster `default`; None if it does not exist."""
    try:
        found = await world.kube.get(kinds.TASK_CLUSTERS, "default", controller_world.NS)
    except errors.NotFound:
        return None
    slots: int = found["spec"]["slotsPerWorker"]
    return slots


async def test_default_cluster_is_created_once(world: controller_world.World) -> None:
    await start_default(world)
    assert await slots_of_default(world) == 2
    await world.kube.delete(kinds.TASK_CLUSTERS, "default", controller_world.NS)
    await waiting.wait_until_async(lambda: gone(world), what="the cluster is gone")
    await start_default(world)
    assert await slots_of_default(world) is None


async def gone(world: controller_world.World) -> bool:
    return await slots_of_default(world) is None


@pytest.mark.parametrize("again", ["while it runs", "while it is stopped"])
async def test_default_cluster_is_created_again_with_its_definition(
    world: controller_world.World, again: str
) -> None:
    """Only then: a default cluster that a user deletes is not created again."""
    name = kinds.TASK_CLUSTERS.qualified
    definition = await world.kube.get(api_resources.CUSTOM_RESOURCE_DEFINITIONS, name)
    made = controllers.DefaultCluster(world.kube, slots=2, time=clock.SystemClock())
    await made.start()
    if again == "while it is stopped":
        await made.stop()
    await world.kube.delete(api_resources.CUSTOM_RESOURCE_DEFINITIONS, name)

    async def undefined() -> bool:
        try:
            await world.kube.get(api_resources.CUSTOM_RESOURCE_DEFINITIONS, name)
        except errors.NotFound:
            return True
        return False

    await waiting.wait_until_async(undefined, what="the definition is gone")
    metadata = {"name": name}
    await world.kube.create(
        api_resources.CUSTOM_RESOURCE_DEFINITIONS,
        {key: definition[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": metadata},
    )
    if again == "while it is stopped":
        made = controllers.DefaultCluster(world.kube, slots=2, time=clock.SystemClock())
        await made.start()

    async def back() -> bool:
        return await slots_of_default(world) == 2

    await waiting.wait_until_async(back, what="the cluster is back")
    await world.kube.delete(kinds.TASK_CLUSTERS, "default", controller_world.NS)
    await waiting.wait_until_async(lambda: gone(world), what="the cluster is gone")
    await made.stop()
    await start_default(world)
    assert await gone(world)


async def test_default_cluster_of_an_earlier_version_is_not_created_again(
    world: controller_world.World,
) -> None:
    patch = {"metadata": {"annotations": {"kilnwork.dev/default-cluster": "made"}}}
    await world.kube.merge_patch(api_resources.NAMESPACES, controller_world.NS, patch)
    await start_default(world)
    assert await gone(world)


async def test_existing_default_cluster_is_unchanged(world: controller_world.World) -> None:
    await world.cluster("default", replicas=2)
    await start_default(world, slots=7)
    found = await world.kube.get(kinds.TASK_CLUSTERS, "default", controller_world.NS)
    assert found["spec"]["replicas"] == 2
