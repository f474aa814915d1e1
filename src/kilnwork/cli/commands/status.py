"""`kiln status`: is the server there, are nodes and workers ready, where are the tasks?"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from kilnwork.api import meta, resource, task
from kilnwork.cli import errors, options, progress, reaching, render, session
from kilnwork.kit import errors as kit_errors
from kilnwork.kube import errors as kube_errors
from kilnwork.kube import transport

_LOOK_S = 0.1
"""Between two looks whether the server is ready."""

_MANY = 10
"""More nodes than this are only counted."""


@click.command()
@options.target
@options.output("json", "yaml")
@click.option("--wait", is_flag=True, help="Wait until the server is ready.")
@click.option(
    "--timeout", type=options.Duration(), default=None, help="Wait no longer; default for ever."
)
def command(form: str | None, wait: bool, timeout: float | None) -> None:  # noqa: FBT001
    """Show server, nodes, clusters and how many tasks are in which state.

    Of all namespaces that you may see unless -n names one. In a Kubernetes cluster the manager is
    shown too. With --wait also a server that is still to be started is
    waited for.
    """
    facts = asyncio.run(_when_ready(timeout)) if wait else session.run(_facts)
    if form is not None:
        click.echo(render.document(facts, form), nl=False)
        return
    for line in _text(facts):
        click.echo(line)


async def _when_ready(timeout_s: float | None) -> dict[str, Any]:
    """The facts once the server is ready; the kubeconfig may not exist yet either."""
    text = "waiting for the server"
    last: kit_errors.KilnError = errors.Unreachable()
    try:
        async with asyncio.timeout(timeout_s), progress.waiting(text) as waiting:
            while True:
                try:
                    return await _ready_facts()
                except (kube_errors.Unavailable, errors.Unreachable) as error:
                    last = error
                waiting.say(f"{text}: {last}")
                await asyncio.sleep(_LOOK_S)
    except TimeoutError as error:
        raise errors.TimedOut(f"{text}: not ready within {timeout_s:g} s; {last}") from error
    except kube_errors.KubeError as error:
        settings = session.settings_of(options.current())
        raise session.in_words(error, settings.server) from error


async def _ready_facts() -> dict[str, Any]:
    target = options.current()
    async with session.connect(session.settings_of(target), target) as s:
        await s.http.send(transport.Request(method="GET", path="/readyz"))
        facts = await _facts(s)
    if not facts.get("manager", {"ready": True})["ready"]:
        raise errors.Unreachable(f"the manager is not ready: {facts['manager']['message']}")
    return facts


async def _readiness(s: session.Session) -> str:
    """Empty when the server is ready, else what it waits for."""
    try:
        await s.http.send(transport.Request(method="GET", path="/readyz"))
    except kube_errors.Unavailable as error:
        if not error.status:
            raise
        lines = str(error).splitlines()
        return "; ".join(line.removeprefix("[-]") for line in lines if line.startswith("[-]"))
    return ""


async def _facts(s: session.Session) -> dict[str, Any]:
    version = await s.get_json("/version")
    waits_for = await _readiness(s)
    clusters = await _all(s, resource.TASK_CLUSTERS)
    tasks = await _all(s, resource.TASKS)
    try:
        nodes = await s.items(resource.NODES.base())
    except kube_errors.Forbidden:
        nodes = []
    states = Counter((t.get("status") or {}).get("state") or "New" for t in tasks)
    manager = await _manager(s, version.get("gitVersion", ""))
    return {
        "server": {
            "url": s.server,
            "version": version.get("gitVersion", ""),
            "ready": not waits_for,
            "message": waits_for,
        },
        **({} if manager is None else {"manager": manager}),
        "nodes": [_node(node) for node in nodes],
        "clusters": [_cluster(cluster) for cluster in clusters],
        "tasks": {state: states[state] for state in ("New", *task.State) if states[state]},
    }


async def _manager(s: session.Session, git_version: str) -> dict[str, Any] | None:
    """How the manager of a cluster is; None for a `kiln up`, which is all in one."""
    if "kilnwork" in git_version:
        return None
    waits_for = await reaching.readiness(s.http)
    return {"namespace": reaching.home(), "ready": not waits_for, "message": waits_for}


async def _all(s: session.Session, served: resource.Resource) -> list[meta.JsonObject]:
    """Of all namespaces; of one's own for who may not see them all."""
    if s.target.namespace:
        return await s.items(s.path(served))
    try:
        return await s.items(served.base())
    except kube_errors.Forbidden:
        return await s.items(s.path(served))


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
    state = "is ready" if server["ready"] else f"is not ready: {server['message']}"
    lines = [f"server: {server['url']} ({server['version']}) {state}"]
    if manager := facts.get("manager"):
        state = "is ready" if manager["ready"] else f"is not ready: {manager['message']}"
        lines.append(f"manager in {manager['namespace']} {state}")
    lines += _nodes(facts["nodes"])
    counts = ", ".join(f"{count} {state}" for state, count in facts["tasks"].items())
    lines.append(f"tasks:  {counts or 'none'}")
    lines += ["", *_clusters(facts["clusters"])]
    return lines


def _nodes(nodes: Sequence[dict[str, Any]]) -> list[str]:
    if len(nodes) > _MANY:
        ready = sum(node["ready"] for node in nodes)
        return [f"nodes:  {ready} of {len(nodes)} are ready"]
    states = ("ready" if n["ready"] else f"not ready ({n['reason']})" for n in nodes)
    return [f"node:   {n['name']} is {state}" for n, state in zip(nodes, states, strict=True)]


def _clusters(clusters: Sequence[dict[str, Any]]) -> list[str]:
    if not clusters:
        return ["no TaskCluster: tasks wait until there is one"]
    header = ["NAMESPACE", "CLUSTER", "WORKERS", "BUSY SLOTS", "QUEUED"]
    return render.columns(header, [list(cluster.values()) for cluster in clusters])
