"""The status of a DataPond, and the decision when to write a changed status.

No I/O. Used by `plan` and `reconciler`. Conditions: `Ready`, every selected node has an agent that
reports no problem; `Full`, a node has no space for what it should hold.
"""

from collections.abc import Sequence

from kilnwork.api import data_pond, meta, pod, reasons
from kilnwork.controllers.data_pond import pond_state
from kilnwork.kit import clock

MAX_SNAPSHOTS = 100
"""Maximum number of listed snapshots. With some 200 bytes each, the object stays far below 256
KiB."""

MINOR_HOLD_S = 2.0
"""Minimum seconds between writes of byte counts, which change with each file."""

Reason = reasons.PondReason

_NEVER_READY = (Reason.INVALID_SPEC, Reason.LEASES_HELD, Reason.REMOVING_DATA)
"""Reasons for which the pond is not ready whatever agents report."""


def make(
    pond: data_pond.DataPond,
    nodes: Sequence[str],
    known: pond_state.PondState | None,
    *,
    why: tuple[reasons.PondReason, str] | None,
    pods: Sequence[pod.Pod] = (),
    now: float,
) -> data_pond.DataPondStatus:
    """Return the status of a DataPond. `why`: what prevents agents from being started, or the state
    of the deletion; None if there is neither.
    """
    live = known.live() if known is not None else frozenset()
    ready = [
        node for node in nodes if known is not None and _reports_without_problem(known, node, live)
    ]
    snapshots = _snapshots(known, ready)
    agents = known.agents if known is not None else {}
    conditions = (
        _ready(pond, nodes, ready, why=why or _obstacle(known, nodes, live, pods=pods)),
        _full(pond, known),
    )
    return data_pond.DataPondStatus(
        nodes=data_pond.PondNodes(ready=len(ready), total=len(nodes)),
        bytes=data_pond.PondBytes(
            used=sum(agents[node].report.used for node in ready),
            capacity=sum(agents[node].report.capacity for node in ready),
        ),
        snapshots=tuple(snapshots[:MAX_SNAPSHOTS]),
        snapshots_total=len(snapshots),
        observed_generation=pond.metadata.generation,
        conditions=meta.merge_conditions(
            pond.status.conditions, conditions, now=clock.rfc3339(now)
        ),
    )


def obstacle(shown: data_pond.DataPondStatus) -> str:
    """Return why agents do not report, according to a status; "" if they do."""
    for one in shown.conditions:
        if one.type == "Ready" and one.status != "True":
            return one.message
    return ""


def wait_s(
    current: data_pond.DataPondStatus,
    wanted: data_pond.DataPondStatus,
    *,
    written: float | None,
    now: float,
) -> float | None:
    """Return in how many seconds the status `wanted` may be written: 0 for now, None if it equals
    the current one.
    """
    if current == wanted:
        return None
    if written is None or _decisive_fields(current) != _decisive_fields(wanted):
        return 0.0
    return max(0.0, written + MINOR_HOLD_S - now)


def _decisive_fields(status: data_pond.DataPondStatus) -> tuple[object, ...]:
    conditions = tuple((c.type, c.status, c.reason) for c in status.conditions)
    return status.nodes, status.observed_generation, conditions


def _reports_without_problem(known: pond_state.PondState, node: str, live: frozenset[str]) -> bool:
    return node in live and known.agents[node].report.trouble is None


def _snapshots(
    known: pond_state.PondState | None, ready: Sequence[str]
) -> list[data_pond.PondSnapshot]:
    """Return the snapshots of the status: first those in use, then the others by their last use."""
    if known is None:
        return []
    found: dict[str, data_pond.PondSnapshot] = {}
    used: dict[str, float] = {}
    leases = known.lease_counts()
    for node in ready:
        for one in known.agents[node].report.holdings:
            before = found.get(one.digest)
            whole = (before.nodes_ready if before else 0) + (one.files_here == one.files)
            used[one.digest] = max(used.get(one.digest, 0.0), one.used)
            found[one.digest] = data_pond.PondSnapshot(
                digest=one.digest,
                bytes=one.bytes,
                files=one.files,
                nodes_ready=whole,
                leases=leases.get(one.digest, 0),
            )
    return sorted(found.values(), key=lambda one: (-one.leases, -used[one.digest], one.digest))


def _obstacle(
    known: pond_state.PondState | None,
    nodes: Sequence[str],
    live: frozenset[str],
    *,
    pods: Sequence[pod.Pod],
) -> tuple[reasons.PondReason, str]:
    """Return the reason and message why some nodes are not ready. The result is not used if all
    nodes are ready.
    """
    if not nodes:
        return Reason.NO_NODES, "spec.nodeSelector selects no node that is there"
    for node in nodes:
        report = known.agents[node].report if known is not None and node in live else None
        if report is not None and report.trouble is not None:
            return Reason.POND_UNUSABLE, f"node {node}: {report.trouble.message}"
    for found in filter(None, map(pod.find_trouble, pods)):
        return Reason.AGENTS_FAILING, found.text
    silent = [node for node in nodes if node not in live]
    if known is not None and silent and silent[0] in known.agents:
        return Reason.AGENT_SILENT, f"the agent on node {silent[0]} does not report any more"
    return (
        Reason.AGENTS_STARTING,
        f"no agent on node {silent[0]} has reported yet" if silent else "",
    )


def _ready(
    pond: data_pond.DataPond,
    nodes: Sequence[str],
    ready: Sequence[str],
    *,
    why: tuple[reasons.PondReason, str],
) -> meta.Condition:
    good = bool(nodes) and len(ready) == len(nodes) and why[0] not in _NEVER_READY
    reason, message = (Reason.AGENTS_READY, "every node has an agent that reports") if good else why
    return _condition(pond, "Ready", status=good, reason=reason, message=message)


def _full(pond: data_pond.DataPond, known: pond_state.PondState | None) -> meta.Condition:
    for node, text in known.full_nodes() if known is not None else ():
        message = f"node {node}: {text}"
        return _condition(pond, "Full", status=True, reason=Reason.POND_FULL, message=message)
    return _condition(
        pond, "Full", status=False, reason=Reason.ROOM_LEFT, message="what is wanted has room"
    )


def _condition(
    pond: data_pond.DataPond,
    kind: str,
    *,
    status: bool,
    reason: reasons.PondReason,
    message: str,
) -> meta.Condition:
    return meta.Condition(
        type=kind,
        status="True" if status else "False",
        reason=str(reason),
        message=message,
        observed_generation=pond.metadata.generation,
    )
