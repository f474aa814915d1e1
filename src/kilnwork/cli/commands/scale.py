"""`kiln scale`: set the number of workers of a TaskCluster."""

import click

from kilnwork.api import kinds as api_kinds
from kilnwork.api import meta
from kilnwork.cli import errors, kinds, object_waits, options, session, shell_completion
from kilnwork.kit import http_types
from kilnwork.kube import errors as kube_errors

_CLUSTERS = api_kinds.TASK_CLUSTERS
MAX_NAMED = 10
"""Maximum number of TaskClusters that an error names, so that it fits a line."""


@click.command()
@click.argument(
    "name", metavar="NAME", shell_complete=shell_completion.of_kind(_CLUSTERS), default="default"
)
@options.target
@click.option(
    "--replicas", type=click.IntRange(min=0), required=True, metavar="N", help="Number of workers."
)
@click.option("--wait", is_flag=True, help="Wait until this number of workers is connected.")
@click.option(
    "--timeout", type=options.DURATION, default=None, help="Stop waiting after this time."
)
def command(name: str, replicas: int, wait: bool, timeout: float | None) -> None:  # noqa: FBT001
    """Set the number of workers of TaskCluster NAME, default `default`.

    \b
    kiln scale --replicas 8 --wait
    kiln scale batch --replicas 0

    When scaling down, idle workers stop first; busy workers get no new tasks and stop when their
    tasks have finished. `kubectl scale taskcluster/NAME --replicas N` and autoscalers do the same.

    With --wait, prints progress; exits with 5 after --timeout.
    """
    session.run(lambda s: _scale(s, _plain(name), replicas, wait=wait, timeout_s=timeout))


def _plain(word: str) -> str:
    """Return the name in a word of the form NAME or KIND/NAME."""
    kind, slash, name = word.partition("/")
    if not slash:
        return word
    if _CLUSTERS not in kinds.find_resources(kind, (_CLUSTERS,)) or not name:
        raise errors.InvalidInput(f"{word}: only a TaskCluster has workers; write its name")
    return name


async def _scale(
    s: session.Session, name: str, replicas: int, *, wait: bool, timeout_s: float | None
) -> None:
    path = s.path(_CLUSTERS, name, namespace=s.one_namespace())
    try:
        before = (await s.ask("GET", path)).get("spec", {}).get("replicas")
        change = {"spec": {"replicas": replicas}}
        await s.ask("PATCH", f"{path}/scale", body=change, content_type=http_types.MERGE_PATCH)
    except kube_errors.NotFound as error:
        raise errors.Missing(await _missing(s, name)) from error
    asked = "has that already" if before == replicas else f"asked for, had {before}"
    click.echo(f"taskcluster/{name}: {_workers(replicas)} {asked}")
    if not wait:
        return
    subject = object_waits.WaitSubject(_CLUSTERS, name, s.one_namespace())
    text = f"waiting for {_workers(replicas)} of taskcluster/{name}"
    test = _has(replicas, name)
    await object_waits.until(s, subject, test, text=text, timeout_s=timeout_s, where=_where)
    click.echo(f"taskcluster/{name}: {_workers(replicas)} connected")


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}"


async def _missing(s: session.Session, name: str) -> str:
    """Return the error text for a missing TaskCluster, with the names of the existing ones."""
    known = sorted(item["metadata"]["name"] for item in await s.items(s.path(_CLUSTERS)))
    text = f"there is no TaskCluster {name} in namespace {s.namespace}"
    if not known:
        return f"{text}, nor any other: make one by `kiln apply -f FILE`"
    more = ", …" if len(known) > MAX_NAMED else ""
    return f"{text}; there are: {', '.join(known[:MAX_NAMED])}{more}"


def _has(replicas: int, name: str) -> object_waits.Test:
    def test(found: meta.JsonObject | None) -> bool:
        if found is None:
            raise errors.Missing(f"taskcluster/{name} was deleted")
        wanted = found["spec"].get("replicas")
        if wanted != replicas:
            raise errors.CommandError(
                f"taskcluster/{name}: another client has asked for {wanted} workers since"
            )
        status = found.get("status") or {}
        current = status.get("observedGeneration") == found["metadata"]["generation"]
        counts = (status.get("replicas", 0), status.get("readyReplicas", 0))
        return current and counts == (replicas, replicas)

    return test


def _where(found: meta.JsonObject | None) -> str:
    """Return a text with the number of connected workers, and the reason why there are not more."""
    status = (found or {}).get("status") or {}
    conditions: list[dict[str, str]] = status.get("conditions") or []
    ready = next((c for c in conditions if c["type"] == "Ready"), {})
    counts = f"{status.get('replicas', 0)} Pods, {status.get('readyReplicas', 0)} connected"
    message = ready.get("message", "")
    return f"{counts}; {message}" if message else counts
