"""The deletion of a TaskCluster: for how long running tasks may continue, and what it waits for.

Pure. Used by `plan`. A finalizer keeps the object, and with it the Pods that it owns, until its
workers hold no tasks or its time has expired. It is set only while the cluster has work, so that
idle clusters, their namespace or the kind can be deleted without a manager.
"""

from kilnwork.api import reasons, task_cluster
from kilnwork.controllers.task_cluster import status
from kilnwork.dispatch import model
from kilnwork.kit import clock

FINALIZER = "kilnwork.dev/drain"

IDLE_S = 60.0
"""Seconds for which a cluster must be without work before the finalizer is removed, which limits
the writes to two per minute."""


def works(view: model.ClusterView | None) -> bool:
    """Return whether the cluster has tasks, running or waiting."""
    return view is not None and (view.queued > 0 or any(w.holding for w in view.workers))


def held(cluster: task_cluster.TaskCluster) -> bool:
    return FINALIZER in cluster.metadata.finalizers


def finalizer(
    cluster: task_cluster.TaskCluster,
    view: model.ClusterView | None,
    *,
    worked: float,
    now: float,
) -> tuple[bool | None, float | None]:
    """Return whether to set or remove the finalizer, or None to leave it; and when to look again.

    `worked`: when the cluster last had work (wall clock, in seconds).
    """
    if works(view) and cluster.spec.drain_seconds > 0:
        return (None if held(cluster) else True), None
    if not held(cluster):
        return None, None
    left_s = worked + IDLE_S - now
    return (None, left_s) if left_s > 0 and cluster.spec.drain_seconds > 0 else (False, None)


def left_s(cluster: task_cluster.TaskCluster, *, now: float) -> float:
    """Return the remaining seconds of a deleted cluster; 0 if its time has expired."""
    deleted = cluster.metadata.deletion_timestamp
    if deleted is None or not held(cluster):
        return 0.0
    return max(0.0, clock.parse_rfc3339(deleted) + cluster.spec.drain_seconds - now)


def why(
    cluster: task_cluster.TaskCluster, view: model.ClusterView, *, until: float
) -> status.CreationRefusal:
    """Return reason and message of a deleted cluster while it drains."""
    count = sum(w.holding for w in view.workers)
    tasks = "1 task ends" if count == 1 else f"{count} tasks end"
    text = (
        f"it is being deleted: {tasks} first, or at {clock.rfc3339(until)} at the latest "
        f"(spec.drainSeconds {cluster.spec.drain_seconds})"
    )
    return status.CreationRefusal(reasons.ClusterReason.DRAINING, text)
