"""The deletion of a TaskCluster: for how long running tasks may continue, and what the deletion
waits for.

No I/O. Used by `plan`, `reconciler` and `unserved_namespace_cleanup`. A finalizer keeps the object,
and with it the Pods that it owns, until its workers hold no tasks or its time has expired. It is
set only while the cluster has work, so that idle clusters, their namespace or the kind can be
deleted without a manager.
"""

from kilnwork.api import reasons, task_cluster
from kilnwork.controllers.task_cluster import status
from kilnwork.dispatch import model
from kilnwork.kit import clock

FINALIZER = "kilnwork.dev/drain"

IDLE_S = 60.0
"""Seconds for which a cluster must be without work before the finalizer is removed, which limits
the writes to two per minute."""


def has_work(view: model.ClusterView | None) -> bool:
    """Return whether the cluster has tasks, running or waiting."""
    return view is not None and (view.queued > 0 or any(w.holding for w in view.workers))


def has_finalizer(cluster: task_cluster.TaskCluster) -> bool:
    return FINALIZER in cluster.metadata.finalizers


def finalizer_change(
    cluster: task_cluster.TaskCluster,
    view: model.ClusterView | None,
    *,
    worked: float,
    now: float,
) -> tuple[bool | None, float | None]:
    """Return whether to set (True) or remove (False) the finalizer, or None to keep it as it is;
    and the seconds until the next check.

    `worked`: when the cluster last had work (wall clock, in seconds).
    """
    if has_work(view) and cluster.spec.drain_seconds > 0:
        return (None if has_finalizer(cluster) else True), None
    if not has_finalizer(cluster):
        return None, None
    left_s = worked + IDLE_S - now
    return (None, left_s) if left_s > 0 and cluster.spec.drain_seconds > 0 else (False, None)


def remaining_s(cluster: task_cluster.TaskCluster, *, now: float) -> float:
    """Return for how many seconds tasks of a deleted cluster may still run; 0 if the time has
    expired, or without the finalizer.
    """
    deleted = cluster.metadata.deletion_timestamp
    if deleted is None or not has_finalizer(cluster):
        return 0.0
    return max(0.0, clock.parse_rfc3339(deleted) + cluster.spec.drain_seconds - now)


def drain_reason(
    cluster: task_cluster.TaskCluster, view: model.ClusterView, *, until: float
) -> status.CreationRefusal:
    """Return the reason and message of a deleted cluster while it drains."""
    count = sum(w.holding for w in view.workers)
    tasks = "1 task ends" if count == 1 else f"{count} tasks end"
    text = (
        f"it is being deleted: {tasks} first, or at {clock.rfc3339(until)} at the latest "
        f"(spec.drainSeconds {cluster.spec.drain_seconds})"
    )
    return status.CreationRefusal(reasons.ClusterReason.DRAINING, text)
