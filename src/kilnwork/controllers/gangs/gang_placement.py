"""The placement of a gang's members and their data on nodes, for `pods_backend`.

No I/O. Required members come first. `gang_fit` finds room, `data_portions` assigns portions of the
data to workers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kilnwork.api import meta, pod, reasons, sync_set, sync_set_validation
from kilnwork.controllers.gangs import data_portions, gang_fit, gang_state, port

LOOK_S = 1.0
"""Seconds between checks for room: other Pods start and end, and the manager does not watch all
of them."""

Reason = reasons.SetReason


def opening_patch(
    spec: port.GangSpec, member: gang_fit.Member, room: gang_fit.ClusterRoom, *, now: float
) -> meta.JsonObject:
    """Return the merge patch that opens the scheduling gate of a member's Pod. `now`: wall clock.

    If the gang has data and the nodes are known, the Pod is restricted to nodes with an agent of
    the pond; if the data leads or the flow has started, to nodes that hold the member's data.
    """
    given = member.pod
    gates = given["spec"].get("schedulingGates") or ()
    left = [gate for gate in gates if gate["name"] != sync_set_validation.GATE]
    change: dict[str, Any] = {"schedulingGates": left or None}
    data = spec.data
    if data is not None and room.nodes:
        held = data.lead or spec.running_since is not None
        allowed = nodes_with_data(data, member) if held else data.nodes
        if member.allowed is not None:
            allowed &= member.allowed
        change["affinity"] = gang_fit.affinity_to(given, allowed, room.nodes)
    metadata = given["metadata"]
    marks = {gang_state.OPENED_ANNOTATION: f"{now:.3f}"}
    if member.portions is not None:
        marks[data_portions.ANNOTATION] = data_portions.format_portions(member.portions)
    return {
        "metadata": {
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "annotations": marks,
        },
        "spec": change,
    }


def place(
    spec: port.GangSpec, groups: tuple[gang_state.ObservedGroup, ...], room: gang_fit.ClusterRoom
) -> tuple[gang_fit.Placement, list[gang_fit.Member]]:
    """Assign nodes to the members whose gates are closed, required members first. Returns the
    assignment, and the members that were considered: only required members if there is no room for
    all of these.
    """
    raw = {(p["metadata"]["namespace"], gang_fit.name_of(p)): p for p in room.pods}
    needed: list[gang_fit.Member] = []
    others: list[gang_fit.Member] = []
    for group in groups:
        started = sum(not gang_state.is_gated(seen) for seen in group.live)
        for position, seen in enumerate(group.gated):
            found = raw.get((spec.namespace, seen.metadata.name))
            if found is None or not gang_fit.is_gated(found):
                continue
            member = _member(spec, group, found)
            (needed if started + position < group.spec.min else others).append(member)
    ready = frozenset[str]() if spec.data is None else spec.data.ready
    first = gang_fit.place(room, needed, ready=ready)
    if first.unplaced or not others:
        return first, needed
    return _place_others(spec, room, needed, others), [*needed, *others]


def _place_others(
    spec: port.GangSpec,
    room: gang_fit.ClusterRoom,
    needed: Sequence[gang_fit.Member],
    others: Sequence[gang_fit.Member],
) -> gang_fit.Placement:
    """Place all required members, and as many of the other members as fit in addition."""
    ready = frozenset[str]() if spec.data is None else spec.data.ready
    first = gang_fit.place(room, needed, ready=ready)
    placed = [
        {**m.pod, "spec": {**m.pod["spec"], "nodeName": first.assigned[m.name]}} for m in needed
    ]
    rest = msgspec.structs.replace(room, pods=(*room.pods, *placed))
    second = gang_fit.place(rest, others, ready=ready)
    return gang_fit.Placement({**first.assigned, **second.assigned}, second.unplaced)


def _member(
    spec: port.GangSpec, group: gang_state.ObservedGroup, raw: meta.JsonObject
) -> gang_fit.Member:
    allowed: frozenset[str] | None = None
    near: Mapping[str, int] = {}
    if spec.data is not None:
        allowed = spec.data.nodes
        if group.spec.near is not sync_set.NearMode.NONE:
            near = spec.data.near.get(group.spec.name, {})
    return gang_fit.Member(gang_fit.name_of(raw), group.spec.name, raw, allowed, near)


def would_fit(
    spec: port.GangSpec, groups: tuple[gang_state.ObservedGroup, ...], room: gang_fit.ClusterRoom
) -> bool:
    """Return whether a gang could start if no other Pods used the nodes."""
    gated = tuple(p for p in room.pods if gang_fit.is_gated(p))
    alone = gang_fit.ClusterRoom(nodes=room.nodes, pods=gated)
    placement, waiting = place(spec, groups, alone)
    return bool(choose_starting(spec, groups, placement, waiting))


def choose_starting(
    spec: port.GangSpec,
    groups: tuple[gang_state.ObservedGroup, ...],
    placement: gang_fit.Placement,
    waiting: Sequence[gang_fit.Member],
) -> list[gang_fit.Member]:
    """Return the members to start: those that have been assigned a node.

    Empty if the gang has not started and a required member has no node.
    """
    placed = [member for member in waiting if member.name in placement.assigned]
    if spec.running_since is not None:
        return placed
    for group in groups:
        started = sum(not gang_state.is_gated(seen) for seen in group.live)
        if started + placement.count(waiting, group.spec.name) < group.spec.min:
            return []
    return placed


def nodes_with_data(data: port.DataPlaces, member: gang_fit.Member) -> frozenset[str]:
    """Return the nodes that hold all data that a member needs."""
    if member.portions is None:
        return data.ready
    held = data.held.get(member.group, {})
    return frozenset(node for node, has in held.items() if member.portions <= has)


def with_current_pods(
    groups: tuple[gang_state.ObservedGroup, ...], room: gang_fit.ClusterRoom
) -> tuple[gang_state.ObservedGroup, ...]:
    """Return the groups with their Pods as just read from the API server."""
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


def portions_of(groups: tuple[gang_state.ObservedGroup, ...]) -> data_portions.Places:
    """Return the portions of all workers whose gate was opened, by group and node; node "" for
    workers that have no node yet.
    """
    return data_portions.merge(
        *(
            {g.spec.name: {p.spec.node_name: data_portions.of_pod(p.metadata)}}
            for g in groups
            for p in g.live
        )
    )


def holder_of(seen: pod.Pod) -> data_portions.Holder:
    """Return a worker whose gate was opened, with its portions of the data."""
    return data_portions.Holder(
        seen.metadata.name, seen.spec.node_name, data_portions.of_pod(seen.metadata)
    )


def share_portions(
    spec: port.GangSpec, group: gang_state.ObservedGroup, holders: Sequence[data_portions.Holder]
) -> dict[str, frozenset[int]]:
    """Return the portions of each worker of a group, by name."""
    near = {} if spec.data is None else data_portions.merge(spec.data.held, spec.data.wanted)
    return data_portions.assign_portions(
        group.spec.portions, holders, near=near.get(group.spec.name, {})
    )


def with_portions(
    spec: port.GangSpec,
    groups: tuple[gang_state.ObservedGroup, ...],
    placement: gang_fit.Placement,
    starting: Sequence[gang_fit.Member],
) -> list[gang_fit.Member]:
    """Return the members to start, with their portions of the data."""
    shares: dict[str, frozenset[int]] = {}
    for group in groups:
        if group.spec.portions:
            started = [holder_of(p) for p in group.live if not gang_state.is_gated(p)]
            new = [
                data_portions.Holder(m.name, placement.assigned.get(m.name, ""))
                for m in starting
                if m.group == group.spec.name
            ]
            shares |= share_portions(spec, group, [*started, *new])
    return [msgspec.structs.replace(m, portions=shares.get(m.name)) for m in starting]


def with_places(
    found: port.GangState, placement: gang_fit.Placement, starting: Sequence[gang_fit.Member]
) -> port.GangState:
    """Add the starting members to the state: the nodes assigned to them, and the portions of data
    that these nodes need.
    """
    coming = (
        {m.group: {placement.assigned[m.name]: m.portions}}
        for m in starting
        if m.portions is not None
    )
    return msgspec.structs.replace(
        found,
        nodes=found.nodes | {placement.assigned[m.name] for m in starting},
        portions=data_portions.merge(found.portions, *coming),
    )


def waits_for_data(
    found: port.GangState, placement: gang_fit.Placement, waiting: set[str]
) -> port.GangState:
    """Return the gang's state with the reason that gates stay closed because data is missing on
    nodes.
    """
    nodes = ", ".join(sorted({placement.assigned[name] for name in waiting}))
    workers = "1 worker waits" if len(waiting) == 1 else f"{len(waiting)} workers wait"
    return msgspec.structs.replace(
        found,
        reason=Reason.WAITING_FOR_DATA,
        message=f"{workers} at the gate until the data is on {nodes}",
        again_s=LOOK_S,
    )
