"""The ports through which the controllers use the dispatcher and the engine of jobs; there is no
other way.

Implemented by `dispatch.hub.hub.Hub` and `jobs.index_jobs.IndexJobs`. All calls may be repeated.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from kilnwork.api import attempts
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import index_model, start_queue
from kilnwork.kit import ids
from kilnwork.kube import events

Emit = Callable[[events.Reference, str, str, str], None]
"""Emits a kube event: object, type, reason, message. Implemented by `kube.events.Recorder.emit`."""


class TaskHub(Protocol):
    """The part of the hub that the Task controller uses."""

    async def submit(
        self, submission: model.Submission, *, force: bool = False, resume: bool = False
    ) -> model.TaskView:
        """Accept a run of a task; durable when it returns. Repeating the same run changes nothing.

        `resume`: keep the children of the previous run. Raises RunRefused for a new run of a task
        that has succeeded, unless `force`.
        """
        ...

    async def kill(self, task: ids.TaskId, *, reason: str, message: str = "") -> None:
        """Kill a task; durable when it returns. An unknown or finished task is ignored."""
        ...

    async def suspend(self, task: ids.TaskId, *, suspended: bool) -> model.TaskView | None:
        """Suspend or resume a task; durable when it returns. A finished task is ignored."""
        ...

    async def release(self, tasks: Iterable[ids.TaskId]) -> None:
        """Release tasks whose objects are gone; durable when it returns."""
        ...

    async def changes(self, since: int) -> tuple[int, list[model.TaskView]]:
        """Wait for changes after `since`; with 0, return the complete state."""
        ...


class JobHub(Protocol):
    """The part of the engine of jobs that the Job and JobConfig controllers use.

    Implemented by `jobs.index_jobs.IndexJobs`. The effect of a coroutine method is durable when it
    returns.
    """

    async def put(self, new: index_model.NewIndexJob) -> index_model.IndexJobView:
        """Accept a Job; a known Job is returned unchanged. Raises InvalidJob."""
        ...

    async def set_hold(self, uid: str, hold: start_queue.Hold | None) -> None:
        """Set why a Job may not start yet; None if it may."""
        ...

    async def provide(
        self, uid: str, *, items: list[Any] | None = None, inputs: dict[str, Any] | None = None
    ) -> None:
        """Provide items or inputs that were not known when the Job was accepted."""
        ...

    async def fail(self, uid: str, reason: str, message: str) -> None:
        """End a Job as failed, and kill its running tasks."""
        ...

    async def kill(self, uid: str, *, reason: str = "Killed", message: str = "") -> None:
        """Kill a Job and its running tasks. A finished Job is ignored."""
        ...

    async def suspend(self, uid: str, *, suspended: bool) -> None:
        """Suspend or resume a Job."""
        ...

    async def adjust(
        self,
        uid: str,
        *,
        max_in_flight: int | msgspec.UnsetType | None = msgspec.UNSET,
        priority: int | msgspec.UnsetType = msgspec.UNSET,
    ) -> None:
        """Change parallelism or priority of a Job."""
        ...

    async def rerun(
        self,
        uid: str,
        run: int,
        *,
        suspended: bool | msgspec.UnsetType = msgspec.UNSET,
        max_in_flight: int | msgspec.UnsetType | None = msgspec.UNSET,
        priority: int | msgspec.UnsetType = msgspec.UNSET,
        killed: str = "",
    ) -> None:
        """Run the unsuccessful indexes of a finished Job again.

        `killed`: why the new run is killed before it starts; "" if it is not.
        """
        ...

    async def release(self, uid: str) -> None:
        """Release a Job whose object is gone: kill its tasks, and forget it."""
        ...

    async def changes(self, since: int) -> tuple[int, list[index_model.IndexJobView]]:
        """Wait for changes after `since`; with 0, return the complete state."""
        ...

    def view(self, uid: str) -> index_model.IndexJobView | None:
        """Return the view of a Job, or None if it is unknown."""
        ...

    def limit(self, group: start_queue.ConcurrencyGroup) -> None:
        """Set the concurrency limit of a JobConfig."""
        ...

    def group(self, config: str) -> index_model.GroupView:
        """Return the started and the waiting Jobs of a JobConfig."""
        ...

    def schedule(self, config: str) -> index_model.ScheduleRow | None:
        """Return the decisions of a schedule."""
        ...

    async def decide(self, decision: index_model.TickDecision) -> index_model.ScheduleRow:
        """Decide ticks of a schedule. Raises TickDecided if a later tick was decided."""
        ...

    async def forget_schedule(self, config: str) -> None:
        """Forget the schedule of a deleted JobConfig."""
        ...


class ClusterHub(Protocol):
    """The part of the hub that the TaskCluster controller uses."""

    async def close_cluster(self, namespace: str, cluster: str, *, running: bool = True) -> None:
        """End all unfinished tasks of a deleted cluster.

        With `running` False the cluster is being deleted: only tasks that are not on a worker end.
        """
        ...

    async def drain(self, namespace: str, cluster: str, pods: frozenset[str]) -> None:
        """Drain the workers in these Pods, and no others.

        They get no new tasks, and attempts lost with them do not count as losses.
        """
        ...

    async def set_portions(
        self, namespace: str, cluster: str, portions: Mapping[str, frozenset[int]]
    ) -> None:
        """Set the portions of a SyncSet's data on each node: tasks that need a portion run on
        workers there."""
        ...

    async def worker_gone(self, pod_uid: str, *, why: str = "", ended: float | None = None) -> None:
        """Report that nothing of this Pod runs any more. `why`: the cause, if known.

        `ended`: set if the Pod exists, but its container ended at this time (wall clock of its
        node) and has not restarted: proof for a worker that started before.
        """
        ...

    def cluster(self, namespace: str, name: str) -> model.ClusterView | None:
        """Return the dispatcher's current view of a cluster."""
        ...

    async def clusters_changed(self, since: int) -> tuple[int, set[tuple[str, str]]]:
        """Wait for changes after `since`; with 0, return all known clusters."""
        ...


class ExecutorLink(Protocol):
    """Receives the observations of an executor. Implemented by `dispatch.hub.executor_links`."""

    def observed(self, ref: attempts.AttemptRef, observed: model.Observed) -> None:
        """Report the observed state of an attempt."""
        ...

    def started(self, ref: attempts.AttemptRef, *, at: float, container: str = "") -> None:
        """Report that an attempt started at a wall time, in the container with this id."""
        ...

    async def finished(self, ref: attempts.AttemptRef, outcome: attempts.Outcome) -> None:
        """Report the end of an attempt; durable when it returns."""
        ...

    def log(self, ref: attempts.AttemptRef, *, offset: int, data: bytes) -> None:
        """Store output that begins at `offset`."""
        ...

    def discard_log(self, ref: attempts.AttemptRef) -> None:
        """Discard the stored output of an attempt, which is copied again from the beginning."""
        ...


class Containers(ExecutorLink, Protocol):
    """The link for attempts that run in the Pods of workers. Implemented by
    `dispatch.hub.containers`."""

    def join(self, receive: Callable[[instructions.ForExecutor], None]) -> None:
        """Register the callback for requests of workers."""
        ...

    def kill(self, pod_uid: str, ref: attempts.AttemptRef, container: str) -> bool:
        """Have the worker of a Pod kill a container in it; return False if the worker is not
        connected."""
        ...


class AttemptHub(Protocol):
    """The part of the hub that `attempts` uses."""

    @property
    def containers(self) -> Containers:
        """The link for attempts that run in the Pods of workers."""
        ...

    async def join_executor(
        self,
        executor: str,
        *,
        capacity: int,
        receive: Callable[[instructions.ForExecutor], None],
    ) -> ExecutorLink:
        """Let an executor take up to `capacity` attempts at once.

        When it returns, `receive` has been called with all attempts that the executor had before.
        """
        ...

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        """Return the newest run of a task, finished or not; None if there is none."""
        ...

    def holds(self, ref: attempts.AttemptRef) -> bool:
        """Return whether the attempt is unfinished."""
        ...


class Hub(TaskHub, ClusterHub, AttemptHub, Protocol):
    """All ports of the dispatcher's hub together."""
