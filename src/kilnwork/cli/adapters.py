"""Small shapes between rooms that must not know each other: what `server` asks, others answer.

Used by `wiring`, and in part by `dispatcher` and `manager_adapters`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from kilnwork.api import kinds, manager, meta, reasons, resource
from kilnwork.channel import errors as channel_errors
from kilnwork.controllers import caches as known_caches
from kilnwork.controlplane import cluster
from kilnwork.controlplane.apiserver import authn, authz
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import hub
from kilnwork.dispatch.journal.sqlite import queries
from kilnwork.jobs import service
from kilnwork.kit import ids
from kilnwork.server import metrics, ports


class WorkerVerifier(Protocol):
    """The half of `channel.ports.TokenVerifier` that `controllers` have."""

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        """True for a worker's token."""
        ...


class RbacRights:
    """`server.ports.Rights` by the RBAC of the embedded API server."""

    def __init__(self, authorizer: authz.Authorizer) -> None:
        self._authorizer = authorizer

    async def refusal(self, user: Any, question: ports.Question) -> str | None:
        """None when allowed, else Kubernetes' own text."""
        return self.refused(user, question)

    def refused(self, user: authn.User, question: ports.Question) -> str | None:
        """The same, at once."""
        attributes = authz.Attributes(
            verb=question.verb,
            api_group=kinds.GROUP,
            resource=question.resource,
            subresource=question.subresource,
            namespace=question.namespace,
            name=question.name,
        )
        if self._authorizer.allowed(user, attributes).allowed:
            return None
        return authz.refusal(user, attributes)


class ChannelVerifier:
    """`channel.ports.TokenVerifier`: workers by their cluster's Secret, drivers by RBAC.

    A driver shows a token of the API server; who may create Tasks in a namespace may submit calls.
    """

    def __init__(self, workers: WorkerVerifier, plane: cluster.ControlPlane) -> None:
        self._workers = workers
        self._plane = plane
        self._rights = RbacRights(plane.authorizer)

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        """As `controllers` say."""
        return await self._workers.verify(namespace, cluster, credential)

    async def verify_driver(self, namespace: str, credential: str) -> bool:
        """True when the token may submit; raises LinkRefused when it is good for other things."""
        people = self._plane.authenticator
        user = people.token_user(credential)
        if user is None:  # one that was asked for to be shown to us alone
            user = people.token_user(credential, audience=manager.AUDIENCE)
        if user is None:
            return False
        question = ports.Question(verb="create", namespace=namespace)
        refused = self._rights.refused(user, question)
        check_driver(namespace, refused=refused, exists=namespace in _namespaces(self._plane))
        return True


def check_driver(namespace: str, *, refused: str | None, exists: bool) -> None:
    """Raises LinkRefused for a driver that may not submit there, or where nobody can."""
    if refused is not None:
        raise channel_errors.LinkRefused("Forbidden", refused, retry=False)
    if not exists:
        text = f'namespace "{namespace}" does not exist'
        raise channel_errors.LinkRefused("Namespace", text, retry=False)


class KnownClusters:
    """`server.ports.Clusters`: objects of the API server, numbers of the hub."""

    def __init__(self, running: hub.Hub, plane: cluster.ControlPlane) -> None:
        self._hub = running
        self._plane = plane

    def namespaces(self) -> list[str]:
        """All namespaces, sorted."""
        return sorted(_namespaces(self._plane))

    def clusters(self, namespace: str) -> list[ports.Cluster]:
        """The TaskClusters of a namespace, sorted by name."""
        found = self._plane.writer.lookup.list(kinds.TASK_CLUSTERS, namespace)
        return [shown(self._hub, namespace, name) for name in sorted(map(_name, found))]


def shown(running: hub.Hub, namespace: str, name: str) -> ports.Cluster:
    """A TaskCluster with the numbers of the hub, which knows it once a worker or task has come."""
    view = running.cluster(namespace, name)
    return ports.Cluster(
        name=name,
        workers=0 if view is None else sum(w.ready for w in view.workers),
        slots=0 if view is None else view.slots,
        busy=0 if view is None else view.busy,
        queued=0 if view is None else view.queued,
    )


def _name(found: meta.JsonObject) -> str:
    return str(found["metadata"]["name"])


def _namespaces(plane: cluster.ControlPlane) -> set[str]:
    return {_name(found) for found in plane.writer.lookup.list(resource.NAMESPACES)}


class HubJournal:
    """`server.ports.Journal`: single tasks from the hub, lists from the file.

    Made after the hub has started; close it before the hub stops.
    """

    def __init__(self, running: hub.Hub, path: Path) -> None:
        self._hub = running
        self._reader = queries.Queries(path)

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        """The newest run of a task."""
        return self._hub.view(task)

    def find(self, namespace: str, name: str) -> model.TaskView | None:
        """The newest task of that name."""
        found = self._reader.find(namespace, name)
        return None if found is None else self._hub.view(found.task) or found

    def tasks(
        self, namespace: str, *, wanted: model.Wanted, limit: int, below: int | None
    ) -> ports.Page:
        """Tasks of a namespace, newest first, with the facts of the moment."""
        found, more = self._reader.tasks(namespace, wanted=wanted, limit=limit, below=below)
        return ports.Page([self._hub.current(view) for view in found], more)

    def log_file(self, task: ids.TaskId, *, run: int, attempt: int) -> Path:
        """Where the output of an attempt is kept."""
        return self._hub.log_file(task, run=run, attempt=attempt)

    async def kill(self, task: ids.TaskId) -> None:
        """Ask for the task to be stopped."""
        await self._hub.kill(task, reason=reasons.Reason.KILLED)

    async def retry(self, task: ids.TaskId, *, force: bool) -> None:
        """Start a new run of a task that is over."""
        await self._hub.retry(task, force=force)

    def close(self) -> None:
        """Let go of the file."""
        self._reader.close()


def samples(running: hub.Hub, caches: known_caches.Caches) -> Iterator[metrics.Sample]:
    """What `/metrics` shows of tasks, workers and slots."""
    states = Counter(task.status.state or "New" for task in caches.tasks.list())
    for state, count in sorted(states.items()):
        yield metrics.Sample(
            name="kilnwork_tasks",
            help="Task objects by state.",
            value=count,
            labels=(("state", state),),
        )
    views = [running.cluster(*key) for key in list(caches.clusters.keys())]
    known = [view for view in views if view is not None]
    for name, text, number in _CLUSTER_NUMBERS:
        for view in known:
            labels = (("namespace", view.namespace), ("cluster", view.cluster))
            yield metrics.Sample(name=name, help=text, value=number(view), labels=labels)


def job_samples(jobs: service.Jobs) -> Iterator[metrics.Sample]:
    """What `/metrics` shows of file jobs."""
    for namespace, phase, count in jobs.counts():
        yield metrics.Sample(
            name="kilnwork_file_jobs",
            help="File jobs by phase.",
            value=count,
            labels=(("namespace", namespace), ("phase", phase)),
        )


_CLUSTER_NUMBERS: tuple[tuple[str, str, Callable[[model.ClusterView], int]], ...] = (
    ("kilnwork_workers", "Workers connected.", lambda v: sum(w.ready for w in v.workers)),
    ("kilnwork_slots", "Slots of connected workers.", lambda v: v.slots),
    ("kilnwork_slots_busy", "Slots that run a task.", lambda v: v.busy),
    ("kilnwork_tasks_queued", "Tasks that wait for a slot.", lambda v: v.queued),
)
