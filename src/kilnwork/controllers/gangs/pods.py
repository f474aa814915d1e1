"""Backend `pods`: Pods wait at a gate until there is room for all of them, and their data.

Used by the SyncSet controller; needs nothing but Kubernetes. The gate is a scheduling gate
(KEP-3521) in the template of every worker. A check of all nodes decides (`capacity`), one gang
after the other; then the gates of the whole gang are opened, or none. What Pods hold is read anew
from the API server for each check, so that gangs that were let go a moment ago are reckoned with.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kilnwork.api import meta, pod, reasons, resource, sync_set, sync_set_validation
from kilnwork.controllers import ports, tools
from kilnwork.controllers.gangs import capacity, clusters, members, port, precedence, sharing
from kilnwork.kube import errors

LOOK_S = 1.0
"""Between looks for room: Pods of others come and go, and nobody watches them all."""

LOOK_FOR_MORE_S = 5.0
"""The same for workers of a gang that does without them."""

SOON_S = 0.25
_AT_ONCE = 16
"""Gates opened at the same time."""

Reason = reasons.SetReason


class PodsBackend:
    """Our own gate, and our own look at the room there is (`port.Backend`)."""

    def __init__(self, given: tools.Tools) -> None:
        self._clusters = clusters.GroupClusters(given, gated=True)
        self._client = given.kube
        self._clock = given.time
        self._checking = asyncio.Lock()
        """One gang at a time looks for room and takes it."""
        self._precedence = precedence.Precedence(given.time)

    def use(self, hub: ports.ClusterHub) -> None:
        """Ask this dispatcher from now on."""
        self._clusters.use(hub)

    async def ensure(self, spec: port.GangSpec) -> port.GangState:
        """Make the groups; let all go, or none; take the room back from those that wait too long
        for others."""
        obstacle = await self._clusters.make(spec)
        groups = self._clusters.groups(spec)
        found = members.state(groups, since=spec.running_since)
        if obstacle is not None:
            return msgspec.structs.replace(
                found, ready=False, reason=obstacle.reason, message=obstacle.message, again_s=LOOK_S
            )
        if self._is_late(spec, groups, found):
            return await self._give_up(spec, groups, found)
        if any(g.gated for g in groups):
            async with self._checking:
                groups, found = await self._let_go(spec, groups)
        found = await self._share_lost(spec, groups, found)
        return self._with_wait(spec, groups, found)

    async def observe(self, spec: port.GangSpec) -> port.GangState:
        """Say where it is."""
        return members.state(self._clusters.groups(spec), since=spec.running_since)

    async def release(self, namespace: str, uid: str, *, but: int | None) -> bool:
        """Delete the groups of other generations."""
        return await self._clusters.release(namespace, uid, but=but)

    # Waiting

    def _is_late(
        self, spec: port.GangSpec, groups: tuple[members.Group, ...], found: port.GangState
    ) -> bool:
        """Whether the wait is over: of those that were let go for the others, or of all if none was
        and the gang is not to wait for ever."""
        if found.ready or spec.running_since is not None:
            return False
        began = members.opened(groups)
        if began is None and not spec.requeue:
            began = members.made(groups)
        return began is not None and self._clock.wall() >= began + spec.wait_s

    async def _give_up(
        self, spec: port.GangSpec, groups: tuple[members.Group, ...], found: port.GangState
    ) -> port.GangState:
        message = found.message
        if members.opened(groups) is None:
            message = (await self._look(spec, groups)).message or message
        text = f"not all workers came within {spec.wait_s:g} s"
        if not spec.requeue:
            return msgspec.structs.replace(
                found, timed_out=True, reason=Reason.GANG_TIMED_OUT, message=f"{text}: {message}"
            )
        for group in groups:
            for seen in group.live:
                if not members.is_gated(seen):
                    await tools.delete(self._client, resource.PODS, seen.metadata)
        return msgspec.structs.replace(
            found,
            nodes=frozenset(),
            reason=Reason.GANG_TIMED_OUT,
            message=f"{text}; they gave their room back, and all begin anew: {message}",
            again_s=SOON_S,
        )

    def _with_wait(
        self, spec: port.GangSpec, groups: tuple[members.Group, ...], found: port.GangState
    ) -> port.GangState:
        """When to look again: for room, and whether the wait is over."""
        waits = [] if found.again_s is None else [found.again_s]
        began = members.opened(groups)
        if not found.ready and spec.running_since is None and began is not None:
            waits.append(max(0.05, began + spec.wait_s - self._clock.wall()))
        return msgspec.structs.replace(found, again_s=min(waits, default=None))

    # Room

    async def _look(self, spec: port.GangSpec, groups: tuple[members.Group, ...]) -> port.GangState:
        """Say where the gated members would go, and open no gate."""
        room = await self._room(spec)
        if room is None:
            return members.state(groups, since=spec.running_since)
        placement, _ = _place(spec, groups, room)
        text = capacity.lacks(placement, room)
        return members.state(
            groups, since=spec.running_since, reason=Reason.WAITING_FOR_ROOM, message=text
        )

    async def _let_go(
        self, spec: port.GangSpec, groups: tuple[members.Group, ...]
    ) -> tuple[tuple[members.Group, ...], port.GangState]:
        """Open the gates of members that have room, if all have that need it. Give the groups as
        they are now, too: the caches may not have heard yet of gates that were opened before."""
        room = await self._room(spec)
        if room is None:
            found = members.state(groups, since=spec.running_since)
            return groups, await self._without_check(spec, groups, found)
        groups = _as_they_are(groups, room)
        return groups, await self._take_turn(spec, groups, room)

    async def _take_turn(
        self, spec: port.GangSpec, groups: tuple[members.Group, ...], room: capacity.Room
    ) -> port.GangState:
        """Let a gang take room, unless one of higher priority waits that could have it."""
        begins = spec.running_since is None and members.opened(groups) is None
        if begins and (ahead := self._precedence.ahead_of(spec)):
            waits = Reason.WAITING_FOR_ROOM
            found = members.state(groups, since=None, reason=waits, message=ahead)
            return msgspec.structs.replace(found, again_s=LOOK_S)
        found = await self._let_go_in(spec, groups, room)
        waits_for_it = found.reason in (Reason.WAITING_FOR_ROOM, Reason.WAITING_FOR_DATA)
        could = begins and waits_for_it and _would_fit(spec, groups, room)
        self._precedence.note(spec, waits=could)
        return found

    async def _let_go_in(
        self, spec: port.GangSpec, groups: tuple[members.Group, ...], room: capacity.Room
    ) -> port.GangState:
        found = members.state(groups, since=spec.running_since)
        placement, waiting = _place(spec, groups, room)
        going = _going(spec, groups, placement, waiting)
        if not going:
            text = capacity.lacks(placement, room)
            if not text:  # some Pods are not made yet
                return msgspec.structs.replace(found, again_s=LOOK_S)
            return msgspec.structs.replace(
                found,
                reason=Reason.GANG_READY if found.ready else Reason.WAITING_FOR_ROOM,
                message="" if found.ready else text,
                again_s=LOOK_FOR_MORE_S if found.ready else LOOK_S,
            )
        going = _with_portions(spec, groups, placement, going)
        found = _with_places(found, placement, going)
        data = spec.data
        if data is not None and (data.lead or spec.running_since is not None):
            # The whole gang starts together; later each goes as soon as its own node has the data.
            late = {m.name for m in going if placement.assigned[m.name] not in _holding(data, m)}
            if late and spec.running_since is None:
                return _waits_for_data(found, placement, late)
            going = [member for member in going if member.name not in late]
        await self._open(spec, going, room)
        return found if going or found.ready else msgspec.structs.replace(found, again_s=LOOK_S)

    async def _without_check(
        self, spec: port.GangSpec, groups: tuple[members.Group, ...], found: port.GangState
    ) -> port.GangState:
        """Nobody lets us see the nodes: the scheduler decides, and the wait brings back those that
        came without the others."""
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
            return msgspec.structs.replace(found, again_s=LOOK_S)
        gated = [(g, p) for g in groups for p in g.gated]
        room = capacity.Room()
        going = [
            capacity.Member(p.metadata.name, g.spec.name, await self._raw(p)) for g, p in gated
        ]
        nowhere = capacity.Placement({})
        await self._open(spec, _with_portions(spec, groups, nowhere, going), room)
        return found

    async def _raw(self, seen: pod.Pod) -> meta.JsonObject:
        return await self._client.get(resource.PODS, seen.metadata.name, seen.metadata.namespace)

    async def _room(self, spec: port.GangSpec) -> capacity.Room | None:
        """The nodes and all Pods as they are now; None if the manager may not see nodes."""
        try:
            nodes = await self._client.list(resource.NODES, type=dict)
        except errors.Forbidden:
            return None
        try:
            pods = await self._client.list(resource.PODS, type=dict)
        except errors.Forbidden:
            pods = await self._client.list(resource.PODS, spec.namespace, type=dict)
        return capacity.Room(nodes=tuple(nodes.items), pods=tuple(pods.items))

    async def _share_lost(
        self, spec: port.GangSpec, groups: tuple[members.Group, ...], found: port.GangState
    ) -> port.GangState:
        """Give portions that no worker has any more to others, if the one that takes its place has
        none: before that is made, it is waited for."""
        counts = {g.spec.name: g.spec.portions for g in groups}
        lost = sharing.missing(counts, sharing.merge(found.portions, _told(groups)))
        told: dict[str, dict[str, frozenset[int]]] = {}
        for group in groups:
            placed = [p for p in group.live if p.spec.node_name and not members.is_gated(p)]
            if group.spec.name not in lost or not placed:
                continue
            if len(group.live) < group.spec.replicas:
                found = msgspec.structs.replace(found, again_s=LOOK_S)
                continue
            others = [_holder(p) for p in group.live if not members.is_gated(p)]
            shares = _shares(spec, group, others)
            for seen in placed:
                has = shares[seen.metadata.name]
                if has != sharing.of_pod(seen.metadata):
                    await self._tell_portions(seen, has)
                    told.setdefault(group.spec.name, {})[seen.spec.node_name] = has
        return msgspec.structs.replace(found, portions=sharing.merge(found.portions, told))

    async def _tell_portions(self, seen: pod.Pod, has: frozenset[int]) -> None:
        marks = {sharing.ANNOTATION: sharing.text(has)}
        change = {"metadata": {"uid": seen.metadata.uid, "annotations": marks}}
        try:
            await self._client.merge_patch(
                resource.PODS, seen.metadata.name, change, seen.metadata.namespace
            )
        except (errors.Conflict, errors.NotFound):
            return  # another has its name: the next pass shares anew

    # Gates

    async def _open(
        self, spec: port.GangSpec, going: Sequence[capacity.Member], room: capacity.Room
    ) -> None:
        """Open the gates of these members. One that changed meanwhile is met again in the next
        pass, as is one that a crash left behind: then the gang has begun, and is completed."""
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(member: capacity.Member) -> None:
            async with limit:
                try:
                    await self._client.merge_patch(
                        resource.PODS,
                        member.name,
                        _opened(spec, member, room, now=self._clock.wall()),
                        spec.namespace,
                    )
                except (errors.Conflict, errors.NotFound):
                    return

        async with asyncio.TaskGroup() as tasks:
            for member in going:
                tasks.create_task(one(member))


def _opened(
    spec: port.GangSpec, member: capacity.Member, room: capacity.Room, *, now: float
) -> meta.JsonObject:
    """The merge patch that opens the gate of a Pod; where data leads, it may go to no other nodes
    than those that have it."""
    given = member.pod
    gates = given["spec"].get("schedulingGates") or ()
    left = [gate for gate in gates if gate["name"] != sync_set_validation.GATE]
    change: dict[str, Any] = {"schedulingGates": left or None}
    data = spec.data
    if data is not None and room.nodes:
        held = data.lead or spec.running_since is not None
        allowed = _holding(data, member) if held else data.nodes
        if member.allowed is not None:
            allowed &= member.allowed
        change["affinity"] = capacity.affinity_to(given, allowed, room.nodes)
    metadata = given["metadata"]
    marks = {members.OPENED_ANNOTATION: f"{now:.3f}"}
    if member.portions is not None:
        marks[sharing.ANNOTATION] = sharing.text(member.portions)
    return {
        "metadata": {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "annotations": marks,
        },
        "spec": change,
    }


def _place(
    spec: port.GangSpec, groups: tuple[members.Group, ...], room: capacity.Room
) -> tuple[capacity.Placement, list[capacity.Member]]:
    """Where the gated members would go, those without which nothing starts first."""
    raw = {(p["metadata"]["namespace"], capacity.name_of(p)): p for p in room.pods}
    needed: list[capacity.Member] = []
    others: list[capacity.Member] = []
    for group in groups:
        started = sum(not members.is_gated(seen) for seen in group.live)
        for position, seen in enumerate(group.gated):
            found = raw.get((spec.namespace, seen.metadata.name))
            if found is None or not capacity.is_gated(found):
                continue
            member = _member(spec, group, found)
            (needed if started + position < group.spec.min else others).append(member)
    ready = frozenset[str]() if spec.data is None else spec.data.ready
    first = capacity.place(room, needed, ready=ready)
    if first.unplaced or not others:
        return first, needed
    return _with_others(spec, room, needed, others), [*needed, *others]


def _with_others(
    spec: port.GangSpec,
    room: capacity.Room,
    needed: Sequence[capacity.Member],
    others: Sequence[capacity.Member],
) -> capacity.Placement:
    """All that are needed, and of the others as many as fit beside them."""
    ready = frozenset[str]() if spec.data is None else spec.data.ready
    first = capacity.place(room, needed, ready=ready)
    placed = [
        {**m.pod, "spec": {**m.pod["spec"], "nodeName": first.assigned[m.name]}} for m in needed
    ]
    rest = msgspec.structs.replace(room, pods=(*room.pods, *placed))
    second = capacity.place(rest, others, ready=ready)
    return capacity.Placement({**first.assigned, **second.assigned}, second.unplaced)


def _member(spec: port.GangSpec, group: members.Group, raw: meta.JsonObject) -> capacity.Member:
    allowed: frozenset[str] | None = None
    near: Mapping[str, int] = {}
    if spec.data is not None:
        allowed = spec.data.nodes
        if group.spec.near is not sync_set.NearMode.NONE:
            near = spec.data.near.get(group.spec.name, {})
    return capacity.Member(capacity.name_of(raw), group.spec.name, raw, allowed, near)


def _would_fit(spec: port.GangSpec, groups: tuple[members.Group, ...], room: capacity.Room) -> bool:
    """Whether a gang could start if nothing else ran."""
    gated = tuple(p for p in room.pods if capacity.is_gated(p))
    alone = capacity.Room(nodes=room.nodes, pods=gated)
    placement, waiting = _place(spec, groups, alone)
    return bool(_going(spec, groups, placement, waiting))


def _going(
    spec: port.GangSpec,
    groups: tuple[members.Group, ...],
    placement: capacity.Placement,
    waiting: Sequence[capacity.Member],
) -> list[capacity.Member]:
    """The members that have a node: none of them, if the gang has not begun and one is missing
    without which nothing starts."""
    placed = [member for member in waiting if member.name in placement.assigned]
    if spec.running_since is not None:
        return placed
    for group in groups:
        started = sum(not members.is_gated(seen) for seen in group.live)
        if started + placement.count(waiting, group.spec.name) < group.spec.min:
            return []
    return placed


def _holding(data: port.DataPlaces, member: capacity.Member) -> frozenset[str]:
    """The nodes that hold all that a member needs."""
    if member.portions is None:
        return data.ready
    held = data.held.get(member.group, {})
    return frozenset(node for node, has in held.items() if member.portions <= has)


def _as_they_are(
    groups: tuple[members.Group, ...], room: capacity.Room
) -> tuple[members.Group, ...]:
    """Groups with their Pods as they were read now."""
    raw = {p["metadata"]["uid"]: p for p in room.pods}
    return tuple(
        msgspec.structs.replace(
            group,
            pods=tuple(
                msgspec.convert(raw[p.metadata.uid], pod.Pod)
                for p in group.pods
                if p.metadata.uid in raw
            ),
        )
        for group in groups
    )


def _told(groups: tuple[members.Group, ...]) -> sharing.Places:
    """What workers have that are on their way to a node, too."""
    return sharing.merge(
        *(
            {g.spec.name: {p.spec.node_name: sharing.of_pod(p.metadata)}}
            for g in groups
            for p in g.live
        )
    )


def _holder(seen: pod.Pod) -> sharing.Holder:
    return sharing.Holder(seen.metadata.name, seen.spec.node_name, sharing.of_pod(seen.metadata))


def _shares(
    spec: port.GangSpec, group: members.Group, holders: Sequence[sharing.Holder]
) -> dict[str, frozenset[int]]:
    held = {} if spec.data is None else spec.data.held.get(group.spec.name, {})
    return sharing.share(group.spec.portions, holders, held=held)


def _with_portions(
    spec: port.GangSpec,
    groups: tuple[members.Group, ...],
    placement: capacity.Placement,
    going: Sequence[capacity.Member],
) -> list[capacity.Member]:
    """The members that are about to start, with their shares of the data."""
    shares: dict[str, frozenset[int]] = {}
    for group in groups:
        if group.spec.portions:
            started = [_holder(p) for p in group.live if not members.is_gated(p)]
            new = [
                sharing.Holder(m.name, placement.assigned.get(m.name, ""))
                for m in going
                if m.group == group.spec.name
            ]
            shares |= _shares(spec, group, [*started, *new])
    return [msgspec.structs.replace(m, portions=shares.get(m.name)) for m in going]


def _with_places(
    found: port.GangState, placement: capacity.Placement, going: Sequence[capacity.Member]
) -> port.GangState:
    """Where members are, and will be, and their data has to be."""
    coming = (
        {m.group: {placement.assigned[m.name]: m.portions}} for m in going if m.portions is not None
    )
    return msgspec.structs.replace(
        found,
        nodes=found.nodes | {placement.assigned[m.name] for m in going},
        portions=sharing.merge(found.portions, *coming),
    )


def _waits_for_data(
    found: port.GangState, placement: capacity.Placement, late: set[str]
) -> port.GangState:
    where = ", ".join(sorted({placement.assigned[name] for name in late}))
    workers = "1 worker waits" if len(late) == 1 else f"{len(late)} workers wait"
    return msgspec.structs.replace(
        found,
        reason=Reason.WAITING_FOR_DATA,
        message=f"{workers} at the gate until the data is on {where}",
        again_s=LOOK_S,
    )
