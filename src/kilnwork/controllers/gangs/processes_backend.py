"""Backend `local`: workers are processes of one machine, and the flow starts when all of them are
connected.

Used by the SyncSet controller. It waits only for the workers: there is no gate, and all data is on
the one node. An incomplete gang is deleted after its wait and created again, if its spec says so
(`requeue`).
"""

import msgspec

from kilnwork.api import reasons
from kilnwork.controllers import ports, reconciler_context
from kilnwork.controllers.gangs import gang_state, group_task_clusters, port

SOON_S = 0.25
"""Seconds until the next check of groups that are being deleted."""


class LocalBackend:
    """The backend for one machine, on which the flow starts when all worker processes are connected
    (`port.Backend`).
    """

    def __init__(self, context: reconciler_context.ReconcilerContext) -> None:
        self._clusters = group_task_clusters.GroupClusters(context, gated=False)
        self._clock = context.time

    def use(self, hub: ports.ClusterHub) -> None:
        """Set the dispatcher that is queried for connected workers."""
        self._clusters.use(hub)

    async def ensure(self, spec: port.GangSpec) -> port.GangState:
        """Create the groups of a gang. An incomplete gang whose wait has ended is deleted with
        `requeue`, otherwise reported as `timed_out`.
        """
        obstacle = await self._clusters.make(spec)
        found = await self.observe(spec)
        if obstacle is not None:
            return msgspec.structs.replace(
                found, ready=False, reason=obstacle.reason, message=obstacle.message, again_s=1.0
            )
        if found.ready or spec.running_since is not None:
            return found
        began = gang_state.first_created(self._clusters.groups(spec))
        left_s = spec.wait_s if began is None else began + spec.wait_s - self._clock.wall()
        if left_s > 0:
            return msgspec.structs.replace(found, again_s=left_s)
        text = f"not all workers came within {spec.wait_s:g} s"
        found = msgspec.structs.replace(found, reason=reasons.SetReason.GANG_TIMED_OUT)
        if not spec.requeue:
            message = f"{text}: {found.message}"
            return msgspec.structs.replace(found, timed_out=True, message=message)
        await self._clusters.release(spec.namespace, spec.uid, but=None)
        message = f"{text}, all start again: {found.message}"
        return msgspec.structs.replace(found, message=message, again_s=SOON_S)

    async def observe(self, spec: port.GangSpec) -> port.GangState:
        """Return the state of the gang, without changing anything."""
        groups = self._clusters.groups(spec)
        return gang_state.state(groups, since=spec.running_since)

    async def release(self, namespace: str, uid: str, *, but: int | None) -> bool:
        """Delete the groups of all generations of a SyncSet except `but`; return whether none of
        them is left.
        """
        return await self._clusters.release(namespace, uid, but=but)
