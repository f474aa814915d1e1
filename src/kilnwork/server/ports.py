"""What the REST API needs of others, declared here and wired by the composition root."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kilnwork.api import attempts, job_config, kinds
from kilnwork.dispatch import model
from kilnwork.jobs import index_model
from kilnwork.jobs.flows import model as flow_model
from kilnwork.kit import asgi, ids

Extra = Mapping[str, tuple[str, ...]] | tuple[tuple[str, tuple[str, ...]], ...]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """May a user do this to tasks of a namespace? `name` is empty for all of them.

    `resource`: `tasks`, `jobs`, `jobconfigs`, or `executors` (in no namespace, but for their
    subresource `external`); all of our API group.
    """

    verb: str
    namespace: str
    name: str = ""
    subresource: str = ""
    resource: str = kinds.TASKS.plural


class User(Protocol):
    """Who makes a request, as the API server knows them (authentication.k8s.io/v1 UserInfo)."""

    @property
    def name(self) -> str:
        """`username`."""
        ...

    @property
    def extra(self) -> Extra:
        """Facts of the credential, such as the id of a token."""
        ...


class Rights(Protocol):
    """Authorization: what a SubjectAccessReview of the API server says."""

    async def refusal(self, user: Any, question: Question) -> str | None:
        """None when `user` (`Request.user`) may, else the sentence that says why not.

        Raises KubeError when the API server does not say.
        """
        ...


class Access(Rights, Protocol):
    """Authentication, as a TokenReview of the API server has it, and authorization."""

    async def authenticate(self, request: asgi.Request) -> User | None:
        """The user of a request, None without a good credential. Raises KubeError."""
        ...

    async def token_user(self, token: str, *, audience: str | None = None) -> User | None:
        """The user of a token for `audience`, or without one for the API server or for the manager
        alone; None when it is not. Raises KubeError."""
        ...


class Outputs(Protocol):
    """Output of attempts that run elsewhere than in workers: it is fetched when it is read.

    Of other attempts, and of those that are over, nothing need be brought.
    """

    async def catch_up(self, ref: attempts.AttemptRef) -> None:
        """Bring what an attempt has printed until now into its log file. Raises NoOutput."""
        ...

    def following(self, ref: attempts.AttemptRef) -> AbstractAsyncContextManager[None]:
        """Bring what it prints as it does; what cannot be had now is tried again."""
        ...


class Page(msgspec.Struct, frozen=True):
    """Some tasks, newest first. `more`: what to ask for the next page with, None at the end."""

    tasks: Sequence[model.TaskView]
    more: int | None


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A TaskCluster as far as those need it who submit to it."""

    name: str
    workers: int
    slots: int
    busy: int
    queued: int
    memory: str | msgspec.UnsetType = msgspec.UNSET
    """What the container of a worker may use, else what it asks for, as its template has it; unset
    where that says neither."""


class Clusters(Protocol):
    """Where tasks may be submitted to, as the controllers see it now."""

    def namespaces(self) -> Sequence[str]:
        """All namespaces, sorted."""
        ...

    def clusters(self, namespace: str) -> Sequence[Cluster]:
        """The TaskClusters of a namespace, sorted by name."""
        ...


class Journal(Protocol):
    """Reading tasks, and asking for changes to one. Reads may be repeated and do not block."""

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        """The newest run of a task, None when it is unknown."""
        ...

    def find(self, namespace: str, name: str) -> model.TaskView | None:
        """The newest task of that name, None when there is none."""
        ...

    async def abbreviated(self, namespace: str, digits: str, *, limit: int) -> list[ids.TaskId]:
        """At most `limit` tasks whose ids begin or end with these digits (`ids.abbreviated`)."""
        ...

    def tasks(
        self, namespace: str | None, *, wanted: model.TaskQuery, limit: int, below: int | None
    ) -> Page:
        """At most `limit` tasks of a namespace, or of all (None); `below` is `more` of the page
        before.

        A page may hold fewer than there are, none even, and still have one after it.
        """
        ...

    def counts(self, namespace: str | None) -> Sequence[model.TaskCount]:
        """How many tasks there are by function and state, in one namespace or (None) in all; also
        Task objects that have not been accepted yet, as Pending."""
        ...

    def log_file(self, task: ids.TaskId, *, run: int, attempt: int) -> Path:
        """Where the output of an attempt is kept; the file may not exist."""
        ...

    async def kill(self, task: ids.TaskId) -> None:
        """Ask for the task to be stopped, durably; nothing happens to one that is over."""
        ...

    async def suspend(self, task: ids.TaskId, *, suspended: bool) -> None:
        """Start no attempt of a spawned task until it is resumed, durably; one that runs goes on.

        Nothing happens to one that is over.
        """
        ...

    async def retry(self, task: ids.TaskId, *, force: bool) -> None:
        """Start a new run of a spawned task that is over, durably.

        Raises `dispatch.errors.RunRefused` when it is not over, works for a job, or has succeeded
        and `force` is False.
        """
        ...

    async def prune(self, asked: model.Pruning, *, dry_run: bool) -> model.Pruned:
        """Forget all that is asked for, or only say how many that would be."""
        ...

    async def forget(self, task: ids.TaskId) -> None:
        """Forget a task that is over, with its runs and output.

        Raises `dispatch.errors.RunRefused` when it is not over, is an object, or is needed.
        """
        ...

    async def retry_failed(self, task: ids.TaskId) -> model.Retried:
        """Run again what failed of a spawned task and around it, durably.

        Raises `dispatch.errors.RunRefused` when it is not over, works for a job, or has succeeded.
        """
        ...


class Jobs(Protocol):
    """Reading the indexes of Jobs, and JobConfigs."""

    def config(self, namespace: str, name: str) -> job_config.JobConfig | None:
        """The JobConfig of that name, None when there is none."""
        ...

    def uid(self, namespace: str, name: str) -> str | None:
        """`metadata.uid` of the Job of that name, None when there is none."""
        ...

    async def indexes(
        self,
        uid: str,
        *,
        after: int,
        limit: int,
        state: index_model.IndexState | None,
    ) -> list[index_model.IndexView]:
        """At most `limit` indexes with numbers above `after`, in order.

        Raises `jobs.errors.NoSuchJob` when the Job has not been taken up yet.
        """
        ...


class Flows(Protocol):
    """Reading the flows of SyncSets."""

    def newest(self, namespace: str, name: str) -> flow_model.FlowKey | None:
        """The newest generation of the SyncSet of that name, None when there is none."""
        ...

    def view(self, key: flow_model.FlowKey) -> flow_model.FlowRunView | None:
        """A run; None before it begins, or when it is not kept."""
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
        """At most `limit` instances behind the key `after`, in the order in which they began.

        Raises `jobs.errors.NoSuchJob` when the flow has not begun.
        """
        ...
