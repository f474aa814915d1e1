"""The deletion of a DataPond: as soon as no run needs its data, the data is removed from the nodes.

No I/O. Used by `plan`; the finalizer is also used by `reconciler`, `agent_verifier` and
`unserved_namespace_cleanup`. The finalizer keeps the object, and with it the agents' Pods and the
Secret that it owns. It is set when an agent has created a directory, so that a pond without data
can be deleted without a manager. Leases of SyncSets delay the deletion; leases of users do not.
"""

from collections.abc import Collection, Sequence

import msgspec

from kilnwork.api import data_pond, pod, reasons
from kilnwork.controllers.data_pond import pond_state

FINALIZER = "kilnwork.dev/pond-data"

DEADLINE_S = 300.0
"""Maximum time to wait for an unreachable node, in seconds: as long as Kubernetes waits before it
evicts the Pods of such a node (`defaultTolerationSeconds`)."""

_SHOWN = 5


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of the deletion of one DataPond."""

    reason: reasons.PondReason
    message: str
    remove: bool = False
    """Whether agents must remove their data."""
    finished: bool = False
    """Whether the finalizer can be removed."""
    left: tuple[str, ...] = ()
    """Nodes on which the directory remains."""
    again_s: float | None = None
    """Seconds until the next pass."""


def has_finalizer(pond: data_pond.DataPond) -> bool:
    return FINALIZER in pond.metadata.finalizers


def is_being_deleted(pond: data_pond.DataPond) -> bool:
    """Return whether a pond is being deleted and still has the finalizer."""
    return pond.metadata.deletion_timestamp is not None and has_finalizer(pond)


def has_data(known: pond_state.PondState | None) -> bool:
    """Return whether an agent of the pond has created a directory for data."""
    return known is not None and any(one.report.store for one in known.agents.values())


def decide(
    known: pond_state.PondState | None,
    pods: Sequence[pod.Pod],
    *,
    refused: bool,
    now: float,
) -> Deletion:
    """Decide the next step of the deletion of a DataPond. `refused`: whether Pods of agents cannot
    be created any more.
    """
    began = None if known is None else known.removing_since
    leases = () if known is None else sorted(known.leases_of_sets)
    if leases and began is None:
        return Deletion(
            reason=reasons.PondReason.LEASES_HELD,
            message=f"it is deleted, and stays while SyncSets hold leases: {_list(leases)}",
        )
    waits = _nodes_with_data(known, pods)
    live = known.live() if known is not None else frozenset()
    passed_s = 0.0 if began is None else now - began
    hopeless = refused and not live.intersection(waits)
    finished = not waits or passed_s >= DEADLINE_S or hopeless
    message = (
        f"its data is being removed from nodes {_list(waits)}" if waits else "its data is gone"
    )
    return Deletion(
        reason=reasons.PondReason.REMOVING_DATA,
        message=message,
        remove=not finished,
        finished=finished,
        left=tuple(waits) if finished else (),
        again_s=DEADLINE_S - passed_s,
    )


def _nodes_with_data(known: pond_state.PondState | None, pods: Sequence[pod.Pod]) -> list[str]:
    """Return the nodes with an agent, or an agent's Pod, that have not reported the removal of all
    data.
    """
    agents = {} if known is None else known.agents
    nodes = {one.spec.node_name for one in pods if one.spec.node_name} | agents.keys()
    return sorted(n for n in nodes if n not in agents or not agents[n].report.removed)


def _list(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
