"""What exists from the first start without being asked for: TaskCluster `default`.

Used by the wiring of `kiln up`. Made once: whoever deletes or changes it has the last word.
"""

from kilnwork.api import kinds, resource
from kilnwork.kube import client, errors

NAMESPACE = "default"
NAME = "default"
ANNOTATION = "kilnwork.dev/default-cluster"
"""On Namespace `default`: says that the cluster was made once, even if it is gone by now."""


async def ensure_default(kube: client.Client, *, slots: int) -> bool:
    """Make TaskCluster `default` with `slots` at the first start; True when it was made now."""
    home = await kube.get(resource.NAMESPACES, NAMESPACE)
    if ANNOTATION in (home["metadata"].get("annotations") or {}):
        return False
    cluster = {
        "apiVersion": kinds.TASK_CLUSTERS.api_version,
        "kind": kinds.TASK_CLUSTERS.kind,
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"replicas": 1, "slotsPerWorker": slots},
    }
    made = True
    try:
        await kube.create(kinds.TASK_CLUSTERS, cluster, NAMESPACE)
    except errors.AlreadyExists:
        made = False
    patch = {"metadata": {"annotations": {ANNOTATION: "made"}}}
    await kube.merge_patch(resource.NAMESPACES, NAMESPACE, patch)
    return made
