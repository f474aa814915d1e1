"""Creation, scaling, deletion and reading of the TaskClusters of gangs.

Used by the backends. Of an existing TaskCluster only the replicas are changed: the template of a
generation does not change.
"""

from typing import NamedTuple

from kilnwork.api import kinds, meta, reasons, task_cluster
from kilnwork.controllers import ports, reconciler_context
from kilnwork.controllers.gangs import cluster_manifests, gang_state, port
from kilnwork.kube import errors

Reason = reasons.SetReason


class Obstacle(NamedTuple):
    """The reason and message why a group cannot be created."""

    reason: reasons.SetReason
    message: str


class GroupClusters:
    """Access to the TaskClusters of all gangs. `gated`: whether their Pods wait at a scheduling
    gate.
    """

    def __init__(self, context: reconciler_context.ReconcilerContext, *, gated: bool) -> None:
        self._client = context.kube
        self._caches = context.caches
        self._gated = gated
        self._hub: ports.ClusterHub | None = None

    def use(self, hub: ports.ClusterHub) -> None:
        """Set the dispatcher that is queried for connected workers."""
        self._hub = hub

    def groups(self, spec: port.GangSpec) -> tuple[gang_state.ObservedGroup, ...]:
        """Return the observed state of each group of a gang."""
        return tuple(self._group(spec, wanted) for wanted in spec.groups)

    def _group(self, spec: port.GangSpec, wanted: port.GroupSpec) -> gang_state.ObservedGroup:
        found = self._caches.clusters.get((spec.namespace, wanted.cluster))
        if found is None or not _is_ours(found.metadata, spec.uid):
            return gang_state.ObservedGroup(spec=wanted, cluster=None)
        pods = self._caches.pods.owned_by(found.metadata.uid)
        view = None if self._hub is None else self._hub.cluster(spec.namespace, wanted.cluster)
        ordered = tuple(sorted(pods, key=lambda p: p.metadata.name))
        return gang_state.ObservedGroup(spec=wanted, cluster=found, pods=ordered, view=view)

    async def make(self, spec: port.GangSpec) -> Obstacle | None:
        """Create the missing TaskClusters of a gang, and scale the existing ones. Returns what
        prevents this; None if nothing does.
        """
        for group in self.groups(spec):
            if group.cluster is None:
                obstacle = await self._create(spec, group.spec)
                if obstacle is not None:
                    return obstacle
            elif group.cluster.metadata.deletion_timestamp is not None:
                text = f"TaskCluster {group.spec.cluster} of before is being deleted"
                return Obstacle(Reason.WAITING_FOR_WORKERS, text)
            elif group.cluster.spec.replicas != group.spec.replicas:
                await self._scale(spec, group.spec)
        return None

    async def release(self, namespace: str, uid: str, *, but: int | None) -> bool:
        """Delete the TaskClusters of all generations of a SyncSet except `but`; return whether none
        of them is left.
        """
        owned = self._caches.clusters.owned_by(uid)
        kept = None if but is None else str(but)
        left = [
            c for c in owned if c.metadata.labels.get(cluster_manifests.GENERATION_LABEL) != kept
        ]
        for found in left:
            if found.metadata.namespace == namespace and not found.metadata.deletion_timestamp:
                await reconciler_context.delete(self._client, kinds.TASK_CLUSTERS, found.metadata)
        return not left

    async def _create(self, spec: port.GangSpec, group: port.GroupSpec) -> Obstacle | None:
        body = cluster_manifests.task_cluster(spec, group, gated=self._gated)
        try:
            await self._client.create(kinds.TASK_CLUSTERS, body, spec.namespace)
        except errors.AlreadyExists:
            return await self._taken(spec, group)
        except (errors.Forbidden, errors.Invalid) as error:
            text = f"TaskCluster {group.cluster} cannot be made: {error.message}"
            return Obstacle(Reason.OBJECT_REFUSED, text)
        return None

    async def _taken(self, spec: port.GangSpec, group: port.GroupSpec) -> Obstacle | None:
        name = group.cluster
        try:
            found = await self._client.get(
                kinds.TASK_CLUSTERS, name, spec.namespace, type=task_cluster.TaskCluster
            )
        except errors.NotFound:
            return Obstacle(Reason.WAITING_FOR_WORKERS, f"TaskCluster {name} is to be made")
        if not _is_ours(found.metadata, spec.uid):
            text = f"TaskCluster {name} exists and does not belong to this SyncSet: delete it"
            return Obstacle(Reason.OBJECT_REFUSED, text)
        return None  # ours: the cache does not have it yet

    async def _scale(self, spec: port.GangSpec, group: port.GroupSpec) -> None:
        change = {"spec": {"replicas": group.replicas}}
        try:
            await self._client.merge_patch(
                kinds.TASK_CLUSTERS, group.cluster, change, spec.namespace
            )
        except errors.NotFound:
            return


def _is_ours(metadata: meta.ObjectMeta, uid: str) -> bool:
    owner = metadata.controller()
    return owner is not None and owner.uid == uid
