"""The status of a TaskCluster, and the decision when to write a changed status.

No I/O. Used by `plan` and `reconciler`. Pods are counted from the cache; workers, slots and queue
come from the dispatcher's view.

Conditions: `Available` (at least one worker is connected), `Ready` (as many as the spec requests),
`FieldsIgnored` (only present if fields of the spec have no effect).
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from kilnwork.api import kind_field_effects, kinds, meta, pod, reasons, task_cluster
from kilnwork.controllers import worker_pods
from kilnwork.dispatch import model
from kilnwork.kit import clock

MINOR_HOLD_S = 1.0
"""Minimum seconds between writes of busy slots and queue length, which change with each task."""

Reason = reasons.ClusterReason


class CreationRefusal(msgspec.Struct, frozen=True):
    """A reason and message for the conditions of a TaskCluster, for example why the last Secret or
    Pod was not created.
    """

    reason: reasons.ClusterReason
    message: str


class ObservedWorkers(NamedTuple):
    """The observed Pods and workers of a TaskCluster."""

    pods: tuple[pod.Pod, ...] = ()
    """Pods in the cache."""
    view: model.ClusterView | None = None
    """The dispatcher's view of the workers."""
    heard: Mapping[str, float] = {}
    """When the worker of each Pod was last connected (wall clock, in seconds), by uid of the
    Pod."""
    outdated: frozenset[str] = frozenset()
    """Uids of Pods of an older template."""


def make(
    cluster: task_cluster.TaskCluster,
    workers: ObservedWorkers,
    *,
    account_exists: bool,
    refusal: CreationRefusal | None,
    now: float,
) -> task_cluster.TaskClusterStatus:
    """Return the status of a TaskCluster. `now`: wall clock, seconds."""
    view = workers.view
    ready = sum(1 for w in view.workers if w.ready) if view else 0
    wanted = cluster.spec.replicas
    why = _obstacle(cluster, account_exists=account_exists, refusal=refusal)
    why = why or _progress(cluster, workers)
    conditions = (
        _condition(cluster, "Available", ready > 0, why),
        _condition(cluster, "Ready", ready >= wanted > 0, why),
        *_ignored(cluster),
    )
    known = {condition.type for condition in conditions}
    before = tuple(c for c in cluster.status.conditions if c.type in known)
    there = [p.metadata.uid for p in workers.pods if not p.terminating]
    outdated = sum(uid in workers.outdated for uid in there)
    return task_cluster.TaskClusterStatus(
        replicas=len(there),
        ready_replicas=ready,
        available_replicas=ready,
        updated_replicas=len(there) - outdated,
        outdated_replicas=outdated,
        slots=task_cluster.Slots(total=view.slots, busy=view.busy)
        if view
        else task_cluster.Slots(),
        queued=view.queued if view else 0,
        selector=worker_pods.selector(cluster.metadata.name),
        observed_generation=cluster.metadata.generation,
        conditions=meta.merge_conditions(before, conditions, now=clock.rfc3339(now)),
    )


def _ignored(cluster: task_cluster.TaskCluster) -> Iterator[meta.Condition]:
    generation = cluster.metadata.generation
    kind = kinds.TASK_CLUSTERS.kind
    if (found := kind_field_effects.ignored(kind, cluster.spec, generation=generation)) is not None:
        yield found


def _obstacle(
    cluster: task_cluster.TaskCluster, *, account_exists: bool, refusal: CreationRefusal | None
) -> CreationRefusal | None:
    if refusal is not None and refusal.reason is Reason.DRAINING:
        return refusal
    if cluster.spec.replicas == 0:
        return CreationRefusal(Reason.SCALED_TO_ZERO, "spec.replicas is 0")
    if not account_exists:
        name = cluster.spec.service_account_name or "default"
        message = f"ServiceAccount {name} does not exist in namespace {cluster.metadata.namespace}"
        return CreationRefusal(Reason.SERVICE_ACCOUNT_MISSING, message)
    return refusal


_TROUBLES = {
    pod.TroubleKind.NO_IMAGE: Reason.IMAGE_NOT_PULLED,
    pod.TroubleKind.UNSCHEDULABLE: Reason.UNSCHEDULABLE,
    pod.TroubleKind.FAILING: Reason.WORKERS_FAILING,
}


def _progress(cluster: task_cluster.TaskCluster, workers: ObservedWorkers) -> CreationRefusal:
    pods, view, heard, _ = workers
    connected = {w.pod_uid for w in view.workers if w.serving} if view else set()
    ready = sum(w.ready for w in view.workers) if view else 0
    if ready >= cluster.spec.replicas:
        return CreationRefusal(
            Reason.WORKERS_READY, "all workers are connected" + _describe_leaving(workers)
        )
    waited_for = [p for p in pods if not p.terminating and p.metadata.uid not in connected]
    for trouble in filter(None, map(pod.find_trouble, waited_for)):
        return CreationRefusal(_TROUBLES[trouble.kind], trouble.text)
    for lost in (p for p in waited_for if p.node_lost_since is not None):
        return CreationRefusal(Reason.NODE_NOT_READY, _describe_lost_node(lost))
    for leaving in (p for p in pods if p.terminating and p.disruption):
        return CreationRefusal(Reason.WORKERS_EVICTED, _eviction(leaving))
    reason = Reason.WORKERS_STARTING if ready else Reason.NO_WORKERS_READY
    for silent in (p for p in waited_for if p.metadata.uid in heard):
        since = clock.rfc3339(heard[silent.metadata.uid])
        hint = f" on node {silent.spec.node_name}" if silent.spec.node_name else ""
        text = f"worker {silent.metadata.name}{hint} has not been heard of since {since}"
        return CreationRefusal(reason, text)
    if left := _describe_leaving(workers):
        return CreationRefusal(Reason.WORKERS_REPLACED, f"not all workers get tasks{left}")
    if ready:
        return CreationRefusal(reason, "not all workers are connected yet")
    running = [p.metadata.name for p in waited_for if p.status.phase == "Running"]
    if running:
        text = f"Pod {running[0]} runs, but its worker is not connected: its log says more"
        return CreationRefusal(reason, text)
    return CreationRefusal(reason, "no worker is connected yet")


def _describe_leaving(workers: ObservedWorkers) -> str:
    """Return a sentence about outdated workers, and about workers that finish their tasks before
    they are removed."""
    there = {p.metadata.uid for p in workers.pods if not p.terminating}
    outdated = len(there & workers.outdated)
    text = ""
    if outdated:
        was = "is" if outdated == 1 else "are"
        text = f"; {outdated} of {len(there)} {was} made from an older template"
    view = workers.view
    busy = (
        [w for w in view.workers if w.draining and w.holding and w.pod_uid in there] if view else []
    )
    if not busy:
        return text
    first = busy[0]
    more = f", and {len(busy) - 1} more like it" if len(busy) > 1 else ""
    tasks = "its task has" if first.holding == 1 else f"its {first.holding} tasks have"
    return f"{text}; worker {first.name} goes when {tasks} ended{more}"


def _eviction(leaving: pod.Pod) -> str:
    """Return why the Pod of a worker is being evicted.

    The Pod of a lost node exists until the node is back or deleted; nothing waits for it.
    """
    node = leaving.spec.node_name
    return (
        f"Pod {leaving.metadata.name} is evicted from node {node} ({leaving.disruption}); another "
        "takes its place"
    )


def _describe_lost_node(seen: pod.Pod) -> str:
    since = f" since {seen.node_lost_since}" if seen.node_lost_since else ""
    return (
        f"worker {seen.metadata.name} is not connected: its node {seen.spec.node_name} is "
        f"NotReady{since}; another worker takes its place when Kubernetes gives the Pod up"
    )


def _condition(
    cluster: task_cluster.TaskCluster,
    kind: str,
    holds: bool,  # noqa: FBT001 - the value of the condition
    why: CreationRefusal,
) -> meta.Condition:
    return meta.Condition(
        type=kind,
        status="True" if holds else "False",
        reason=str(why.reason),
        message=why.message,
        observed_generation=cluster.metadata.generation,
    )


def wait_s(
    current: task_cluster.TaskClusterStatus,
    wanted: task_cluster.TaskClusterStatus,
    *,
    written: float | None,
    now: float,
) -> float | None:
    """Return in how many seconds the status `wanted` may be written: 0 for now, None if it equals
    the current one.

    `written`: when this object was last written, in monotonic seconds.
    """
    if current == wanted:
        return None
    if _decisive_fields(current) != _decisive_fields(wanted) or written is None:
        return 0.0
    return max(0.0, written + MINOR_HOLD_S - now)


def _decisive_fields(known: task_cluster.TaskClusterStatus) -> tuple[object, ...]:
    return (
        known.replicas,
        known.ready_replicas,
        known.updated_replicas,
        known.outdated_replicas,
        known.slots.total,
        known.selector,
        known.observed_generation,
        tuple((c.type, c.status, c.reason) for c in known.conditions),
    )
