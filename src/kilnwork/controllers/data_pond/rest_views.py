"""Views of a pond for users of the REST API, created from its state in the manager.

Used by `ledger`. No I/O.
"""

from collections.abc import Mapping

from kilnwork.api import pond_views
from kilnwork.controllers.data_pond import model, pond_state
from kilnwork.kit import clock


def nodes(pond: pond_state.PondState) -> list[pond_views.NodeView]:
    """Return views of all known nodes of a pond, ordered by name."""
    live = pond.live()
    found = []
    for node, agent in sorted(pond.agents.items()):
        report, ready = agent.report, node in live
        trouble = report.trouble
        silent = "" if ready else "its agent does not report any more"
        owner = pond.owner(node, live)
        shared = f"node {owner} serves it: they share a disk" if owner != node else ""
        found.append(
            pond_views.NodeView(
                node=node,
                ready=ready and trouble is None,
                since=clock.rfc3339(agent.since),
                address=report.address,
                used=report.used,
                capacity=report.capacity,
                snapshots=report.holdings,
                leases=report.leases,
                counters=report.counters,
                pins=report.pins,
                reason=trouble.reason if trouble is not None else "AgentSilent" if silent else "",
                message=trouble.message if trouble is not None else silent or shared,
            )
        )
    return found


def leases(pond: pond_state.PondState) -> list[pond_views.LeaseView]:
    """Return views of all leases of a pond, ordered by name."""
    return [lease(pond, name, {}) for name in sorted(pond.leases)]


def lease(
    pond: pond_state.PondState, name: str, pins: Mapping[str, model.Pin]
) -> pond_views.LeaseView:
    """Return the view of one lease, with the state of its snapshots."""
    ready = pond.ready(name)
    shown = {
        node: pond_views.LeaseNodeView(
            ready=one.ready,
            bytes_done=one.bytes_done,
            bytes_total=one.bytes_total,
            reason=one.reason,
            message=one.message,
        )
        for node, one in ready.items()
    }
    return pond_views.LeaseView(
        name=name.removeprefix(pond_views.LEASE_PREFIX),
        user=name.startswith(pond_views.LEASE_PREFIX),
        ready=bool(ready) and all(one.ready for one in ready.values()),
        nodes=shown,
        snapshots={key: _pin(pin) for key, pin in pins.items()},
    )


def _pin(pin: model.Pin) -> pond_views.PinView:
    return pond_views.PinView(
        state=pin.state,
        digest=pin.digest,
        bytes=pin.bytes,
        files=0 if pin.manifest is None else len(pin.manifest.files),
        reason=pin.reason,
        message=pin.message,
    )
