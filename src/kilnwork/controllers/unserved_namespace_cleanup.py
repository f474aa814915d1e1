"""Clean-up of namespaces that the manager does not serve any more: TaskClusters get conditions,
TaskClusters and DataPonds lose their finalizers, and the Pods of kilnwork are deleted.

Used by the wiring of `kiln manager` when `--only-in` lists fewer namespaces than before. Everything
may be repeated. It needs the former rights of the manager there, which `kubectl apply` does not
remove.
"""

import logging

from kilnwork.api import api_resources, data_pond, kinds, meta, reasons, task_cluster
from kilnwork.controllers import status_writer, worker_pods
from kilnwork.controllers.data_pond import deletion_decision as pond_closing
from kilnwork.controllers.task_cluster import deletion
from kilnwork.kit import clock
from kilnwork.kube import client, errors, finalizers

log = logging.getLogger(__name__)

_OURS = ",".join(f"{key}={value}" for key, value in worker_pods.MANAGED.items())


async def clean_up(kube: client.Client, namespace: str, *, time: clock.Clock) -> None:
    """Write the conditions to all TaskClusters of a namespace, remove the finalizers of
    TaskClusters and DataPonds, and delete all Pods that kilnwork created: those of workers, agents
    and attempts.

    Raises Forbidden if the rights are gone, and other KubeErrors.
    """
    writer = status_writer.StatusWriter(kube, kinds.TASK_CLUSTERS, task_cluster.TaskClusterStatus)
    clusters = await kube.list(kinds.TASK_CLUSTERS, namespace, type=task_cluster.TaskCluster)
    for found in clusters.items:
        wanted = _unserved_status(found, now=clock.rfc3339(time.wall()))
        if wanted != found.status:
            await writer.write(found, wanted)
        if deletion.has_finalizer(found):
            await finalizers.remove(kube, kinds.TASK_CLUSTERS, found, finalizer=deletion.FINALIZER)
    ponds = await kube.list(kinds.DATA_PONDS, namespace, type=data_pond.DataPond)
    for pond in ponds.items:
        await finalizers.remove(kube, kinds.DATA_PONDS, pond, finalizer=pond_closing.FINALIZER)
    pods = await kube.list(api_resources.PODS, namespace, type=meta.Partial, label_selector=_OURS)
    for pod in pods.items:
        log.info("deleting worker Pod", extra={"pod": pod.metadata.name, "namespace": namespace})
        try:
            await kube.delete(
                api_resources.PODS, pod.metadata.name, namespace, uid=pod.metadata.uid
            )
        except (errors.NotFound, errors.Conflict):
            continue


def _unserved_status(
    found: task_cluster.TaskCluster, *, now: str
) -> task_cluster.TaskClusterStatus:
    message = "the manager serves other namespaces now (--only-in), so its workers are gone"
    conditions = tuple(
        meta.Condition(
            type=kind,
            status="False",
            reason=str(reasons.ClusterReason.NOT_SERVED),
            message=message,
            observed_generation=found.metadata.generation,
        )
        for kind in ("Available", "Ready")
    )
    return task_cluster.TaskClusterStatus(
        selector=found.status.selector,
        observed_generation=found.metadata.generation,
        conditions=meta.merge_conditions(found.status.conditions, conditions, now=now),
    )
