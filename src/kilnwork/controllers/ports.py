"""The ports of the dispatcher and of the engine of jobs: the methods of them that controllers call.

Implemented by `dispatch.hub.hub.Hub` and `jobs.index_job_service.IndexJobs`. All calls may be
repeated.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from kilnwork.api import attempts
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import instructions
from kilnwork.jobs import index_job_types, job_start_queue
from kilnwork.kit import ids
from kilnwork.kube import events

Emit = Callable[[events.Reference, str, str, str], None]
"""Emits a kube event: object, type, reason, message. Implemented by `kube.events.Recorder.emit`."""


class TaskHub(Protocol):
    """The part of the hub that the Task controller uses."""

    async def submit(
        self, submission: model.Submission, *, force: bool = False, resume: bool = False
    ) -> model.TaskView:
        """Submit a run of a task; the run is durable when this returns. Repeating the same run
        changes nothing.

        `resume`: keep the children of the previous run. Raises RunRefused for a new run of a task
        that has succeeded, unless `force`, and TaskTooLarge.
        """
        ...

    async def kill(self, task: ids.TaskId, *, reason: str, message: str = "") -> None:
        """Kill a task; the kill is durable when this returns. An unknown or finished task is
        ignored.
        """
        ...

    async def suspend(self, task: ids.TaskId, *, suspended: bool) -> model.TaskView | None:
        """Suspend or resume a task; the change is durable when this returns. A finished task is
        ignored.
        """
        ...

    async def release(self, tasks: Iterable[ids.TaskId]) -> None:
        """Release tasks whose objects are gone; the release is durable when this returns."""
        ...

    async def changes(self, since: int) -> tuple[int, list[model.TaskView]]:
        """Wait for changes of declared tasks after revision `since`; return the new revision and
        the changed views. With 0, return all.
        """
        ...


class JobHub(Protocol):
    """The part of the engine of jobs that the Job and JobConfig controllers use.

    Implemented by `jobs.index_job_service.IndexJobs`. The effect of a coroutine method is durable
    when it returns.
    """

    async def put(self, new: index_job_types.NewIndexJob) -> index_job_types.IndexJobView:
        """Pass a new Job to the engine; a Job that the engine has already is returned unchanged.
        Raises InvalidJob.
        """
        ...

    async def set_hold(self, uid: str, hold: job_start_queue.Hold | None) -> None:
        """Set the reason why a Job may not start yet; None if it may."""
        ...

    async def provide(
        self, uid: str, *, items: list[Any] | None = None, inputs: dict[str, Any] | None = None
    ) -> None:
        """Provide items or inputs of a Job that were not known when it was accepted."""
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
        """Change the parallelism or the priority of a Job."""
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

    async def changes(self, since: int) -> tuple[int, list[index_job_types.IndexJobView]]:
        """Wait for changes of Jobs after revision `since`; return the new revision and the changed
        views. With 0, return all.
        """
        ...

    def view(self, uid: str) -> index_job_types.IndexJobView | None:
        """Return the view of a Job, or None if it is unknown."""
        ...

    def limit(self, group: job_start_queue.ConcurrencyGroup) -> None:
        """Set the concurrency limit of a JobConfig."""
        ...

    def group(self, config: str) -> index_job_types.GroupView:
        """Return the Jobs of a JobConfig that have started and those that wait."""
        ...

    def schedule(self, config: str) -> index_job_types.ScheduleRow | None:
        """Return the decisions about the ticks of a JobConfig's schedule; None if there are
        none.
        """
        ...

    async def decide(self, decision: index_job_types.TickDecision) -> index_job_types.ScheduleRow:
        """Store the decision about ticks of a schedule. Raises TickDecided if the tick or a later
        one was decided before.
        """
        ...

    async def forget_schedule(self, config: str) -> None:
        """Forget the schedule of a deleted JobConfig."""
        ...


class ClusterHub(Protocol):
    """The part of the hub that the TaskCluster and SyncSet controllers use."""

    async def close_cluster(self, namespace: str, cluster: str, *, running: bool = True) -> None:
        """End all unfinished tasks of a deleted cluster.

        With `running` False the cluster is being deleted: only tasks that are not on a worker end.
        """
        ...

    async def drain(self, namespace: str, cluster: str, pods: frozenset[str]) -> None:
        """Drain the workers of a cluster that run in `pods`, and no others.

        They get no new tasks, and attempts lost with them do not count as losses.
        """
        ...

    async def set_portions(
        self, namespace: str, cluster: str, portions: Mapping[str, frozenset[int]]
    ) -> None:
        """Set the portions of a SyncSet's data that each node holds; tasks that need a portion run
        on workers there.
        """
        ...

    async def worker_gone(self, pod_uid: str, *, why: str = "", ended: float | None = None) -> None:
        """Report that nothing runs any more in a Pod of a worker.

        `why`: the cause, if known. `ended`: None if the Pod is gone or has finished. Otherwise
        the time at which its container ended (wall clock of its node), if it has not restarted
        yet; this proves only the end of a worker that started before that time.
        """
        ...

    def cluster(self, namespace: str, name: str) -> model.ClusterView | None:
        """Return the dispatcher's current view of a cluster, or None if the dispatcher does not
        know it.
        """
        ...

    async def clusters_changed(self, since: int) -> tuple[int, set[tuple[str, str]]]:
        """Wait for changes of clusters after revision `since`; return the new revision and the
        changed clusters. With 0, return all.
        """
        ...


class ExecutorLink(Protocol):
    """Link of an executor to the dispatcher, which receives its observations. Implemented by
    `dispatch.hub.in_process_links`.
    """

    def observed(self, ref: attempts.AttemptRef, observed: model.Observed) -> None:
        """Report the observed state of an attempt."""
        ...

    def started(self, ref: attempts.AttemptRef, *, at: float, container: str = "") -> None:
        """Report that an attempt has started. `at`: wall clock; `container`: id of the container
        that runs it.
        """
        ...

    async def finished(self, ref: attempts.AttemptRef, outcome: attempts.Outcome) -> None:
        """Report the outcome of an attempt that has ended; durable when this returns."""
        ...

    def log(self, ref: attempts.AttemptRef, *, offset: int, data: bytes) -> None:
        """Store output of an attempt; `offset`: position of `data` in the whole output."""
        ...

    def discard_log(self, ref: attempts.AttemptRef) -> None:
        """Discard the stored output of an attempt, because all of it is stored again from the
        beginning.
        """
        ...


class Containers(ExecutorLink, Protocol):
    """The link for attempts that run in the Pods of workers. Implemented by
    `dispatch.hub.container_requests`."""

    def join(self, receive: Callable[[instructions.ForExecutor], None]) -> None:
        """Register the callback for requests of workers."""
        ...

    def kill(self, pod_uid: str, ref: attempts.AttemptRef, container: str) -> bool:
        """Have the worker in a Pod kill a container of an attempt; return False if the worker is
        not connected.
        """
        ...


class AttemptHub(Protocol):
    """The part of the hub that the controller of attempts uses."""

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
        """Register an executor that takes up to `capacity` attempts at once; return its link.

        When it returns, `receive` has been called with all attempts that the executor had before.
        """
        ...

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        """Return the view of the newest run of a task, finished or not; None if there is none."""
        ...

    def holds(self, ref: attempts.AttemptRef) -> bool:
        """Return whether an attempt is unfinished for the dispatcher."""
        ...


class Hub(TaskHub, ClusterHub, AttemptHub, Protocol):
    """The dispatcher's hub with all its ports."""
