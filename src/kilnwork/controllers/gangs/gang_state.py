"""The state of a gang, derived from the TaskClusters, Pods and workers of its groups.

No I/O. Used by the backends, which read the facts, and by `gang_placement`.
"""

from collections.abc import Iterator

import msgspec

from kilnwork.api import pod, reasons, sync_set_validation, task_cluster
from kilnwork.controllers.gangs import data_portions, port
from kilnwork.dispatch import model
from kilnwork.kit import clock

OPENED_ANNOTATION = "kilnwork.dev/gate-opened"
"""Annotation of Pods: when their gate was opened, in seconds since the epoch."""

Reason = reasons.SetReason

_REFUSED = frozenset(
    {
        reasons.ClusterReason.POD_REFUSED,
        reasons.ClusterReason.INVALID_SPEC,
        reasons.ClusterReason.SERVICE_ACCOUNT_MISSING,
        reasons.ClusterReason.POD_NAME_TAKEN,
        reasons.ClusterReason.SECRET_NAME_TAKEN,
    }
)
"""Reasons for which a TaskCluster lacks Pods and that need a user, unlike a quota that other Pods
use up."""


class ObservedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The observed state of one group. `cluster`: its TaskCluster; None while that does not
    exist.
    """

    spec: port.GroupSpec
    cluster: task_cluster.TaskCluster | None
    pods: tuple[pod.Pod, ...] = ()
    view: model.ClusterView | None = None

    @property
    def live(self) -> tuple[pod.Pod, ...]:
        """The Pods of the group that have not finished and are not being deleted."""
        return tuple(p for p in self.pods if not p.terminating and not p.is_finished)

    @property
    def gated(self) -> tuple[pod.Pod, ...]:
        """The Pods that wait at the scheduling gate of kilnwork."""
        return tuple(p for p in self.live if is_gated(p))

    @property
    def connected(self) -> tuple[pod.Pod, ...]:
        """The Pods whose workers are connected to the dispatcher."""
        workers = self.view.workers if self.view else ()
        uids = {w.pod_uid for w in workers if w.ready}
        return tuple(p for p in self.live if p.metadata.uid in uids)

    @property
    def trouble(self) -> tuple[str, str]:
        """The reason and message of the TaskCluster why some of its workers are not connected."""
        found = self.cluster.status.conditions if self.cluster else ()
        late = (c for c in found if c.type == "Ready" and c.status != "True")
        return next(((c.reason, c.message) for c in late), ("", ""))

    @property
    def complete(self) -> bool:
        """Whether all required workers are connected."""
        return len(self.connected) >= self.spec.min

    def state(self) -> port.GroupState:
        """Return the state of the group as counts of its workers."""
        return port.GroupState(
            desired=self.spec.replicas,
            min=self.spec.min,
            gated=len(self.gated),
            ready=len(self.connected),
        )


def is_gated(seen: pod.Pod) -> bool:
    """Return whether a Pod waits at the scheduling gate of kilnwork."""
    return any(gate.name == sync_set_validation.GATE for gate in seen.spec.scheduling_gates)


def nodes(groups: tuple[ObservedGroup, ...]) -> frozenset[str]:
    """Return the nodes on which members of the groups run."""
    return frozenset(p.spec.node_name for g in groups for p in g.live if p.spec.node_name)


def held_portions(groups: tuple[ObservedGroup, ...]) -> dict[str, dict[str, frozenset[int]]]:
    """Return the portions of the data assigned to Pods, by group and node."""
    return data_portions.merge(
        *(
            {g.spec.name: {p.spec.node_name: data_portions.of_pod(p.metadata)}}
            for g in groups
            for p in g.live
            if g.spec.portions and p.spec.node_name
        )
    )


def first_opened(groups: tuple[ObservedGroup, ...]) -> float | None:
    """Return when the first scheduling gate of a member was opened, or None while all are
    closed.
    """
    times = (p.metadata.annotations.get(OPENED_ANNOTATION) for g in groups for p in g.live)
    return min((float(text) for text in times if text), default=None)


def first_created(groups: tuple[ObservedGroup, ...]) -> float | None:
    """Return when the first TaskCluster of the gang was created, or None if none exists."""
    times = (
        g.cluster.metadata.creation_timestamp
        for g in groups
        if g.cluster is not None and g.cluster.metadata.deletion_timestamp is None
    )
    return min((clock.parse_rfc3339(text) for text in times if text), default=None)


def describe_missing(groups: tuple[ObservedGroup, ...]) -> str:
    """Return which workers are not connected and why, in one sentence for each group."""
    return "; ".join(_missing(groups))


def _missing(groups: tuple[ObservedGroup, ...]) -> Iterator[str]:
    for group in groups:
        if group.complete:
            continue
        text = f"group {group.spec.name}: {len(group.connected)} of {group.spec.min} workers are "
        why = group.trouble[1]
        yield text + "connected" + (f": {why}" if why else "")


def describe_broken(groups: tuple[ObservedGroup, ...], *, since: float | None) -> str:
    """Return which member has ended in a group that fails with its members; "" if none has.

    `since`: when the flow started; None before. A Pod created later is a replacement, unless the
    group is elastic.
    """
    for group in groups:
        if group.spec.fails and (why := _broken(group, since)):
            return f"group {group.spec.name}: {why}"
    return ""


def _broken(group: ObservedGroup, since: float | None) -> str:
    for seen in group.pods:
        if seen.is_finished or any(c.restart_count for c in seen.status.container_statuses):
            trouble = pod.find_trouble(seen)
            return trouble.text if trouble else f"Pod {seen.metadata.name} ended"
        made = seen.metadata.creation_timestamp
        if since is None or group.spec.elastic or made is None:
            continue
        if clock.parse_rfc3339(made) > since + 1:  # times of Kubernetes are whole seconds
            return f"the worker before Pod {seen.metadata.name} ended"
    return ""


def state(
    groups: tuple[ObservedGroup, ...],
    *,
    since: float | None,
    reason: reasons.SetReason = Reason.WAITING_FOR_WORKERS,
    message: str = "",
) -> port.GangState:
    """Return the state of a gang, given the state of its groups. `reason` and `message` are used
    while the gang is not ready.
    """
    ready = all(g.complete for g in groups)
    if not message and any(not g.complete and g.trouble[0] in _REFUSED for g in groups):
        reason = Reason.OBJECT_REFUSED
    return port.GangState(
        groups={g.spec.name: g.state() for g in groups},
        ready=ready,
        nodes=nodes(groups),
        portions=held_portions(groups),
        reason=Reason.GANG_READY if ready else reason,
        message="" if ready else message or describe_missing(groups),
        broken=describe_broken(groups, since=since),
    )
