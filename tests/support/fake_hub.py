"""A dispatcher that a test controls: the port that controllers use, without anything behind it."""

import asyncio
import unittest.mock
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import msgspec

from kilnwork.api import attempts, task
from kilnwork.dispatch import errors, model
from kilnwork.dispatch.hub import container_requests as hub_containers
from kilnwork.dispatch.hub import in_process_links
from kilnwork.kit import ids
from support import view_samples


class FakeHub:
    """`submitted` and `killed` in order; `move` publishes the next state of a task."""

    def __init__(self, *, wall: float = 1_700_000_000.0) -> None:
        self.submitted: list[model.Submission] = []
        self.killed: list[tuple[str, str]] = []
        self.released: list[ids.TaskId] = []
        self.closed: list[tuple[str, str]] = []
        self.closing: list[tuple[str, str]] = []
        self.gone: list[str] = []
        self.portions: dict[str, dict[str, frozenset[int]]] = {}
        """The newest view of each cluster."""
        self.clusters: dict[tuple[str, str], model.ClusterView] = {}
        self.views: dict[ids.TaskId, model.TaskView] = {}
        self._wall = wall
        self._seq = 0
        self._changed: dict[ids.TaskId, int] = {}
        self._clusters_changed: dict[tuple[str, str], int] = {}
        self._news = asyncio.Event()

    # What the controllers call

    async def submit(
        self, submission: model.Submission, *, force: bool = False, resume: bool = False
    ) -> model.TaskView:
        """Store the task, which waits for a worker until `move`."""
        self.submitted.append(submission)
        known = self.views.get(submission.task)
        if known is not None and known.run >= submission.spec.run:
            return known
        if known is not None and known.state is task.State.SUCCESS and not force:
            raise errors.RunRefused(f"run {known.run} of {submission.name} succeeded")
        return self._publish(_waiting(submission, self._wall))

    async def kill(self, task: ids.TaskId, *, reason: str, message: str = "") -> None:
        view = self.views.get(task)
        if view is None or view.state.final:
            return
        self.killed.append((view.name, str(reason)))
        ended = {"message": message, "finished": self._wall, "stopped": True}
        self.move(view.name, "Killed", reason=str(reason), **ended)

    async def suspend(self, task: ids.TaskId, *, suspended: bool) -> model.TaskView | None:
        """Suspend or resume a task."""
        view = self.views.get(task)
        if view is not None and not view.state.final:
            self.move(view.name, view.state, suspended=suspended)
        return self.views.get(task)

    async def release(self, tasks: Iterable[ids.TaskId]) -> None:
        self.released += tasks

    async def changes(self, since: int) -> tuple[int, list[model.TaskView]]:
        """Return the views that are newer than `since`, once there are any."""
        while True:
            newer = [self.views[t] for t, seq in self._changed.items() if seq > since]
            if newer:
                return self._seq, newer
            await self._wait()

    async def close_cluster(self, namespace: str, cluster: str, *, running: bool = True) -> None:
        (self.closed if running else self.closing).append((namespace, cluster))

    async def drain(self, namespace: str, cluster: str, pods: frozenset[str]) -> None:
        view = self.clusters.get((namespace, cluster))
        workers = () if view is None else view.workers
        marked = [msgspec.structs.replace(w, draining=w.pod_uid in pods) for w in workers]
        queued = 0 if view is None else view.queued
        self.publish_cluster((namespace, cluster), *marked, queued=queued, draining=pods)

    async def set_portions(
        self, namespace: str, cluster: str, portions: Mapping[str, frozenset[int]]
    ) -> None:
        self.portions[cluster] = dict(portions)

    async def worker_gone(self, pod_uid: str, *, why: str = "", ended: float | None = None) -> None:
        """Record the notification and remove the worker."""
        self.gone.append(pod_uid)
        for key, view in list(self.clusters.items()):
            left = tuple(w for w in view.workers if w.pod_uid != pod_uid)
            if left != view.workers:
                self.publish_cluster(key, *left, queued=view.queued, draining=view.draining)

    def cluster(self, namespace: str, name: str) -> model.ClusterView | None:
        return self.clusters.get((namespace, name))

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        return self.views.get(task)

    containers = cast("hub_containers.Containers", unittest.mock.Mock())
    """No worker requests containers."""

    def holds(self, ref: attempts.AttemptRef) -> bool:
        return False

    async def join_executor(
        self, executor: str, *, capacity: int, receive: Callable[[Any], None]
    ) -> in_process_links.ExecutorLink:
        """Return no link: executors get no instructions from this hub."""
        return cast("in_process_links.ExecutorLink", None)

    async def clusters_changed(self, since: int) -> tuple[int, set[tuple[str, str]]]:
        """Return the clusters that were published since."""
        while True:
            newer = {key for key, seq in self._clusters_changed.items() if seq > since}
            if newer:
                return self._seq, newer
            await self._wait()

    # What the test calls

    def move(self, name: str, state: str, **facts: Any) -> None:
        """Publish the next state of the newest task of this name."""
        view = [v for v in self.views.values() if v.name == name][-1]
        self._seq += 1
        changes = {"state": task.State(state), "seq": self._seq, **facts}
        self._publish(msgspec.structs.replace(view, **changes))

    def run(self, name: str) -> None:
        self.move(
            name,
            "Running",
            reason="Started",
            message="",
            attempt=1,
            worker="w-0",
            started=self._wall,
        )

    def succeed(self, name: str, **facts: Any) -> None:
        ended = {"exit_code": 0, "finished": self._wall, "stopped": True}
        self.move(name, "Success", reason="Succeeded", message="", **{**ended, **facts})

    def publish_cluster(
        self,
        key: tuple[str, str],
        *workers: model.WorkerView,
        queued: int = 0,
        draining: frozenset[str] = frozenset(),
    ) -> None:
        self._seq += 1
        self.clusters[key] = model.ClusterView(
            namespace=key[0], cluster=key[1], workers=workers, queued=queued, draining=draining
        )
        self._clusters_changed[key] = self._seq
        self._ring()

    def names(self) -> list[str]:
        """Return the names of submitted tasks, in order."""
        return [s.name for s in self.submitted]

    def _publish(self, view: model.TaskView) -> model.TaskView:
        self._seq += 1
        self.views[view.task] = view
        self._changed[view.task] = self._seq
        self._ring()
        return view

    def _ring(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _wait(self) -> None:
        await self._news.wait()


def _waiting(submission: model.Submission, wall: float) -> model.TaskView:
    return view_samples.waiting(
        task=submission.task,
        namespace=submission.namespace,
        name=submission.name,
        cluster=submission.spec.cluster_name,
        declared=submission.declared,
        run=submission.spec.run,
        message="no worker is connected",
        created=wall,
    )
