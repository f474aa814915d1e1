"""Small shapes between rooms that must not know each other: what `server` asks, others answer.

Used by `wiring` only.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kilnwork.api import reasons, resource
from kilnwork.controllers import caches as known_caches
from kilnwork.controlplane.apiserver import authz
from kilnwork.dispatch import hub, model, queries
from kilnwork.kit import ids
from kilnwork.server import metrics, ports


class RbacRights:
    """`server.ports.Rights` by the RBAC of the embedded API server."""

    def __init__(self, authorizer: authz.Authorizer) -> None:
        self._authorizer = authorizer

    async def refusal(self, user: Any, question: ports.Question) -> str | None:
        """None when allowed, else Kubernetes' own text."""
        attributes = authz.Attributes(
            verb=question.verb,
            api_group=resource.GROUP,
            resource=resource.TASKS.plural,
            subresource=question.subresource,
            namespace=question.namespace,
            name=question.name,
        )
        if self._authorizer.allowed(user, attributes).allowed:
            return None
        return authz.refusal(user, attributes)


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

    def tasks(self, namespace: str, *, limit: int, below: int | None) -> ports.Page:
        """Tasks of a namespace, newest first."""
        return ports.Page(*self._reader.tasks(namespace, limit=limit, below=below))

    def log_file(self, task: ids.TaskId, *, run: int, attempt: int) -> Path:
        """Where the output of an attempt is kept."""
        return self._hub.log_file(task, run=run, attempt=attempt)

    async def kill(self, task: ids.TaskId) -> None:
        """Ask for the task to be stopped."""
        await self._hub.kill(task, reason=reasons.Reason.KILLED)

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


_CLUSTER_NUMBERS: tuple[tuple[str, str, Callable[[model.ClusterView], int]], ...] = (
    ("kilnwork_workers", "Workers connected.", lambda v: sum(w.ready for w in v.workers)),
    ("kilnwork_slots", "Slots of connected workers.", lambda v: v.slots),
    ("kilnwork_slots_busy", "Slots that run a task.", lambda v: v.busy),
    ("kilnwork_tasks_queued", "Tasks that wait for a slot.", lambda v: v.queued),
)
