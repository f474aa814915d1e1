"""`kiln status`: show the state of the server, its nodes, workers, tasks and file jobs."""

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

import click

from kilnwork.api import api_resources, filejobs, kinds, manager_access, meta, task
from kilnwork.cli import (
    errors,
    file_jobs,
    options,
    output_formats,
    readyz_reader,
    session,
    wait_notice,
)
from kilnwork.endpoints import discovery_protocol
from kilnwork.kit import clock, http_types
from kilnwork.kube import errors as kube_errors

_LOOK_S = 0.1
"""Pause between two checks whether the server is ready."""

_NEWEST = 5
"""Number of file jobs that are shown; `kiln files` shows more."""

T = TypeVar("T")

_MANY = 10
"""Maximum number of nodes and functions that are listed one by one."""


@click.command()
@options.target
@options.output("json", "yaml")
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the server is ready, also if it has not been started yet.",
)
@click.option(
    "--timeout",
    type=options.DURATION,
    default=None,
    help="Stop waiting after this time; default: wait without limit.",
)
def command(form: str | None, wait: bool, timeout: float | None) -> None:  # noqa: FBT001
    """Show the state of the server, its nodes, TaskClusters, tasks and file jobs.

    \b
    kiln status
    kiln status --wait --timeout 30s

    Prints whether the server (in a Kubernetes cluster also the manager) is ready, its nodes and
    TaskClusters, the number of tasks in each state, in total and by Python function, and the newest
    file jobs. Covers all namespaces that you may read, or the one of -n; lists the resources that
    you may not read.
    """
    facts = asyncio.run(_when_ready(timeout)) if wait else session.run(_facts)
    if form is not None:
        click.echo(output_formats.document(facts, form), nl=False)
        return
    for line in _text(facts):
        click.echo(line)


async def _when_ready(timeout_s: float | None) -> dict[str, Any]:
    """Wait until the server is ready and return the facts about it.

    The kubeconfig may not exist yet.
    """
    text, problem = "waiting for the server", ""
    try:
        async with asyncio.timeout(timeout_s), wait_notice.waiting(text) as waiting:
            while True:
                try:
                    return await _ready_facts()
                except (kube_errors.Unavailable, errors.Unreachable) as error:
                    problem = readyz_reader.parse_open_checks(str(error)) or str(error)
                waiting.say(f"{text}: {problem}")
                await asyncio.sleep(_LOOK_S)
    except TimeoutError as error:
        raise errors.TimedOut(f"{text}: not ready within {timeout_s:g} s; {problem}") from error
    except kube_errors.KubeError as error:
        settings = session.load_settings(options.current())
        raise session.explain_error(error, settings.server) from error


async def _ready_facts() -> dict[str, Any]:
    target = options.current()
    async with session.connect(session.load_settings(target), target) as s:
        await s.http.send(http_types.ClientRequest(method="GET", path="/readyz"))
        facts = await _facts(s)
    if not facts.get("manager", {"ready": True})["ready"]:
        raise errors.Unreachable(f"the manager is not ready: {facts['manager']['message']}")
    return facts


async def _facts(s: session.Session) -> dict[str, Any]:
    """Return the facts that `kiln status` prints: nodes, TaskClusters, tasks and file jobs.

    `missing` gives the reason for each kind that the user may not read.
    """
    version = await s.get_json("/version")
    waits_for = await readyz_reader.read_open_checks(s)
    missing: dict[str, str] = {}
    narrowed: set[str] = set()
    clusters = await _seen(missing, "clusters", _all(s, kinds.TASK_CLUSTERS, narrowed)) or []
    tasks = await _seen(missing, "tasks", _task_counts(s, narrowed)) or {}
    nodes = await _seen(missing, "nodes", s.items(api_resources.NODES.base())) or []
    files = await _seen(missing, "files", _file_jobs(s))
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
        "tasks": tasks.get("states", {}),
        "functions": _functions(tasks.get("items", ())),
        **({"onlyIn": s.namespace} if narrowed else {}),
        **({} if files is None else {"files": files}),
        **({"missing": missing} if missing else {}),
    }


_NOT_EVERYWHERE = (400, 403)
"""Errors of servers that cannot list all namespaces: earlier versions, or a missing right."""


_IN_A_NAMESPACE = ("clusters", "tasks")
_OF_THE_MANAGER = ("files", "tasks")


async def _seen(missing: dict[str, str], kind: str, found: Awaitable[T]) -> T | None:
    """Await a read and return its result, or None if the user may not read the kind.

    In the latter case the reason is recorded in `missing`. For tasks and file jobs, which another
    server may hold, any error counts as missing.
    """
    try:
        return await found
    except errors.SERVER_ERRORS as error:
        if kind not in _OF_THE_MANAGER and not isinstance(
            error, kube_errors.Forbidden | errors.AccessRefused
        ):
            raise
        missing[kind] = str(error)
        if kind in _IN_A_NAMESPACE:
            missing[kind] += "; -n names another namespace"
    return None


async def _file_jobs(s: session.Session) -> dict[str, Any] | None:
    """Return the newest file jobs (`newest`) and the number of file jobs per phase (`phases`).

    None if there is no manager, which the caller reports anyway.
    """
    spaces = [{"namespace": s.namespace}]
    if not s.target.namespace:
        spaces.insert(0, {"allNamespaces": "true"})
    for space in spaces:
        try:
            newest = file_jobs.list_documents(
                s, where=file_jobs.path(), wanted={}, limit=session.PAGE, space=space
            )
            found = [job async for job in newest]
        except errors.Unreachable:
            return None
        except kube_errors.ApiError as error:
            if space is spaces[-1] or error.status not in _NOT_EVERYWHERE:
                raise
        else:
            break
    phases = Counter(file_jobs.phase(job) for job in found)
    return {
        **({} if "allNamespaces" in space or s.target.namespace else space),
        "phases": {phase: phases[phase] for phase in filejobs.FileJobPhase if phases[phase]},
        "newest": found[:_NEWEST],
    }


async def _manager(s: session.Session, git_version: str) -> dict[str, Any] | None:
    """Return the state of the manager of a Kubernetes cluster.

    None for a `kiln up`, whose manager is part of the server.
    """
    if "kilnwork" in git_version:
        return None
    home = manager_access.manager_namespace(os.environ)
    waits_for = await s.carry_out(discovery_protocol.ask_readiness(home))
    return {"namespace": home, "ready": not waits_for, "message": waits_for}


async def _all(
    s: session.Session, served: api_resources.Resource, narrowed: set[str]
) -> list[meta.JsonObject]:
    """Return the objects of one kind in all namespaces.

    For a user who may not read all namespaces, returns the objects of the session's namespace, and
    adds the kind to `narrowed`.
    """
    if s.target.namespace:
        return await s.items(s.path(served))
    try:
        return await s.items(served.base())
    except kube_errors.Forbidden:
        found = await s.items(s.path(served))
        narrowed.add(served.plural)
        return found


async def _task_counts(s: session.Session, narrowed: set[str]) -> dict[str, Any]:
    """Return the number of tasks in all namespaces, by state and function.

    For a user who may not read all namespaces, returns the counts of the session's namespace, and
    adds tasks to `narrowed`.
    """
    own = f"/v1/namespaces/{session.quoted(s.namespace)}/task-counts"
    if s.target.namespace:
        return await s.get_json(own)
    try:
        return await s.get_json("/v1/task-counts")
    except kube_errors.Forbidden:
        found = await s.get_json(own)
        narrowed.add("tasks")
        return found


def _functions(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the number of calls of each function by state, functions with the most calls first."""
    found: dict[tuple[str, str], Counter[str]] = {}
    for item in items:
        if item["function"]:
            states = found.setdefault((item["namespace"], item["function"]), Counter())
            states[item["state"]] += item["number"]
    most = sorted(found.items(), key=lambda one: (-one[1].total(), one[0]))
    return [
        {
            "namespace": namespace,
            "function": function,
            "states": {state: states[state] for state in task.State if states[state]},
        }
        for (namespace, function), states in most
    ]


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
    missing: dict[str, str] = facts.get("missing", {})
    lines += _nodes(facts["nodes"])
    if "tasks" not in missing:
        lines.append(f"tasks:  {_counts(facts['tasks'])}{_where(facts.get('onlyIn'))}")
    files = facts.get("files")
    if files is not None:
        lines.append(f"files:  {_counts(files['phases'])}{_where(files.get('namespace'))}")
    lines += [f"{kind}: not shown: {why}" for kind, why in missing.items()]
    if files is not None and files["newest"]:
        everywhere = {job.get("namespace") for job in files["newest"]} > {None}
        now = clock.SystemClock().wall()
        lines += ["", *file_jobs.table(files["newest"], now=now, namespaces=everywhere)]
    if "clusters" not in missing:
        lines += ["", *_clusters(facts["clusters"])]
    if facts["functions"]:
        lines += ["", *_calls(facts["functions"])]
    if "onlyIn" in facts:
        lines.append(
            f"Shows only namespace {facts['onlyIn']}: you may not read all; use -n for another one."
        )
    return lines


def _where(namespace: str | None) -> str:
    return f" (in namespace {namespace})" if namespace else ""


def _counts(of: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in of.items()) or "none"


def _nodes(nodes: Sequence[dict[str, Any]]) -> list[str]:
    if len(nodes) > _MANY:
        ready = sum(node["ready"] for node in nodes)
        return [f"nodes:  {ready} of {len(nodes)} are ready"]
    states = ("ready" if n["ready"] else f"not ready ({n['reason']})" for n in nodes)
    return [f"node:   {n['name']} is {state}" for n, state in zip(nodes, states, strict=True)]


def _calls(functions: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of the table of calls: a line for each function, a column for each state.

    Only the functions with the most calls have a line.
    """
    shown = functions[:_MANY]
    states = [state for state in task.State if any(state in one["states"] for one in shown)]
    lines = output_formats.columns(
        ["NAMESPACE", "FUNCTION", *(state.upper() for state in states)],
        [
            [one["namespace"], one["function"], *(one["states"].get(s, 0) for s in states)]
            for one in shown
        ],
    )
    left = len(functions) - len(shown)
    return [*lines, f"… and {left} more functions: -o yaml shows all"] if left else lines


def _clusters(clusters: Sequence[dict[str, Any]]) -> list[str]:
    if not clusters:
        return ["no TaskCluster: tasks wait until there is one"]
    header = ["NAMESPACE", "CLUSTER", "WORKERS", "BUSY SLOTS", "QUEUED"]
    return output_formats.columns(header, [list(cluster.values()) for cluster in clusters])
