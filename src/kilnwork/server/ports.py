"""Ports of the REST API: the services that it needs from other packages.

Implemented by `cli.wiring.port_adapters` and `cli.directory_session`; `Access` also by `reviews`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kilnwork.api import attempts, job_config, kinds
from kilnwork.dispatch import model
from kilnwork.jobs import index_job_types
from kilnwork.jobs.flows import run_types as flow_model
from kilnwork.kit import asgi, ids

Extra = Mapping[str, tuple[str, ...]] | tuple[tuple[str, tuple[str, ...]], ...]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question for authorization: whether a user may perform an operation in a namespace.

    `name` is empty for all objects. `resource`: `tasks`, `jobs` (Jobs and file jobs), `jobconfigs`,
    `syncsets`, `dataponds`, or `executors` (cluster-scoped, except for their subresource
    `external`); all in our API group.
    """

    verb: str
    namespace: str
    name: str = ""
    subresource: str = ""
    resource: str = kinds.TASKS.plural


class User(Protocol):
    """The sender of a request, as known to the API server (authentication.k8s.io/v1 UserInfo)."""

    @property
    def name(self) -> str:
        """Name of the user in Kubernetes (`username`)."""
        ...

    @property
    def extra(self) -> Extra:
        """Facts about the credential, such as the id of a token."""
        ...


class Rights(Protocol):
    """Authorization, as a SubjectAccessReview of the API server decides."""

    async def refusal(self, user: Any, question: Question) -> str | None:
        """Return why a user is not allowed to do something, as a sentence, or None if the user is
        allowed.

        `user` comes from `Request.user`. Raises KubeError if the API server gives no decision.
        """
        ...


class Access(Rights, Protocol):
    """Authentication, as a TokenReview of the API server decides, and authorization."""

    async def authenticate(self, request: asgi.Request) -> User | None:
        """Return the user of a request, or None without a valid credential. Raises KubeError."""
        ...

    async def token_user(self, token: str, *, audience: str | None = None) -> User | None:
        """Return the user of a token for `audience`, or None if the token is invalid. Raises
        KubeError.

        If `audience` is not given, the token may be for the API server or for the manager.
        """
        ...


class Outputs(Protocol):
    """Access to the output of attempts that do not run in workers, which is fetched when it is
    read.

    Nothing needs to be fetched for other attempts, or for attempts that have ended.
    """

    async def catch_up(self, ref: attempts.AttemptRef) -> None:
        """Fetch the output that an attempt has printed so far into its log file. Raises
        NoOutput.
        """
        ...

    def following(self, ref: attempts.AttemptRef) -> AbstractAsyncContextManager[None]:
        """Return a context manager in which an attempt's output is fetched as it is printed; failed
        fetches are retried.
        """
        ...


class TaskPage(msgspec.Struct, frozen=True):
    """A page of a list of tasks, newest first. `more`: cursor of the next page, None at the end."""

    tasks: Sequence[model.TaskView]
    more: int | None


class ClusterSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a TaskCluster that clients need in order to submit tasks to it."""

    name: str
    workers: int
    slots: int
    busy: int
    queued: int
    memory: str | msgspec.UnsetType = msgspec.UNSET
    """Memory limit of a worker's container, or else its request, as in its template; unset if it
    has neither."""


class Clusters(Protocol):
    """The namespaces and TaskClusters to which tasks may be submitted, as the controllers see them
    now.
    """

    def namespaces(self) -> Sequence[str]:
        """Return all namespaces, sorted."""
        ...

    def clusters(self, namespace: str) -> Sequence[ClusterSummary]:
        """Return the TaskClusters of a namespace, sorted by name."""
        ...


class Journal(Protocol):
    """Access to the tasks of the journal: reads them, and requests changes to them. Reads may be
    repeated and do not block.
    """

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        """Return the view of a task's newest run, or None if the task is unknown."""
        ...

    def find(self, namespace: str, name: str) -> model.TaskView | None:
        """Return the newest task with a name, or None if there is no such task."""
        ...

    async def abbreviated(self, namespace: str, digits: str, *, limit: int) -> list[ids.TaskId]:
        """Return at most `limit` ids of tasks that begin or end with `digits`
        (`ids.abbreviated`).
        """
        ...

    def tasks(
        self, namespace: str | None, *, wanted: model.TaskQuery, limit: int, below: int | None
    ) -> TaskPage:
        """Return at most `limit` tasks of a namespace, or of all namespaces if `namespace` is None.

        `below` is `more` of the page before. A page may have fewer tasks than `limit`, even none,
        and still be followed by another.
        """
        ...

    def counts(self, namespace: str | None) -> Sequence[model.TaskCount]:
        """Return the number of tasks by function and state in a namespace, or in all namespaces if
        `namespace` is None.

        Task objects that are not accepted yet are included as Pending.
        """
        ...

    def log_file(self, task: ids.TaskId, *, run: int, attempt: int) -> Path:
        """Return the path of the log of an attempt; the file may not exist."""
        ...

    async def kill(self, task: ids.TaskId) -> None:
        """Durably request the end of a task. Does nothing if the task has ended."""
        ...

    async def suspend(self, task: ids.TaskId, *, suspended: bool) -> None:
        """Durably suspend or resume a spawned task.

        While it is suspended, no attempt starts; a running attempt continues. Does nothing if the
        task has ended.
        """
        ...

    async def retry(self, task: ids.TaskId, *, force: bool) -> None:
        """Durably start a new run of a spawned task that has ended.

        Raises `dispatch.errors.RunRefused` if it has not ended, belongs to a job, or has succeeded
        and `force` is False.
        """
        ...

    async def prune(self, asked: model.Pruning, *, dry_run: bool) -> model.Pruned:
        """Delete the tasks that `asked` selects, or with `dry_run` only count them."""
        ...

    async def forget(self, task: ids.TaskId) -> None:
        """Delete a task that has ended, with its runs and output.

        Raises `dispatch.errors.RunRefused` if the task has not ended, is a Task object, is still
        needed by another task, or has children that have not ended.
        """
        ...

    async def retry_failed(self, task: ids.TaskId) -> model.Retried:
        """Durably start new runs of the failed tasks in and around a spawned task.

        Raises `dispatch.errors.RunRefused` if it has not ended, belongs to a job, or has succeeded.
        """
        ...


class Jobs(Protocol):
    """Access to JobConfigs and to the indexes of Jobs."""

    def config(self, namespace: str, name: str) -> job_config.JobConfig | None:
        """Return the JobConfig with a name, or None."""
        ...

    def uid(self, namespace: str, name: str) -> str | None:
        """Return `metadata.uid` of the Job with a name, or None."""
        ...

    async def indexes(
        self,
        uid: str,
        *,
        after: int,
        limit: int,
        state: index_job_types.IndexState | None,
    ) -> list[index_job_types.IndexView]:
        """Return at most `limit` indexes of a Job with numbers above `after`, in order.

        Raises `jobs.errors.NoSuchJob` if the engine does not have the Job yet.
        """
        ...


class Flows(Protocol):
    """Access to the flows of SyncSets."""

    def newest(self, namespace: str, name: str) -> flow_model.FlowKey | None:
        """Return the key of the newest generation of a SyncSet, or None if there is no such
        SyncSet.
        """
        ...

    def view(self, key: flow_model.FlowKey) -> flow_model.FlowRunView | None:
        """Return the view of a flow's run, or None before it begins and after it is deleted."""
        ...

    async def steps(
        self,
        key: flow_model.FlowKey,
        *,
        step: str,
        after: str,
        limit: int,
        state: flow_model.InstanceState | None,
    ) -> list[flow_model.InstanceView]:
        """Return at most `limit` step instances after the key `after`, in the order in which they
        began.

        Raises `jobs.errors.NoSuchJob` if the flow has not begun.
        """
        ...
