"""`kiln status`: is the server there, are nodes and workers ready, where are the tasks?"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from kilnwork.api import meta, resource, task
from kilnwork.cli import options, render, session
from kilnwork.kube import errors as kube_errors


@click.command()
@options.target
@options.output("json", "yaml")
def command(form: str | None) -> None:
    """Show server, nodes, clusters and how many tasks are in which state.

    Of all namespaces unless -n names one.
    """
    facts = session.run(_facts)
    if form is not None:
        click.echo(render.json_text(facts) if form == "json" else render.yaml_text(facts), nl=False)
        return
    for line in _text(facts):
        click.echo(line)


async def _facts(s: session.Session) -> dict[str, Any]:
    version = await s.get_json("/version")
    clusters = await _all(s, resource.TASK_CLUSTERS)
    tasks = await _all(s, resource.TASKS)
    try:
        nodes = await s.items(resource.NODES.base())
    except kube_errors.Forbidden:
        nodes = []
    states = Counter((t.get("status") or {}).get("state") or "New" for t in tasks)
    return {
        "server": {"url": s.server, "version": version.get("gitVersion", "")},
        "nodes": [_node(node) for node in nodes],
        "clusters": [_cluster(cluster) for cluster in clusters],
        "tasks": {state: states[state] for state in ("New", *task.State) if states[state]},
    }


async def _all(s: session.Session, served: resource.Resource) -> list[meta.JsonObject]:
    path = s.path(served) if s.target.namespace else served.base()
    return await s.items(path)


def _node(node: meta.JsonObject) -> dict[str, Any]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready: dict[str, Any] = next((c for c in conditions if c["type"] == "Ready"), {})
    return {
        "name": node["metadata"]["name"],
        "ready": ready.get("status") == "True",
        "reason": ready.get("reason", ""),
    }


def _cluster(cluster: meta.JsonObject) -> dict[str, Any]:
    status = cluster.get("status") or {}
    slots = status.get("slots") or {}
    return {
        "namespace": cluster["metadata"].get("namespace", ""),
        "name": cluster["metadata"]["name"],
        "workers": f"{status.get('readyReplicas', 0)}/{cluster.get('spec', {}).get('replicas', 1)}",
        "busySlots": f"{slots.get('busy', 0)}/{slots.get('total', 0)}",
        "queued": status.get("queued", 0),
    }


def _text(facts: dict[str, Any]) -> list[str]:
    server = facts["server"]
    lines = [f"server: {server['url']} ({server['version']}) answers"]
    for node in facts["nodes"]:
        state = "ready" if node["ready"] else f"not ready ({node['reason']})"
        lines.append(f"node:   {node['name']} is {state}")
    counts = ", ".join(f"{count} {state}" for state, count in facts["tasks"].items())
    lines.append(f"tasks:  {counts or 'none'}")
    lines += ["", *_clusters(facts["clusters"])]
    return lines


def _clusters(clusters: Sequence[dict[str, Any]]) -> list[str]:
    if not clusters:
        return ["no TaskCluster: tasks wait until there is one"]
    header = ["NAMESPACE", "CLUSTER", "WORKERS", "BUSY SLOTS", "QUEUED"]
    return render.columns(header, [list(cluster.values()) for cluster in clusters])
