"""Backend `pods`: Pods wait at a scheduling gate until there is room for all of them and their
data.

Used by the SyncSet controller; requires only Kubernetes. The gate (KEP-3521) is in the template of
each worker. A check of all nodes (`gang_fit`) is made for one gang after the other; then the gates
of all required members are opened, or none; after the start of the flow, members start
individually. Each check reads the Pods from the API server, so that gangs whose gates were opened a
moment ago are counted.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from kilnwork.api import api_resources, meta, pod, reasons
from kilnwork.controllers import ports, reconciler_context
from kilnwork.controllers.gangs import (
    data_portions,
    gang_fit,
    gang_placement,
    gang_state,
    group_task_clusters,
    port,
    waiting_gangs,
)
from kilnwork.kube import errors

LOOK_FOR_MORE_S = 5.0
"""Seconds between checks for room for optional workers."""

SOON_S = 0.25
_AT_ONCE = 16
"""Number of gates opened concurrently."""

Reason = reasons.SetReason


class PodsBackend:
    """The backend with a scheduling gate and its own capacity check (`port.Backend`)."""

    def __init__(self, context: reconciler_context.ReconcilerContext) -> None:
        self._clusters = group_task_clusters.GroupClusters(context, gated=True)
        self._client = context.kube
        self._clock = context.time
        self._checking = asyncio.Lock()
        """Held while a gang checks for room and reserves it."""
        self._waiting_gangs = waiting_gangs.WaitingGangs(context.time)

    def use(self, hub: ports.ClusterHub) -> None:
        """Set the dispatcher that is queried for connected workers."""
        self._clusters.use(hub)

    async def ensure(self, spec: port.GangSpec) -> port.GangState:
        """Create the groups of a gang; open the gates of all required members or of none; delete
        members that have waited too long for the others.
        """
        obstacle = await self._clusters.make(spec)
        groups = self._clusters.groups(spec)
        found = gang_state.state(groups, since=spec.running_since)
        if obstacle is not None:
            return msgspec.structs.replace(
                found,
                ready=False,
                reason=obstacle.reason,
                message=obstacle.message,
                again_s=gang_placement.LOOK_S,
            )
        if self._is_late(spec, groups, found):
            return await self._requeue(spec, groups, found)
        if any(g.gated for g in groups):
            async with self._checking:
                groups, found = await self._open_gates(spec, groups)
        found = await self._share_lost(spec, groups, found)
        return self._with_wait(spec, groups, found)

    async def observe(self, spec: port.GangSpec) -> port.GangState:
        """Return the state of the gang, without changing anything."""
        return gang_state.state(self._clusters.groups(spec), since=spec.running_since)

    async def release(self, namespace: str, uid: str, *, but: int | None) -> bool:
        """Delete the groups of all generations of a SyncSet except `but`; return whether none of
        them is left.
        """
        return await self._clusters.release(namespace, uid, but=but)

    # Waiting

    def _is_late(
        self,
        spec: port.GangSpec,
        groups: tuple[gang_state.ObservedGroup, ...],
        found: port.GangState,
    ) -> bool:
        """Return whether the gang has waited longer than `wait_s`: since the first gate was opened,
        or, if no gate is open and the gang does not start again (`requeue`), since its creation.
        """
        if found.ready or spec.running_since is not None:
            return False
        began = gang_state.first_opened(groups)
        if began is None and not spec.requeue:
            began = gang_state.first_created(groups)
        return began is not None and self._clock.wall() >= began + spec.wait_s

    async def _requeue(
        self,
        spec: port.GangSpec,
        groups: tuple[gang_state.ObservedGroup, ...],
        found: port.GangState,
    ) -> port.GangState:
        message = found.message
        if gang_state.first_opened(groups) is None:
            ahead = self._waiting_gangs.ahead_of(spec)
            message = ahead or (await self._find_room(spec, groups)).message or message
        text = f"not all workers came within {spec.wait_s:g} s"
        if not spec.requeue:
            return msgspec.structs.replace(
                found, timed_out=True, reason=Reason.GANG_TIMED_OUT, message=f"{text}: {message}"
            )
        for group in groups:
            for seen in group.live:
                if not gang_state.is_gated(seen):
                    await reconciler_context.delete(self._client, api_resources.PODS, seen.metadata)
        return msgspec.structs.replace(
            found,
            nodes=frozenset(),
            reason=Reason.GANG_TIMED_OUT,
            message=f"{text}; they released their room, and all start again: {message}",
            again_s=SOON_S,
        )

    def _with_wait(
        self,
        spec: port.GangSpec,
        groups: tuple[gang_state.ObservedGroup, ...],
        found: port.GangState,
    ) -> port.GangState:
        """Return the state with the seconds until the next pass: to look for room, or because the
        wait ends.
        """
        waits = [] if found.again_s is None else [found.again_s]
        began = gang_state.first_opened(groups)
        if not found.ready and spec.running_since is None and began is not None:
            waits.append(max(0.05, began + spec.wait_s - self._clock.wall()))
        return msgspec.structs.replace(found, again_s=min(waits, default=None))

    # Room

    async def _find_room(
        self, spec: port.GangSpec, groups: tuple[gang_state.ObservedGroup, ...]
    ) -> port.GangState:
        """Return the gang's state, with a message about members for which there is no room. Opens
        no gate.
        """
        room = await self._room(spec)
        if room is None:
            return gang_state.state(groups, since=spec.running_since)
        placement, _ = gang_placement.place(spec, groups, room)
        text = gang_fit.describe_unplaced(placement, room)
        return gang_state.state(
            groups, since=spec.running_since, reason=Reason.WAITING_FOR_ROOM, message=text
        )

    async def _open_gates(
        self, spec: port.GangSpec, groups: tuple[gang_state.ObservedGroup, ...]
    ) -> tuple[tuple[gang_state.ObservedGroup, ...], port.GangState]:
        """Open the gates of members that have been assigned a node, if there is room for all
        required members. Returns the new state of the gang.

        Returns also the groups as read now: the caches may not reflect gates that were opened
        before.
        """
        room = await self._room(spec)
        if room is None:
            found = gang_state.state(groups, since=spec.running_since)
            return groups, await self._without_check(spec, groups, found)
        groups = gang_placement.with_current_pods(groups, room)
        return groups, await self._take_turn(spec, groups, room)

    async def _take_turn(
        self,
        spec: port.GangSpec,
        groups: tuple[gang_state.ObservedGroup, ...],
        room: gang_fit.ClusterRoom,
    ) -> port.GangState:
        """Open the gates of a gang if there is room, unless a gang of higher priority waits for
        room.
        """
        begins = spec.running_since is None and gang_state.first_opened(groups) is None
        if begins and (ahead := self._waiting_gangs.ahead_of(spec)):
            waits = Reason.WAITING_FOR_ROOM
            found = gang_state.state(groups, since=None, reason=waits, message=ahead)
            return msgspec.structs.replace(found, again_s=gang_placement.LOOK_S)
        found = await self._open_room_gates(spec, groups, room)
        waits_for_it = found.reason in (Reason.WAITING_FOR_ROOM, Reason.WAITING_FOR_DATA)
        could = begins and waits_for_it and gang_placement.would_fit(spec, groups, room)
        self._waiting_gangs.note(spec, waits=could)
        return found

    async def _open_room_gates(
        self,
        spec: port.GangSpec,
        groups: tuple[gang_state.ObservedGroup, ...],
        room: gang_fit.ClusterRoom,
    ) -> port.GangState:
        found = gang_state.state(groups, since=spec.running_since)
        placement, waiting = gang_placement.place(spec, groups, room)
        starting = gang_placement.choose_starting(spec, groups, placement, waiting)
        if not starting:
            text = gang_fit.describe_unplaced(placement, room)
            if not text:  # some Pods do not exist yet
                return msgspec.structs.replace(found, again_s=gang_placement.LOOK_S)
            return msgspec.structs.replace(
                found,
                reason=Reason.GANG_READY if found.ready else Reason.WAITING_FOR_ROOM,
                message="" if found.ready else text,
                again_s=LOOK_FOR_MORE_S if found.ready else gang_placement.LOOK_S,
            )
        starting = gang_placement.with_portions(spec, groups, placement, starting)
        found = gang_placement.with_places(found, placement, starting)
        data = spec.data
        if data is not None and (data.lead or spec.running_since is not None):
            # The whole gang starts together; later members start as soon as their own node has the
            # data.
            without_data = {
                m.name
                for m in starting
                if placement.assigned[m.name] not in gang_placement.nodes_with_data(data, m)
            }
            if without_data and spec.running_since is None:
                return gang_placement.waits_for_data(found, placement, without_data)
            starting = [member for member in starting if member.name not in without_data]
        await self._open(spec, starting, room)
        return (
            found
            if starting or found.ready
            else msgspec.structs.replace(found, again_s=gang_placement.LOOK_S)
        )

    async def _without_check(
        self,
        spec: port.GangSpec,
        groups: tuple[gang_state.ObservedGroup, ...],
        found: port.GangState,
    ) -> port.GangState:
        """Open the gates of all members without a check for room, because the manager may not read
        nodes.

        Then the scheduler decides, and members that start without the others are deleted after the
        wait. If the data leads, the gates stay closed until all nodes have the data.
        """
        if spec.data is not None and spec.data.lead and not spec.data.ready >= spec.data.nodes:
            text = "the manager may not read nodes: workers wait until all nodes have the data"
            everywhere = {
                g.spec.name: dict.fromkeys(spec.data.nodes, frozenset(range(g.spec.portions)))
                for g in groups
                if g.spec.portions
            }
            return msgspec.structs.replace(
                found,
                nodes=spec.data.nodes,
                portions=everywhere,
                reason=Reason.WAITING_FOR_DATA,
                message=text,
            )
        if any(len(g.live) < g.spec.min for g in groups) and spec.running_since is None:
            return msgspec.structs.replace(found, again_s=gang_placement.LOOK_S)
        gated = [(g, p) for g in groups for p in g.gated]
        room = gang_fit.ClusterRoom()
        going = [
            gang_fit.Member(p.metadata.name, g.spec.name, await self._raw(p)) for g, p in gated
        ]
        nowhere = gang_fit.Placement({})
        await self._open(spec, gang_placement.with_portions(spec, groups, nowhere, going), room)
        return found

    async def _raw(self, seen: pod.Pod) -> meta.JsonObject:
        return await self._client.get(
            api_resources.PODS, seen.metadata.name, seen.metadata.namespace
        )

    async def _room(self, spec: port.GangSpec) -> gang_fit.ClusterRoom | None:
        """Return the current nodes and Pods, or None if the manager may not read nodes. Without the
        right to read all Pods, only those of the SyncSet's namespace are known.
        """
        try:
            nodes = await self._client.list(api_resources.NODES, type=dict)
        except errors.Forbidden:
            return None
        try:
            pods = await self._client.list(api_resources.PODS, type=dict)
        except errors.Forbidden:
            pods = await self._client.list(api_resources.PODS, spec.namespace, type=dict)
        return gang_fit.ClusterRoom(nodes=tuple(nodes.items), pods=tuple(pods.items))

    async def _share_lost(
        self,
        spec: port.GangSpec,
        groups: tuple[gang_state.ObservedGroup, ...],
        found: port.GangState,
    ) -> port.GangState:
        """Reassign portions whose workers are gone.

        A group that lacks workers is left unchanged until their replacements exist, which may take
        over the portions.
        """
        counts = {g.spec.name: g.spec.portions for g in groups}
        lost = data_portions.missing_portions(
            counts, data_portions.merge(found.portions, gang_placement.portions_of(groups))
        )
        pod_portions: dict[str, dict[str, frozenset[int]]] = {}
        for group in groups:
            placed = [p for p in group.live if p.spec.node_name and not gang_state.is_gated(p)]
            if group.spec.name not in lost or not placed:
                continue
            if len(group.live) < group.spec.replicas:
                found = msgspec.structs.replace(found, again_s=gang_placement.LOOK_S)
                continue
            others = [gang_placement.holder_of(p) for p in group.live if not gang_state.is_gated(p)]
            shares = gang_placement.share_portions(spec, group, others)
            for seen in placed:
                has = shares[seen.metadata.name]
                if has != data_portions.of_pod(seen.metadata):
                    await self._write_portions(seen, has)
                    pod_portions.setdefault(group.spec.name, {})[seen.spec.node_name] = has
        return msgspec.structs.replace(
            found, portions=data_portions.merge(found.portions, pod_portions)
        )

    async def _write_portions(self, seen: pod.Pod, has: frozenset[int]) -> None:
        marks = {data_portions.ANNOTATION: data_portions.format_portions(has)}
        change = {"metadata": {"uid": seen.metadata.uid, "annotations": marks}}
        try:
            await self._client.merge_patch(
                api_resources.PODS, seen.metadata.name, change, seen.metadata.namespace
            )
        except (errors.Conflict, errors.NotFound):
            return  # another Pod has the same name: the next pass assigns again

    # Gates

    async def _open(
        self, spec: port.GangSpec, starting: Sequence[gang_fit.Member], room: gang_fit.ClusterRoom
    ) -> None:
        """Open the scheduling gates of the members `starting`.

        A Pod that has changed meanwhile is skipped. The next pass finds that the gang has started,
        and completes it, as after a crash.
        """
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(member: gang_fit.Member) -> None:
            async with limit:
                try:
                    await self._client.merge_patch(
                        api_resources.PODS,
                        member.name,
                        gang_placement.opening_patch(spec, member, room, now=self._clock.wall()),
                        spec.namespace,
                    )
                except (errors.Conflict, errors.NotFound):
                    return

        async with asyncio.TaskGroup() as tasks:
            for member in starting:
                tasks.create_task(one(member))
