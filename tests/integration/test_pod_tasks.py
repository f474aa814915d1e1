"""Tasks that are Pods, with all controllers, a real hub and journal, an API server and a node.

Behaviour of every executor is tested in tests/contract/test_executors.py.
"""

import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kilnwork.api import api_resources, kinds
from kilnwork.controlplane import pod_gc
from kilnwork.controlplane.apiserver import deletion
from kilnwork.executors.pod import template
from kilnwork.kit import processes
from kilnwork.kube import client, errors
from support import controller_world, pod_world, short_paths, waiting

NS = pod_world.NS
FOREVER = "trap '' TERM; while :; do sleep 0.1; done"


@pytest.fixture
async def world() -> AsyncIterator[pod_world.World]:
    made = pod_world.World(short_paths.directory())
    await made.plane.start()
    try:
        await made.plane.start_node()
        async with client.Client(made.plane.admin_config(), user_agent="test") as made.kube:
            await made.start()
            yield made
            await made.end()
    finally:
        await made.plane.stop()


async def test_status_names_pod_and_node_after_a_restart(world: pod_world.World) -> None:
    uid = await world.task("a")
    status = await world.wait_for_state("a", "Success", "Succeeded")
    [pod] = await world.pods()
    assert (status["podName"], status["nodeName"]) == (pod["metadata"]["name"], "n1")
    assert [owner["uid"] for owner in pod["metadata"]["ownerReferences"]] == [uid]

    async def released() -> bool:
        [found] = await world.pods()
        return "finalizers" not in found["metadata"]

    await waiting.wait_until_async(released, what="nothing holds the Pod")
    await world.end()
    await world.kube.merge_patch(kinds.TASKS, "a", {"status": None}, NS, subresource="status")
    await world.start()
    again = await world.wait_for_state("a", "Success")
    assert (again["podName"], again["nodeName"]) == (status["podName"], "n1")
    assert len(await world.pods()) == 1


async def test_output_of_several_containers_is_kept_by_name(world: pod_world.World) -> None:
    uid = await world.task(
        "a",
        pod={
            "containers": [
                pod_world.worker_container("echo 1; echo 2"),
                pod_world.worker_container("echo 3", "other"),
            ]
        },
    )
    await world.wait_for_state("a", "Success")
    kept = b"".join(
        path.read_bytes() for path in (world.directory / "logs").rglob("*") if path.is_file()
    )
    assert sorted(kept.splitlines()) == [b"[main] 1", b"[main] 2", b"[other] 3"], uid


async def test_deleted_task_removes_its_running_pod(world: pod_world.World) -> None:
    await world.task("a", FOREVER)
    await world.wait_for_state("a", "Running")
    [pod] = await world.pods()
    assert pod_world.programs(pod)
    await world.kube.delete(kinds.TASKS, "a", NS)
    await world.wait_for_no_pods()
    assert pod_world.programs(pod) == set()


async def test_deleted_task_removes_its_pod_without_a_manager(
    world: pod_world.World,
) -> None:
    """The finalizer waits for the next one."""
    await world.task("a", FOREVER)
    await world.wait_for_state("a", "Running")
    await world.end()
    await world.kube.delete(kinds.TASKS, "a", NS)
    await world.start()
    await world.wait_for_no_pods()


async def test_new_journal_adopts_running_pods(world: pod_world.World) -> None:
    gate = world.directory / "gate"
    await world.task("a", f"until [ -e {gate} ]; do sleep 0.02; done")
    before = await world.wait_for_state("a", "Running")
    await world.end()
    world.journal = world.directory / "other.db"
    await world.start()
    gate.touch()
    status = await world.wait_for_state("a", "Success")
    assert (status["attempts"], status["podName"]) == (1, before["podName"])
    assert len(await world.pods()) == 1


async def test_unknown_pod_is_kept_until_it_is_deleted(
    world: pod_world.World,
) -> None:
    await world.task("a", FOREVER)
    await world.wait_for_state("a", "Running")
    await world.end()
    world.journal = world.directory / "other.db"
    orphan = await world.kube.get(kinds.TASKS, "a", NS)
    [pod] = await world.pods()
    change = {"metadata": {"ownerReferences": None}}
    await world.kube.merge_patch(api_resources.PODS, pod["metadata"]["name"], change, NS)
    await world.kube.delete(kinds.TASKS, orphan["metadata"]["name"], NS)
    await world.start()
    await world.task("b")
    await world.wait_for_state("b", "Success")
    [held] = [p for p in await world.pods() if p["metadata"]["uid"] == pod["metadata"]["uid"]]
    assert held["metadata"]["finalizers"] == [template.FINALIZER]
    assert "deletionTimestamp" not in held["metadata"]
    assert pod_world.programs(pod)
    await world.kube.delete(api_resources.PODS, pod["metadata"]["name"], NS, grace_s=1)
    await world.kube.delete(kinds.TASKS, "b", NS)
    await world.wait_for_no_pods()


async def test_pod_deleted_unseen_after_its_end_keeps_its_outcome(
    world: pod_world.World,
) -> None:
    gate = world.directory / "gate"
    await world.task("a", f"until [ -e {gate} ]; do sleep 0.02; done")
    await world.wait_for_state("a", "Running")
    await world.end()
    gate.touch()

    async def over() -> str:
        [pod] = await world.pods()
        return pod["metadata"]["name"] if pod["status"]["phase"] == "Succeeded" else ""

    name = await waiting.wait_until_async(over, what="its Pod is over")
    await world.kube.delete(api_resources.PODS, name, NS)
    await world.start()
    status = await world.wait_for_state("a", "Success", "Succeeded")
    assert (status["attempts"], status.get("losses", 0)) == (1, 0)
    await world.wait_for_no_pods()


async def test_pod_removed_by_force_during_a_kill_is_unconfirmed(
    world: pod_world.World,
) -> None:
    await world.task("a", FOREVER, timeouts={"killGraceSeconds": 60})
    await world.wait_for_state("a", "Running")
    [pod] = await world.pods()
    name = pod["metadata"]["name"]
    now = {"spec": {"killTimestamp": "2026-01-01T00:00:00Z"}}
    await world.kube.merge_patch(kinds.TASKS, "a", now, NS)

    async def terminating() -> bool:
        found = await world.kube.get(api_resources.PODS, name, NS)
        return "deletionTimestamp" in found["metadata"]

    await waiting.wait_until_async(terminating, what="the Pod is being deleted")
    change = {"metadata": {"finalizers": None}}
    await world.kube.merge_patch(api_resources.PODS, name, change, NS)
    with contextlib.suppress(errors.NotFound):
        await world.kube.delete(api_resources.PODS, name, NS, grace_s=0)
    status = await world.wait_for_state("a", "Killed", "Unconfirmed")
    assert "removed by force: its containers were not seen to end" in status["message"]
    assert stopped_condition(status) == "Unknown"
    await waiting.wait_until_async(
        lambda: not pod_world.programs(pod), what="the node has ended it"
    )


async def test_end_between_observation_and_deletion_counts(world: pod_world.World) -> None:
    gate = world.directory / "gate"
    await world.task("a", f"until [ -e {gate} ]; do sleep 0.02; done")
    await world.wait_for_state("a", "Running")

    async def ends() -> None:
        gate.touch()

        async def over() -> bool:
            [pod] = await world.pods()
            return bool(pod["status"]["phase"] == "Succeeded")

        await waiting.wait_until_async(over, what="its Pod has succeeded")

    world.manager.before_delete = ends
    now = {"spec": {"killTimestamp": "2026-01-01T00:00:00Z"}}
    await world.kube.merge_patch(kinds.TASKS, "a", now, NS)
    await world.wait_for_state("a", "Success", "Succeeded")
    assert world.manager.before_delete is None


async def test_pod_created_by_a_deposed_manager_is_ended(
    world: pod_world.World,
) -> None:
    """The request arrives long after the next manager has decided about the attempt."""
    await world.task("a", FOREVER)
    await world.wait_for_state("a", "Running")
    [pod] = await world.pods()
    body = {
        "metadata": dict(pod["metadata"]),
        "spec": {"containers": [pod_world.worker_container(FOREVER)]},
    }
    for field in ("uid", "resourceVersion", "creationTimestamp", "ownerReferences"):
        body["metadata"].pop(field)
    now = {"spec": {"killTimestamp": "2026-01-01T00:00:00Z"}}
    await world.kube.merge_patch(kinds.TASKS, "a", now, NS)
    await world.wait_for_state("a", "Killed", "Killed")
    await world.wait_for_no_pods()
    late = await world.kube.create(api_resources.PODS, body, NS)
    await world.wait_for_no_pods()
    assert pod_world.programs(late) == set()
    assert (await world.status("a"))["reason"] == "Killed"


async def test_kill_on_an_absent_node_is_confirmed_when_it_is_back(
    world: pod_world.World,
) -> None:
    await world.task("a", FOREVER)
    await world.wait_for_state("a", "Running")
    [pod] = await world.pods()
    assert world.plane.node is not None
    await world.plane.node.abandon()
    world.plane.node = None
    now = {"spec": {"killTimestamp": "2026-01-01T00:00:00Z"}}
    await world.kube.merge_patch(kinds.TASKS, "a", now, NS)
    status = await world.wait_for_state("a", "Killed", "Unconfirmed")
    assert stopped_condition(status) == "Unknown"
    assert pod_world.programs(pod)
    await world.plane.start_node()

    async def proved() -> bool:
        return stopped_condition(await world.status("a")) == "True"

    await waiting.wait_until_async(proved, what="its end is proved")
    assert pod_world.programs(pod) == set()
    await world.wait_for_no_pods()


async def test_pod_of_a_deleted_node_is_lost_and_keeps_no_namespace(
    world: pod_world.World,
) -> None:
    await world.task("a", FOREVER, retry={"maxLosses": 0})
    await world.wait_for_state("a", "Running")
    [pod] = await world.pods()
    assert world.plane.node is not None
    await world.plane.node.abandon()
    world.plane.node = None
    await world.kube.delete(api_resources.PODS, pod["metadata"]["name"], NS, grace_s=0)
    await world.kube.delete(api_resources.NODES, "n1")
    writer = world.plane.writer
    orphans = pod_gc.PodCollector(writer, deletion.Deleter(writer), quarantine_s=0.1, check_s=0.05)
    orphans.start()
    try:
        status = await world.wait_for_state("a", "Failed")
        await world.wait_for_no_pods()
    finally:
        await orphans.stop()
        processes.signal_all(pod_world.programs(pod), signal.SIGKILL)
    assert "node no longer exists" in status["message"]


def stopped_condition(status: dict[str, Any]) -> str:
    """Return the status and reason of condition Stopped."""
    [found] = [c["status"] for c in status["conditions"] if c["type"] == "Stopped"]
    return str(found)


async def test_end_of_a_manager_ends_no_pod(world: pod_world.World) -> None:
    gate = world.directory / "gate"
    await world.task("a", f"until [ -e {gate} ]; do sleep 0.02; done")
    await world.wait_for_state("a", "Running")
    [before] = await world.pods()
    await world.end()
    [after] = await world.pods()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["phase"] == "Running"
    await world.start()
    gate.touch()
    status = await world.wait_for_state("a", "Success")
    assert (status["attempts"], status["podName"]) == (1, before["metadata"]["name"])


async def test_node_shutdown_costs_a_loss_and_no_attempt(world: pod_world.World) -> None:
    """As at the end of `kiln up`."""
    await world.task("a", '[ "$KILN_ATTEMPT" = 2 ] || while :; do sleep 0.1; done')
    await world.wait_for_state("a", "Running")
    await world.end()
    await world.plane.stop_node()
    [pod] = await world.pods()
    assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Terminated")
    await world.plane.start_node()
    await world.start()
    status = await world.wait_for_state("a", "Success")
    assert (status["attempts"], status["losses"]) == (2, 1)


async def test_program_killed_from_outside_is_a_loss(world: pod_world.World) -> None:
    await world.task("a", '[ "$KILN_ATTEMPT" = 2 ] || while :; do sleep 0.1; done')
    await world.wait_for_state("a", "Running")
    [pod] = await world.pods()
    processes.signal_all(pod_world.programs(pod), signal.SIGKILL)
    status = await world.wait_for_state("a", "Success")
    assert (status["attempts"], status["losses"]) == (2, 1)


async def test_container_that_is_started_again_is_the_same_attempt(
    world: pod_world.World,
) -> None:
    mark = world.directory / "mark"
    await world.task(
        "a", f"[ -e {mark} ] || {{ touch {mark}; exit 3; }}", pod={"restartPolicy": "OnFailure"}
    )
    status = await world.wait_for_state("a", "Success")
    assert (status["attempts"], status.get("losses", 0)) == (1, 0)


def forbidden(why: str) -> errors.ApiError:
    return errors.from_status(403, "Forbidden", f'pods "a-1" is forbidden: {why}')


QUOTA = forbidden("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1")
NO_ACCOUNT = forbidden('error looking up service account default/x: serviceaccount "x" not found')
NO_RIGHT = errors.from_status(
    403, "Forbidden", 'pods is forbidden: User "m" cannot create resource "pods" in API group ""'
)
AWAY = errors.from_status(503, "ServiceUnavailable", "the server is shutting down")


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (lambda: QUOTA, "QuotaExceeded"),
        (lambda: NO_ACCOUNT, "WaitingForServiceAccount"),
        (lambda: NO_RIGHT, "ExecutorUnavailable"),
        (lambda: AWAY, "ExecutorUnavailable"),
    ],
    ids=["quota", "account", "right", "away"],
)
async def test_transient_refusal_is_waited_for_and_named(
    world: pod_world.World, refusal: Callable[[], errors.ApiError], reason: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr("kilnwork.executors.creation_failures.CREATE_AGAIN_S", 0.5)
    world.refusals += 5 * [refusal()]
    await world.task("a")
    status = await world.wait_for_state("a", "Staging", reason)
    assert refusal().message in status["message"]
    status = await world.wait_for_state("a", "Success")
    assert (status["attempts"], status.get("losses", 0)) == (1, 0)


@pytest.mark.parametrize(
    "why",
    [
        'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false',
        "maximum cpu usage per Pod is 1, but limit is 2",
    ],
)
async def test_pod_refused_by_admission_fails_at_once(world: pod_world.World, why: str) -> None:
    world.refusals.append(forbidden(why))
    await world.task("a", retry={"maxAttempts": 5})
    status = await world.wait_for_state("a", "Failed", "AdmissionError")
    assert why in status["message"]
    assert status["attempts"] == 1
    assert await world.pods() == []


async def test_terminating_namespace_fails_the_task(
    world: pod_world.World,
) -> None:
    why = "unable to create new content in namespace default because it is being terminated"
    ending = {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}
    world.refusals.append(errors.from_status(403, "Forbidden", why, details=ending))
    await world.task("a", retry={"maxAttempts": 5})
    status = await world.wait_for_state("a", "Failed", "NamespaceEnding")
    assert (status["message"], status["attempts"]) == (why, 1)


async def test_invalid_pod_fails_with_the_servers_message(
    world: pod_world.World,
) -> None:
    await world.task("a", pod={"containers": [{"name": "UPPER", "image": "x"}]})
    status = await world.wait_for_state("a", "Failed", "AdmissionError")
    assert "containers[0].name" in status["message"]


async def test_unknown_field_is_not_dropped(
    world: pod_world.World,
) -> None:
    await world.task(
        "a", pod={"activeDeadlineSecond": 5, "containers": [{"name": "main", "image": "x"}]}
    )
    status = await world.wait_for_state("a", "Failed", "AdmissionError")
    assert 'unknown field "spec.activeDeadlineSecond"' in status["message"]


async def test_pod_without_its_labels_is_still_followed(
    world: pod_world.World, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("kilnwork.executors.pod.executor.UNWATCHED_CHECK_S", 0.5)
    gate = tmp_path / "gate"
    await world.task("a", f"until [ -e {gate} ]; do sleep 0.1; done")
    await world.wait_for_state("a", "Running", "Started")
    [pod] = await world.pods()
    labels = dict.fromkeys(pod["metadata"]["labels"])
    name = pod["metadata"]["name"]
    await world.kube.merge_patch(api_resources.PODS, name, {"metadata": {"labels": labels}}, NS)
    gate.touch()
    status = await world.wait_for_state("a", "Success")
    assert status["attempts"] == 1


async def test_no_taskcluster_is_needed_or_touched(world: pod_world.World) -> None:
    await controlled_cluster(world)
    await world.task("a", clusterName="nowhere")
    await world.wait_for_state("a", "Success")
    _, keys = await world.hub.clusters_changed(0)
    assert all(namespace == NS for namespace, _ in keys), keys
    clusters = await world.kube.list(kinds.TASK_CLUSTERS, NS, type=dict)
    assert [(c["metadata"]["name"], c["status"].get("queued", 0)) for c in clusters.items] == [
        ("default", 0)
    ]


async def controlled_cluster(world: pod_world.World) -> None:
    """Return a TaskCluster without workers."""
    body = controller_world.body(kinds.TASK_CLUSTERS, "default", spec={"replicas": 0})
    await world.kube.create(kinds.TASK_CLUSTERS, body, NS)

    async def seen() -> bool:
        found = await world.kube.get(kinds.TASK_CLUSTERS, "default", NS)
        return bool(found.get("status"))

    await waiting.wait_until_async(seen, what="the TaskCluster has a status")


async def test_internal_error_of_an_executor_is_reported_and_retried(
    world: pod_world.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> NoReturn:
        raise KeyError("phase")

    with monkeypatch.context() as broken:
        broken.setattr(template, "pod", fail)
        await world.task("a")
        status = await world.wait_for_state("a", "Staging", "InternalError")
        assert "KeyError: 'phase'" in status["message"]
    await world.wait_for_state("a", "Success")
