"""The check whether all members of a gang fit on the nodes at once, and which members do not.

No I/O. Used by `pods_backend` and `gang_placement`. It checks what the scheduler checks: taints,
labels, required node affinity and requests (`api.node_fit`), but for all Pods of the gang before
any of them is admitted. The algorithm is first fit, largest Pod first, preferred nodes first: if
Pods of very different sizes only just fit, it may find no placement. Constraints that it does not
check (affinity between Pods, volumes of zones) are checked by the scheduler: then a member stays
without a node, and the gang starts again after its wait.
"""

import decimal
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kilnwork.api import meta, node_fit, quantities

MAX_NODES_NAMED = 5
"""Maximum number of nodes whose free room is listed in a message."""

_OVER = ("Succeeded", "Failed")
_HOSTNAME = "kubernetes.io/hostname"


class Member(msgspec.Struct, frozen=True):
    """A member of a gang: a Pod that waits at its scheduling gate."""

    name: str
    group: str
    pod: meta.JsonObject
    allowed: frozenset[str] | None = None
    """Nodes on which the member may run; None for any node."""
    near: Mapping[str, int] = {}
    """Bytes of the member's data on each node."""
    portions: frozenset[int] | None = None
    """The member's portions of the data; None while they are undecided, and if each node holds all
    data."""


class ClusterRoom(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of Kubernetes, and the known Pods that use resources on them."""

    nodes: tuple[meta.JsonObject, ...] = ()
    pods: tuple[meta.JsonObject, ...] = ()


class Placement(msgspec.Struct, frozen=True):
    """An assignment of members to nodes."""

    assigned: Mapping[str, str]
    """Node of each placed member, by the member's name."""
    unplaced: tuple[tuple[Member, str], ...] = ()
    """Members without a node, with the reason."""

    def count(self, members: Iterable[Member], group: str) -> int:
        """Return how many members of a group have been assigned a node."""
        return sum(m.group == group and m.name in self.assigned for m in members)


def name_of(obj: meta.JsonObject) -> str:
    """Return the name of a Kubernetes object."""
    return str(obj["metadata"]["name"])


def is_gated(pod: meta.JsonObject) -> bool:
    """Return whether a Pod has any scheduling gate."""
    return bool((pod.get("spec") or {}).get("schedulingGates"))


def place(room: ClusterRoom, members: Sequence[Member], *, ready: frozenset[str]) -> Placement:
    """Assign nodes to members of a gang, as far as there is room. `ready`: nodes to fill first."""
    nodes = {name_of(node): node for node in room.nodes}
    used = _used(room, nodes)
    assigned: dict[str, str] = {}
    unplaced = []
    for member in sorted(members, key=_size, reverse=True):
        found = _first_fitting_node(member, nodes, used, ready)
        if found is None:
            unplaced.append((member, _explain_unplaced(member, nodes, used)))
        else:
            assigned[member.name] = found
            _reserve(used, found, member.pod)
    return Placement(assigned, tuple(unplaced))


def describe_unplaced(placement: Placement, room: ClusterRoom) -> str:
    """Return which members have no node and why, in one sentence for each group; "" if each member
    has a node.
    """
    if not placement.unplaced:
        return ""
    by_group: dict[str, list[tuple[Member, str]]] = {}
    for member, why in placement.unplaced:
        by_group.setdefault(member.group, []).append((member, why))
    sentences = []
    for group, found in by_group.items():
        member, why = found[0]
        asked = _format_amounts(node_fit.requests(member.pod.get("spec") or {}))
        workers = "1 worker has" if len(found) == 1 else f"{len(found)} workers have"
        sentences.append(f"{workers} no node in group {group}: each needs {asked}; {why}")
    free = _describe_free(room)
    return "; ".join([*sentences, *([f"free: {free}"] if free else [])])


def affinity_to(
    pod: meta.JsonObject, wanted: frozenset[str], nodes: Iterable[meta.JsonObject]
) -> meta.JsonObject:
    """Return the affinity of a gated Pod, narrowed to the nodes `wanted` by their host names.

    Each of its terms gets one more expression, in the way that the API server allows for gated Pods
    (KEP-3838).
    """
    hosts = sorted(
        (node["metadata"].get("labels") or {}).get(_HOSTNAME, name_of(node))
        for node in nodes
        if name_of(node) in wanted
    )
    expression = {"key": _HOSTNAME, "operator": "In", "values": hosts}
    affinity = dict((pod.get("spec") or {}).get("affinity") or {})
    of_node = dict(affinity.get("nodeAffinity") or {})
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = (of_node.get(key) or {}).get("nodeSelectorTerms") or [{}]
    of_node[key] = {
        "nodeSelectorTerms": [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), expression]}
            for term in terms
        ]
    }
    return {**affinity, "nodeAffinity": of_node}


# Used room

_Used = dict[str, dict[str, decimal.Decimal]]


def _used(room: ClusterRoom, nodes: Mapping[str, meta.JsonObject]) -> _Used:
    """Return the resources that Pods use, by node.

    Pods whose gate is open but that have no node yet are counted on the first node that they fit.
    """
    used: _Used = {name: {} for name in nodes}
    waiting = []
    for pod in room.pods:
        spec, status = pod.get("spec") or {}, pod.get("status") or {}
        if status.get("phase") in _OVER:
            continue
        if spec.get("nodeName") in used:
            _reserve(used, spec["nodeName"], pod)
        elif not spec.get("nodeName") and not is_gated(pod):
            waiting.append(pod)
    for pod in waiting:
        found = _first_fitting_node(Member(name_of(pod), "", pod), nodes, used, frozenset())
        if found is not None:
            _reserve(used, found, pod)
    return used


def _reserve(used: _Used, node: str, pod: meta.JsonObject) -> None:
    one = {"pods": decimal.Decimal(1), **node_fit.requests(pod.get("spec") or {})}
    used[node] = node_fit.total([used[node], one])


def _first_fitting_node(
    member: Member,
    nodes: Mapping[str, meta.JsonObject],
    used: _Used,
    ready: frozenset[str],
) -> str | None:
    for name in sorted(nodes, key=lambda n: (n not in ready, -member.near.get(n, 0), n)):
        if member.allowed is not None and name not in member.allowed:
            continue
        if not node_fit.find_misfit(nodes[name], member.pod, used[name]):
            return name
    return None


def _size(member: Member) -> tuple[decimal.Decimal, decimal.Decimal]:
    asked, zero = node_fit.requests(member.pod.get("spec") or {}), decimal.Decimal(0)
    return asked.get("cpu", zero), asked.get("memory", zero)


# Messages


def _explain_unplaced(member: Member, nodes: Mapping[str, meta.JsonObject], used: _Used) -> str:
    misfits = [
        "node(s) were not next to the data"
        if member.allowed is not None and name not in member.allowed
        else node_fit.find_misfit(node, member.pod, used[name])
        for name, node in nodes.items()
    ]
    counted = ", ".join(f"{misfits.count(m)} {m}" for m in dict.fromkeys(misfits))
    return f"0/{len(misfits)} nodes are available" + (f": {counted}" if counted else "")


def _format_amounts(amounts: node_fit.Amounts) -> str:
    texts = [
        f"{name} {_format_amount(amount)}" for name, amount in sorted(amounts.items()) if amount
    ]
    return ", ".join(texts) or "nothing"


def _format_amount(amount: decimal.Decimal) -> str:
    """Format an amount of a resource for people: bytes in Mi or Gi."""
    for suffix, size in (("Gi", 1 << 30), ("Mi", 1 << 20)):
        if amount >= size:
            return f"{amount / size:.1f}".removesuffix(".0") + suffix
    return f"{amount:.3f}".rstrip("0").rstrip(".")


def _describe_free(room: ClusterRoom) -> str:
    nodes = {name_of(node): node for node in room.nodes}
    used = _used(room, nodes)
    texts = [
        f"node {name} {_format_amounts(_free_amounts(nodes[name], used[name]))}"
        for name in sorted(nodes)[:MAX_NODES_NAMED]
    ]
    more = len(nodes) - len(texts)
    return "; ".join([*texts, *([f"and {more} more"] if more > 0 else [])])


def _free_amounts(node: meta.JsonObject, used: node_fit.Amounts) -> dict[str, decimal.Decimal]:
    offered = (node.get("status") or {}).get("allocatable") or {}
    zero = decimal.Decimal(0)
    return {
        name: max(zero, quantities.amount(str(offered[name])) - used.get(name, zero))
        for name in ("cpu", "memory")
        if name in offered
    }
