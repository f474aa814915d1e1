"""The state of a gang, derived from its Pods and workers."""

from typing import Any

import pytest

from kilnwork.api import meta, pod, sync_set_validation, task_cluster
from kilnwork.controllers.gangs import gang_state, port
from kilnwork.dispatch import model
from kilnwork.kit import clock

NOW = 1_800_000_000.0


def a_pod(name: str, *, gated: bool = False, phase: str = "Running", **metadata: Any) -> pod.Pod:
    gates = (pod.Named(name=sync_set_validation.GATE),) if gated else ()
    return pod.Pod(
        metadata=meta.ObjectMeta(name=name, uid=f"u-{name}", **metadata),
        spec=pod.PodSpec(node_name="" if gated else f"n-{name}", scheduling_gates=gates),
        status=pod.PodStatus(phase=phase),
    )


def worker(name: str, *, ready: bool = True) -> model.WorkerView:
    return model.WorkerView(
        name=name, pod_uid=f"u-{name}", node="n", slots=1, busy=0, ready=ready, holding=0
    )


def group(
    *pods: pod.Pod, workers: str = "", ready: str = "", **spec: Any
) -> gang_state.ObservedGroup:
    given = {"name": "g", "cluster": "risk-g1-g", "replicas": 2, "min": 2, **spec}
    conditions = (
        (meta.Condition(type="Ready", status="False", reason=ready, message="quota"),)
        if ready
        else ()
    )
    cluster = task_cluster.TaskCluster(
        metadata=meta.ObjectMeta(name="c", creation_timestamp=clock.rfc3339(NOW)),
        status=task_cluster.TaskClusterStatus(conditions=conditions),
    )
    view = model.ClusterView(
        namespace="n",
        cluster="c",
        workers=tuple(worker(name) for name in workers.split()),
        queued=0,
        draining=frozenset(),
    )
    return gang_state.ObservedGroup(
        spec=port.GroupSpec(**given), cluster=cluster, pods=pods, view=view
    )


def test_pods_are_live_until_they_end_or_are_deleted() -> None:
    leaving = a_pod("c", deletion_timestamp="2026-01-01T00:00:00Z")
    found = group(a_pod("a", gated=True), a_pod("b"), leaving, a_pod("d", phase="Failed"))
    assert [p.metadata.name for p in found.live] == ["a", "b"]
    assert [p.metadata.name for p in found.gated] == ["a"]


def test_a_group_is_complete_with_its_minimum_of_workers() -> None:
    pods = (a_pod("a"), a_pod("b"))
    assert not group(*pods, workers="a").complete
    assert group(*pods, workers="a b").complete
    assert group(*pods, workers="a", min=1).complete
    assert group(*pods, workers="a").state() == port.GroupState(desired=2, min=2, ready=1)


def test_missing_workers_are_named_with_the_reason() -> None:
    late = group(a_pod("a"), workers="a", ready="PodRefused")
    assert gang_state.describe_missing((late,)) == "group g: 1 of 2 workers are connected: quota"
    assert gang_state.describe_missing((group(a_pod("a"), a_pod("b"), workers="a b"),)) == ""


@pytest.mark.parametrize(("ready", "reason"), [("PodRefused", "ObjectRefused"), ("X", "Waiting")])
def test_refused_pods_are_reported_with_their_own_reason(ready: str, reason: str) -> None:
    found = gang_state.state((group(a_pod("a"), ready=ready),), since=None)
    assert not found.ready
    assert found.reason.startswith(reason)
    assert found.nodes == {"n-a"}


def test_a_gang_is_ready_when_all_groups_are() -> None:
    whole = group(a_pod("a"), a_pod("b"), workers="a b")
    found = gang_state.state((whole,), since=None)
    assert (found.ready, found.reason, found.message) == (True, "GangReady", "")
    assert not gang_state.state((whole, group()), since=None).ready


@pytest.mark.parametrize(
    ("seen", "spec", "why"),
    [
        (a_pod("a", phase="Failed"), {"fails": True}, "group g: Pod a"),
        (a_pod("a", phase="Failed"), {}, ""),
        (a_pod("a", creation_timestamp=clock.rfc3339(NOW)), {"fails": True}, ""),
        (
            a_pod("a", creation_timestamp=clock.rfc3339(NOW + 2)),
            {"fails": True},
            "group g: the worker before Pod a ended",
        ),
        (
            a_pod("a", creation_timestamp=clock.rfc3339(NOW + 2)),
            {"fails": True, "elastic": True},
            "",
        ),
    ],
)
def test_broken_names_the_ended_member(seen: pod.Pod, spec: dict[str, Any], why: str) -> None:
    found = gang_state.describe_broken((group(seen, **spec),), since=NOW)
    assert found.startswith(why)
    assert bool(found) is bool(why)


def test_creation_and_opening_times_of_a_gang() -> None:
    early = a_pod("a", annotations={gang_state.OPENED_ANNOTATION: "5.5"})
    late = a_pod("b", annotations={gang_state.OPENED_ANNOTATION: "7.0"})
    assert gang_state.first_opened((group(early, late),)) == 5.5
    assert gang_state.first_opened((group(a_pod("a")),)) is None
    assert gang_state.first_created((group(),)) == NOW
