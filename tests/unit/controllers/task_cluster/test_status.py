"""What a TaskCluster's status says, and when it is written."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from kilnwork.api import meta, pod, task_cluster
from kilnwork.controllers.task_cluster import status
from kilnwork.dispatch import model

NOW = 1_700_000_000.0


def _make(
    *,
    replicas: int = 1,
    ready: int = 0,
    phase: str = "Pending",
    containers: Sequence[dict[str, Any]] = (),
    pods: tuple[pod.Pod, ...] = (),
    heard: dict[str, float] | None = None,
    **known: Any,
) -> task_cluster.TaskClusterStatus:
    cluster = task_cluster.TaskCluster(
        metadata=meta.ObjectMeta(name="c", namespace="ns", generation=1),
        spec=task_cluster.TaskClusterSpec(replicas=replicas),
        **known,
    )
    pods = pods or (
        pod.Pod(
            metadata=meta.ObjectMeta(name="c-0", uid="u0"),
            status=pod.PodStatus(
                phase=phase,
                container_statuses=msgspec.convert(containers, tuple[pod.ContainerStatus, ...]),
            ),
        ),
    )
    workers = tuple(
        model.WorkerView(name=f"c-{n}", pod_uid=f"u{n}", node="n", slots=2, busy=0, ready=True)
        for n in range(ready)
    )
    view = model.ClusterView(namespace="ns", cluster="c", workers=workers, queued=0)
    seen = status.ObservedWorkers(pods, view, heard or {})
    return status.make(cluster, seen, account_exists=True, refusal=None, now=NOW)


def _said(shown: task_cluster.TaskClusterStatus) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in shown.conditions}


@pytest.mark.parametrize(
    ("replicas", "ready", "available", "is_ready"),
    [
        (0, 0, ("False", "ScaledToZero"), ("False", "ScaledToZero")),
        (2, 0, ("False", "NoWorkersReady"), ("False", "NoWorkersReady")),
        (2, 1, ("True", "WorkersStarting"), ("False", "WorkersStarting")),
        (2, 2, ("True", "WorkersReady"), ("True", "WorkersReady")),
    ],
)
def test_conditions_follow_the_workers(
    *, replicas: int, ready: int, available: tuple[str, str], is_ready: tuple[str, str]
) -> None:
    shown = _said(_make(replicas=replicas, ready=ready))
    assert shown == {"Available": available, "Ready": is_ready}


def test_failing_pod_is_named() -> None:
    shown = _make(phase="Failed")
    assert _said(shown)["Available"] == ("False", "WorkersFailing")
    assert "c-0" in shown.conditions[0].message


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"waiting": {"reason": "ErrImagePull"}}, "ImageNotPulled"),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, "WorkersFailing"),
        ({"waiting": {"reason": "ContainerCreating"}}, "NoWorkersReady"),
    ],
)
def test_reason_is_what_the_pods_wait_for(state: dict[str, Any], reason: str) -> None:
    shown = _make(containers=[{"name": "worker", "state": state}])
    assert _said(shown)["Available"] == ("False", reason)


def test_running_pod_without_a_worker_is_named() -> None:
    shown = _make(phase="Running")
    assert _said(shown)["Available"] == ("False", "NoWorkersReady")
    assert shown.conditions[0].message.startswith("Pod c-0 runs, but its worker is not connected")


def test_evicted_pod_is_named_with_its_node_until_deleted() -> None:
    evicted = pod.PodCondition(
        type="DisruptionTarget", status="True", reason="DeletionByTaintManager", message="NoExecute"
    )
    leaving = pod.Pod(
        metadata=meta.ObjectMeta(name="c-0", uid="u9", deletion_timestamp="2026-01-01T00:00:00Z"),
        spec=pod.PodSpec(node_name="far"),
        status=pod.PodStatus(phase="Running", conditions=(evicted,)),
    )
    for ready, available in ((0, "False"), (1, "True")):
        shown = _make(replicas=2, ready=ready, pods=(leaving,))
        assert _said(shown)["Available"] == (available, "WorkersEvicted")
        message = shown.conditions[0].message
        assert "c-0 is evicted from node far (DeletionByTaintManager: NoExecute)" in message
        assert message.endswith("another takes its place")
    assert _said(_make(replicas=1, ready=1, pods=(leaving,)))["Ready"] == ("True", "WorkersReady")


def _on_lost_node(**metadata: Any) -> pod.Pod:
    """As the node controller leaves a Pod whose kubelet has been silent for too long."""
    at = "2026-11-23T06:00:00Z"
    return pod.Pod(
        metadata=meta.ObjectMeta(name="c-0", uid="u9", **metadata),
        spec=pod.PodSpec(node_name="far"),
        status=pod.PodStatus(
            phase="Running",
            conditions=(
                pod.PodCondition(type="Ready", status="False", last_transition_time=at),
                pod.PodCondition(type="ContainersReady", status="True"),
            ),
        ),
    )


@pytest.mark.parametrize(("ready", "available"), [(0, "False"), (1, "True")])
def test_lost_node_is_named_with_the_time(*, ready: int, available: str) -> None:
    shown = _make(replicas=2, ready=ready, pods=(_on_lost_node(),), heard={"u9": NOW - 60})
    assert _said(shown)["Available"] == (available, "NodeNotReady")
    expected = "worker c-0 is not connected: its node far is NotReady since 2026-11-23T06:00:00Z"
    assert shown.conditions[0].message.startswith(expected)


def test_silent_worker_is_distinguished_from_one_never_connected() -> None:
    shown = _make(phase="Running", heard={"u0": NOW - 60})
    assert _said(shown)["Available"] == ("False", "NoWorkersReady")
    message = shown.conditions[0].message
    assert message == "worker c-0 has not been heard of since 2023-11-14T22:12:20Z"


def test_problems_of_a_connected_worker_are_not_shown() -> None:
    ended = {"terminated": {"exitCode": 1}}
    crashed = [{"name": "worker", "restartCount": 1, "state": {"running": {}}, "lastState": ended}]
    assert _said(_make(containers=crashed))["Available"] == ("False", "WorkersFailing")
    connected = _said(_make(replicas=2, ready=1, containers=crashed))
    assert connected["Ready"] == ("False", "WorkersStarting")


def test_same_facts_give_the_same_status() -> None:
    first = _make(ready=1)
    assert _make(ready=1, status=first) == first
    assert status.wait_s(first, first, written=0.0, now=0.0) is None


def test_change_of_workers_is_written_immediately() -> None:
    assert status.wait_s(_make(), _make(ready=1), written=10.0, now=10.0) == 0


def test_busy_slots_are_written_once_a_second() -> None:
    first = _make(ready=1)
    later = msgspec.structs.replace(first, slots=task_cluster.Slots(total=2, busy=1))
    assert status.wait_s(first, later, written=10.0, now=10.25) == 0.75
    assert status.wait_s(first, later, written=10.0, now=11.5) == 0


def test_condition_names_template_fields_without_effect() -> None:
    template = {"spec": {"restartPolicy": "Never", "dnsPolicy": "None"}}
    cluster = task_cluster.TaskCluster(
        metadata=meta.ObjectMeta(name="c", namespace="ns", generation=1),
        spec=task_cluster.TaskClusterSpec(template=template),
    )
    shown = status.make(
        cluster, status.ObservedWorkers(), account_exists=True, refusal=None, now=NOW
    )
    found = next(c for c in shown.conditions if c.type == "FieldsIgnored")
    assert (
        found.message
        == "spec.template.spec.restartPolicy: has no effect here: workers restart Always"
    )
    plain = msgspec.structs.replace(cluster, spec=task_cluster.TaskClusterSpec(), status=shown)
    later = status.make(plain, status.ObservedWorkers(), account_exists=True, refusal=None, now=NOW)
    assert {c.type for c in later.conditions} == {"Available", "Ready"}
