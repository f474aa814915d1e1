"""DataPonds on the command line: the URL path of a pond, and a sentence about its state.

Used by `kiln data` and `kiln why datapond/NAME`. Takes the object, and the nodes as the manager
reports them (`api.pond_views`). No I/O.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib import parse

from kilnwork.cli import file_jobs

Item = Mapping[str, Any]

_SHOWN = 5
"""Maximum number of node errors that are listed."""


def path(namespace: str, name: str) -> str:
    """Return the URL path at which the manager describes a pond."""
    quoted = (parse.quote(part, safe="") for part in (namespace, name))
    return "/v1/namespaces/{}/dataponds/{}".format(*quoted)


def sentence(found: Item, nodes: Sequence[Item]) -> str:
    """Return sentences about a DataPond: the state of its agents, and its problems.

    The problems are what prevents data from arriving, and damaged data.
    """
    name, status = found["metadata"]["name"], found.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    if "Ready" not in conditions:
        return f"DataPond {name} has not been processed yet."
    text = f"DataPond {name} {_ready(conditions['Ready'], status)}"
    full = conditions.get("Full")
    if full is not None and full["status"] == "True":
        text += f" It is full: {_sentence(full['message'])}"
    troubles = list(_node_errors(nodes))
    text += "".join(f" {_sentence(one)}" for one in troubles[:_SHOWN])
    if len(troubles) > _SHOWN:
        text += f" {len(troubles) - _SHOWN} more: `kiln data {name} -o json` has them."
    return text + "".join(f" {one}" for one in _damaged(nodes))


def _ready(condition: Item, status: Item) -> str:
    counts, size = status.get("nodes") or {}, file_jobs.size_text
    ready, total = counts.get("ready", 0), counts.get("total", 0)
    verb = "has" if ready == 1 else "have"
    agents = f"{ready} of {file_jobs.counted(total, 'node')} {verb} an agent that reports"
    if condition["status"] != "True":
        return f"is not ready ({condition['reason']}): {_sentence(condition['message'])} {agents}."
    room = status.get("bytes") or {}
    snapshots = file_jobs.counted(status.get("snapshotsTotal", 0), "snapshot")
    held = f"{size(room.get('used', 0))} of {size(room.get('capacity', 0))}"
    return f"is ready: {agents}, with {snapshots}, {held}."


def _node_errors(nodes: Sequence[Item]) -> Iterator[str]:
    """Yield the last errors of each node of a DataPond, of its leases and of its pins."""
    for node in nodes:
        if not node["ready"]:
            yield f"Node {node['node']} ({node['reason']}): {node['message']}"
        for lease in node["leases"]:
            for one in lease.get("snapshots") or ():
                what = f"waits for snapshot {one['name']} of lease {lease['name']}"
                yield from _trouble(node, what, one)
        for pin in node.get("pins") or ():
            yield from _trouble(node, f"cannot pin {pin['id']}", pin)


def _trouble(node: Item, what: str, report: Item) -> Iterator[str]:
    trouble = report.get("trouble")
    if trouble is not None:
        yield f"Node {node['node']} {what} ({trouble['reason']}): {trouble['message']}"


def _damaged(nodes: Sequence[Item]) -> Iterator[str]:
    for node in nodes:
        count = node["counters"].get("quarantined", 0)
        if count:
            yield (
                f"{file_jobs.counted(count, 'damaged file')} of node {node['node']} "
                f"{'was' if count == 1 else 'were'} set aside since its agent was started: look "
                "after its disk."
            )


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
