"""Tables of ponds as `kiln data` prints them: nodes, snapshots, leases.

No I/O. Takes the responses of `/v1/namespaces/NS/dataponds/NAME/nodes` and `leases`
(`api.pond_views`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kilnwork.cli import file_jobs, output_formats

Items = Sequence[Mapping[str, Any]]

_DIGEST_LENGTH = len("sha256:") + 12


def nodes(ponds: Mapping[str, Items]) -> list[str]:
    """Return the lines of the table of nodes: space, hits, and bytes fetched, served and
    evicted.
    """
    header = (
        "POND",
        "NODE",
        "READY",
        "USED",
        "CAPACITY",
        "SNAPSHOTS",
        "LEASES",
        "HITS",
        "FETCHED",
        "FROM PEERS",
        "SERVED",
        "EVICTED",
        "CHECKED",
        "DAMAGED",
        "REASON",
    )
    rows = [_node(pond, one) for pond, items in ponds.items() for one in items]
    return output_formats.columns(header, rows)


def _node(pond: str, one: Mapping[str, Any]) -> list[object]:
    counted = one["counters"]
    size = file_jobs.size_text
    hits, misses = counted.get("hits", 0), counted.get("misses", 0)
    rate = f"{100 * hits / (hits + misses):.0f}%" if hits + misses else "-"
    return [
        pond,
        one["node"],
        one["ready"],
        size(one["used"]),
        size(one["capacity"]),
        len(one["snapshots"]),
        len(one["leases"]),
        rate,
        size(counted.get("fetchedSource", 0)),
        size(counted.get("fetchedPeers", 0)),
        size(counted.get("served", 0)),
        size(counted.get("evicted", 0)),
        size(counted.get("scrubbed", 0)),
        counted.get("quarantined", 0),
        one["reason"] or "-",
    ]


def snapshots(items: Items) -> list[str]:
    """Return the lines of the table of snapshots, with the nodes that hold them."""
    held: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for node in items:
        for one in node["snapshots"]:
            held.setdefault(one["digest"], []).append((node["node"], one))
    rows = [
        [
            digest[:_DIGEST_LENGTH],
            file_jobs.size_text(nodes[0][1]["bytes"]),
            nodes[0][1]["files"],
            any(one.get("leased") for _, one in nodes),
            ", ".join(sorted(_share(node, one) for node, one in nodes)),
        ]
        for digest, nodes in sorted(held.items())
    ]
    return output_formats.columns(("SNAPSHOT", "SIZE", "FILES", "LEASED", "NODES"), rows)


def _share(node: str, one: Mapping[str, Any]) -> str:
    """Return the name of a node, followed by the share of the snapshot that it holds.

    The share is omitted if the node holds the whole snapshot.
    """
    if one["filesHere"] == one["files"]:
        return node
    return f"{node} ({one['filesHere']} of {one['files']} files)"


def leases(items: Items) -> list[str]:
    """Return the lines of the table of leases, with their snapshots and progress."""
    rows = [
        [
            one["name"],
            "people" if one["user"] else "SyncSet",
            one["ready"],
            f"{sum(1 for node in one['nodes'].values() if node['ready'])}/{len(one['nodes'])}",
            _message(one["nodes"].values()),
        ]
        for one in items
    ]
    return output_formats.columns(("LEASE", "HELD BY", "READY", "NODES", "MESSAGE"), rows)


def _message(nodes: Iterable[Mapping[str, Any]]) -> str:
    return next((node["message"] for node in nodes if not node["ready"]), "") or "-"
