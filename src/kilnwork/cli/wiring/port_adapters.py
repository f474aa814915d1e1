"""Adapters that implement the ports of one package by means of another package.

They are for packages that must not import each other. Used by `manager`, `dispatcher` and
`embedded`.
"""

import asyncio
import base64
import contextlib
import functools
import hmac
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kilnwork import controllers
from kilnwork.api import (
    api_resources,
    attempts,
    env_sources,
    job_config,
    kinds,
    manager_access,
    reasons,
    task,
    task_cluster,
)
from kilnwork.channel import errors as channel_errors
from kilnwork.controllers import caches as known_caches
from kilnwork.controlplane import cluster
from kilnwork.controlplane.apiserver import authn, authz
from kilnwork.dispatch import errors as dispatch_errors
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import hub
from kilnwork.dispatch.journal.sqlite import queries
from kilnwork.jobs import file_job_service, index_job_service, index_job_types
from kilnwork.jobs.flows import flow_service
from kilnwork.jobs.flows import run_types as flow_model
from kilnwork.kit import asgi, ids
from kilnwork.kube import client
from kilnwork.kube import errors as kube_errors
from kilnwork.server import errors as server_errors
from kilnwork.server import metrics, ports


class EmbeddedAccess:
    """`server.ports.Access` that asks the API server in this process directly.

    Returns what its TokenReview and SubjectAccessReview would, without a request and without a
    cache: a changed right takes effect at once.
    """

    def __init__(self, plane: cluster.ControlPlane) -> None:
        self._plane = plane

    async def authenticate(self, request: asgi.Request) -> authn.User | None:
        """Return the user of a request, by its token or client certificate, with impersonation."""
        return await self._plane.authenticate(request)

    async def token_user(self, token: str, *, audience: str | None = None) -> authn.User | None:
        """Return the user of a token for an audience, by default the API server or the manager."""
        people = self._plane.authenticator
        if audience is not None:
            return people.token_user(token, audience=audience)
        return people.token_user(token) or people.token_user(
            token, audience=manager_access.AUDIENCE
        )

    async def refusal(self, user: Any, question: ports.Question) -> str | None:
        """Return the text with which Kubernetes denies a request, or None if it is allowed."""
        attributes = authz.Attributes(
            verb=question.verb,
            api_group=kinds.GROUP,
            resource=question.resource,
            subresource=question.subresource,
            namespace=question.namespace,
            name=question.name,
        )
        if self._plane.authorizer.allowed(user, attributes).allowed:
            return None
        return authz.denial_message(user, attributes)


class ChannelVerifier:
    """`channel.ports.TokenVerifier` for workers, drivers, executors and sidecars.

    Workers are authenticated by the Secret of their cluster, drivers by their rights, and sidecars
    by the Pod to which Kubernetes has bound their token. A driver shows a token of the API server;
    a user who may create Tasks in a namespace may submit calls there.
    """

    def __init__(self, known: controllers.Controllers, access: ports.Access) -> None:
        self._controllers = known
        self._access = access

    async def verify(self, namespace: str, cluster: str, credential: str) -> bool:
        return await self._controllers.verifier.verify(namespace, cluster, credential)

    async def verify_driver(self, namespace: str, credential: str) -> bool:
        """Return whether the token of a driver may submit calls in a namespace.

        Raises LinkRefused if it is valid for other uses. Raises NotYet while the controllers have
        not listed all namespaces: a driver that reconnects while the manager starts then retries.
        """
        user = await self._access.token_user(credential)
        if user is None:
            return False
        question = ports.Question(verb="create", namespace=namespace)
        refused = await self._access.refusal(user, question)
        if refused is not None:
            raise channel_errors.LinkRefused("Forbidden", refused, retry=False)
        await self._controllers.wait_synced()
        if ("", namespace) not in self._controllers.caches.namespaces:
            text = f'namespace "{namespace}" does not exist'
            raise channel_errors.LinkRefused("Namespace", text, retry=False)
        return True

    async def verify_executor(self, executor: str, namespace: str, credential: str) -> bool:
        """Return whether a token may `use` the executor of the given name, or is that of
        TaskClaims.

        Raises LinkRefused if it is valid for other uses.
        """
        claims = self._controllers.claims
        if claims is not None and hmac.compare_digest(claims.token.encode(), credential.encode()):
            return True
        user = await self._access.token_user(credential)
        if user is None:
            return False
        name = executor.removeprefix(task.EXTERNAL)
        question = ports.Question(
            verb="use",
            resource=EXECUTORS,
            namespace=namespace,
            name=name,
            subresource="" if name == executor else "external",
        )
        refused = await self._access.refusal(user, question)
        if refused is not None:
            raise channel_errors.LinkRefused("Forbidden", refused, retry=False)
        return True

    async def verify_attempt(
        self, ref: attempts.AttemptRef, namespace: str, pod: str, credential: str
    ) -> bool:
        """Return whether a token is bound to the given Pod, and the Pod belongs to the attempt.

        Raises NotYet while the Pod is not in the cache.
        """
        user = await self._access.token_user(credential, audience=manager_access.ATTEMPT_AUDIENCE)
        if user is None or not user.name.startswith(f"system:serviceaccount:{namespace}:"):
            return False
        facts = dict(user.extra)
        if tuple(facts.get(POD_NAME, ())) != (pod,):
            return False
        uid = next(iter(facts.get(POD_UID, ())), "")
        return await self._controllers.is_pod_of(ref, namespace, pod, uid=uid)


EXECUTORS = "executors"
"""Resource that represents executors in RBAC rules; it has no objects."""

POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
"""Key in a user's `extra`: UID of the Pod that the token is bound to (KEP-2799,
pkg/serviceaccount/util.go).
"""


class KnownClusters:
    """`server.ports.Clusters` with objects from the controllers' caches and numbers from the hub.

    Raises NotReady while the caches are not filled.
    """

    def __init__(self, running: hub.Hub, known: controllers.Controllers) -> None:
        self._hub = running
        self._controllers = known

    def namespaces(self) -> list[str]:
        """Return all namespaces, sorted."""
        return sorted(name for _, name in self._caches.namespaces.keys())  # noqa: SIM118  no mapping

    def clusters(self, namespace: str) -> list[ports.ClusterSummary]:
        """Return the TaskClusters of a namespace, sorted by name."""
        keys = sorted(self._caches.clusters.keys())
        return [self._shown(*key) for key in keys if key[0] == namespace]

    @property
    def _caches(self) -> known_caches.Caches:
        if not self._controllers.synced:
            raise server_errors.NotReady
        return self._controllers.caches

    def _shown(self, namespace: str, name: str) -> ports.ClusterSummary:
        """Return the summary of a TaskCluster with the numbers of the hub.

        The hub knows a cluster once a worker or task has arrived.
        """
        view = self._hub.cluster(namespace, name)
        return ports.ClusterSummary(
            name=name,
            workers=0 if view is None else sum(w.ready for w in view.workers),
            slots=0 if view is None else view.slots,
            busy=0 if view is None else view.busy,
            queued=0 if view is None else view.queued,
            memory=_memory(self._caches.clusters.get((namespace, name))),
        )


class KubeVariables:
    """`dispatch.hub.environment_variables.VariableSource` that reads Secrets and ConfigMaps from
    the API server.
    """

    def __init__(self, kube: client.Client) -> None:
        self._kube = kube

    async def read(
        self, namespace: str, source: env_sources.VariableSource
    ) -> Mapping[str, bytes] | None:
        """Return the data of a Secret or ConfigMap, or None if it does not exist. Raises
        KubeError.
        """
        kind = api_resources.SECRETS if source.kind == "Secret" else api_resources.CONFIG_MAPS
        try:
            found = await self._kube.get(kind, source.name, namespace)
        except kube_errors.NotFound:
            return None
        data = found.get("data") or {}
        if kind is api_resources.SECRETS:
            return {key: base64.b64decode(value) for key, value in data.items()}
        return {key: value.encode() for key, value in data.items()}


def _memory(cluster: task_cluster.TaskCluster | None) -> str | msgspec.UnsetType:
    """Return the memory limit of a worker's first container, or else its memory request.

    The API server has validated the template.
    """
    template: dict[str, Any] = (None if cluster is None else cluster.spec.template) or {}
    containers = template.get("spec", {}).get("containers") or [{}]
    asked = containers[0].get("resources") or {}
    given = (asked.get(kind, {}).get("memory") for kind in ("limits", "requests"))
    return next(map(str, filter(None, given)), msgspec.UNSET)


class LiveOutputs:
    """`server.ports.Outputs` that reads output where the controllers' executors run attempts."""

    def __init__(self, known: controllers.Controllers) -> None:
        self._controllers = known

    async def catch_up(self, ref: attempts.AttemptRef) -> None:
        """Copy the output that an attempt has written until now. Raises NoOutput."""
        try:
            await self._controllers.outputs.catch_up(ref)
        except kube_errors.KubeError as error:
            text = f"cannot read its output: {error}. The output is stored when it ends"
            raise server_errors.NoOutput(text) from error

    def following(self, ref: attempts.AttemptRef) -> contextlib.AbstractAsyncContextManager[None]:
        """Copy the output of an attempt while it is written."""
        return self._controllers.outputs.following(ref)


class KnownJobs:
    """`server.ports.Jobs`: names from the object cache, indexes from `index_job_service`."""

    def __init__(
        self, engine: index_job_service.IndexJobs, known: Callable[[], known_caches.Caches]
    ) -> None:
        self._engine = engine
        self._known = known

    def uid(self, namespace: str, name: str) -> str | None:
        found = self._known().jobs.get((namespace, name))
        return None if found is None else found.metadata.uid

    def config(self, namespace: str, name: str) -> job_config.JobConfig | None:
        return self._known().job_configs.get((namespace, name))

    async def indexes(
        self,
        uid: str,
        *,
        after: int,
        limit: int,
        state: index_job_types.IndexState | None,
    ) -> list[index_job_types.IndexView]:
        """Return indexes of a Job in the order of their numbers."""
        return await self._engine.indexes(uid, after=after, limit=limit, state=state)


class KnownFlows:
    """`server.ports.Flows`: names from the object cache, everything else from `flow_service`."""

    def __init__(
        self, engine: flow_service.FlowRuns, known: Callable[[], known_caches.Caches]
    ) -> None:
        self._engine = engine
        self._known = known

    def newest(self, namespace: str, name: str) -> flow_model.FlowKey | None:
        """Return the key of the newest generation of a SyncSet, or None."""
        found = self._known().sync_sets.get((namespace, name))
        if found is None:
            return None
        return flow_model.FlowKey(found.metadata.uid, found.status.generation)

    def view(self, key: flow_model.FlowKey) -> flow_model.FlowRunView | None:
        """Return the state of a run of a flow as stored, with current counts, or None."""
        return self._engine.view(key)

    async def steps(
        self,
        key: flow_model.FlowKey,
        *,
        step: str,
        after: str,
        limit: int,
        state: flow_model.InstanceState | None,
    ) -> list[flow_model.InstanceView]:
        """Return instances of the steps of a flow, in order."""
        return await self._engine.steps(key, step=step, after=after, limit=limit, state=state)


class HubJournal:
    """`server.ports.Journal` with single tasks from the hub and lists from the journal file.

    Create it after the hub has started; close it before the hub stops.
    """

    def __init__(
        self,
        running: hub.Hub,
        path: Path,
        *,
        jobs: file_job_service.FileJobs,
        known: Callable[[], known_caches.Caches],
    ) -> None:
        self._hub = running
        self._known = known
        self._jobs = jobs
        self._reader = queries.Queries(path)

    def view(self, task: ids.TaskId) -> model.TaskView | None:
        return self._hub.view(task)

    def find(self, namespace: str, name: str) -> model.TaskView | None:
        found = self._reader.find(namespace, name)
        return None if found is None else self._hub.view(found.task) or found

    async def abbreviated(self, namespace: str, digits: str, *, limit: int) -> list[ids.TaskId]:
        """Return the tasks whose ids begin or end with the given digits.

        Runs in a thread, because it scans all ids.
        """
        find = functools.partial(self._reader.abbreviated, namespace, digits, limit=limit)
        return await asyncio.to_thread(find)

    def tasks(
        self, namespace: str | None, *, wanted: model.TaskQuery, limit: int, below: int | None
    ) -> ports.TaskPage:
        """Return a page of tasks, newest first, as the hub knows them now.

        The tasks are those of `namespace`, or of all namespaces if it is None.
        """
        found, more = self._reader.tasks(namespace, wanted=wanted, limit=limit, below=below)
        return ports.TaskPage([self._hub.current(view) for view in found], more)

    def counts(self, namespace: str | None) -> list[model.TaskCount]:
        """Return the number of tasks, including Task objects that are not accepted yet."""
        return task_counts(self._hub, self._known(), namespace)

    def log_file(self, task: ids.TaskId, *, run: int, attempt: int) -> Path:
        """Return the path of the output of an attempt."""
        return self._hub.log_file(task, run=run, attempt=attempt)

    async def kill(self, task: ids.TaskId) -> None:
        await self._hub.kill(task, reason=reasons.Reason.KILLED)

    async def suspend(self, task: ids.TaskId, *, suspended: bool) -> None:
        await self._hub.suspend(task, suspended=suspended)

    async def retry(self, task: ids.TaskId, *, force: bool) -> None:
        """Start a new run of a finished task.

        Raises RunRefused for a part of a file job, which is retried through its job.
        """
        self._check_retry(task)
        await self._hub.retry(task, force=force)

    async def retry_failed(self, task: ids.TaskId) -> model.Retried:
        """Start new runs of a failed task and of the tasks that failed with it.

        Raises RunRefused for a part of a file job.
        """
        self._check_retry(task)
        return await self._hub.retry_failed(task, objects=True)

    def _check_retry(self, task: ids.TaskId) -> None:
        view = self._hub.view(task)
        if view is not None and (job := self._job_of(view)) is not None:
            raise dispatch_errors.RunRefused(
                f"task {view.name} is part of file job {job}: `kiln retry {job} --failed` runs "
                "again what has failed"
            )

    async def prune(self, asked: model.Pruning, *, dry_run: bool) -> model.Pruned:
        return await self._hub.prune(asked, dry_run=dry_run)

    async def forget(self, task: ids.TaskId) -> None:
        await self._hub.forget(task)

    def _job_of(self, view: model.TaskView) -> str | None:
        """Return the id of the file job to which a task belongs, or None."""
        if not view.source:
            return None
        found = self._jobs.job(view.namespace, ids.task_text(ids.TaskId(view.source)))
        return None if found is None else found.id

    def close(self) -> None:
        self._reader.close()


def task_counts(
    running: hub.Hub, caches: known_caches.Caches, namespace: str | None
) -> list[model.TaskCount]:
    """Return the number of tasks of the journal, and of Task objects that are not in it yet."""
    numbers = Counter[tuple[str, bool, str, task.State]]()
    for one in running.counts(namespace):
        numbers[one.namespace, one.declared, one.function, one.state] += one.number
    for obj in caches.tasks.list():
        of, state = obj.metadata.namespace or "", obj.status.state
        if namespace not in (None, of) or state not in (None, task.State.PENDING):
            continue
        if obj.metadata.uid and not running.knows(ids.task_id(obj.metadata.uid)):
            call = obj.spec.call
            numbers[of, True, "" if call is None else call.function, task.State.PENDING] += 1
    return [model.TaskCount(*key, number) for key, number in sorted(numbers.items())]


def samples(running: hub.Hub, caches: known_caches.Caches) -> Iterator[metrics.Sample]:
    """Yield the `/metrics` samples of tasks, workers and slots."""
    for one in task_counts(running, caches, None):
        yield metrics.Sample(
            name="kilnwork_tasks",
            help="Tasks, declared and spawned, by what they call and by state.",
            value=one.number,
            labels=(
                ("namespace", one.namespace),
                ("declared", "true" if one.declared else "false"),
                ("function", one.function),
                ("state", one.state.value),
            ),
        )
    views = [running.cluster(*key) for key in list(caches.clusters.keys())]
    known = [view for view in views if view is not None]
    for name, text, number in _CLUSTER_NUMBERS:
        for view in known:
            labels = (("namespace", view.namespace), ("cluster", view.cluster))
            yield metrics.Sample(name=name, help=text, value=number(view), labels=labels)


def job_samples(jobs: file_job_service.FileJobs) -> Iterator[metrics.Sample]:
    """Yield the `/metrics` samples of file jobs."""
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
