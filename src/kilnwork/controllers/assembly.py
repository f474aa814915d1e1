"""Assembly of the controllers: caches, reflectors, queues, reconcilers, and their start order.

Used by the wirings of `kiln up` and `kiln manager`, as `controllers.Controllers`. The token
verifier exists before anything starts, because the hub needs it.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import Any

from kilnwork.api import (
    api_resources,
    job,
    job_config,
    kinds,
    meta,
    pod,
    sync_set,
    task,
    task_claim,
    task_cluster,
    task_object,
)
from kilnwork.api import attempts as api_attempts
from kilnwork.controllers import (
    caches,
    code_blob_renewal,
    controller_precedence,
    errors,
    ports,
    reconciler_context,
    worker_pods,
    worker_verifier,
)
from kilnwork.controllers.attempts import reconciler
from kilnwork.controllers.data_pond import assembly as data_ponds
from kilnwork.controllers.data_pond import ledger
from kilnwork.controllers.job import reconciler as job_reconciler
from kilnwork.controllers.job_config import clock_watch
from kilnwork.controllers.job_config import reconciler as job_config_reconciler
from kilnwork.controllers.sync_set import flow_pond_interfaces as set_ports
from kilnwork.controllers.sync_set import reconciler as sync_set_reconciler
from kilnwork.controllers.task import own_container_choice
from kilnwork.controllers.task import reconciler as task_reconciler
from kilnwork.controllers.task_claim import controller as task_claims
from kilnwork.controllers.task_cluster import reconciler as task_cluster_reconciler
from kilnwork.dispatch import model
from kilnwork.executors import container_logs, custom_resource, ephemeral, registry, workflow
from kilnwork.executors import pod as pod_executor
from kilnwork.kit import clock, coroutines
from kilnwork.kube import client, controller, events, manager, queue, reflector

TASK_WORKERS = 32
"""Number of Tasks reconciled concurrently: most of the time is spent waiting for the journal's
disk."""

CLUSTER_WORKERS = 4

JOB_WORKERS = 32
"""Number of Jobs reconciled concurrently: most of the time is spent waiting for the journal's
disk."""

CONFIG_WORKERS = 32
"""Number of JobConfigs reconciled concurrently: many of them may be due in the same second."""

SET_WORKERS = 8
"""Number of SyncSets reconciled concurrently: most of the time is spent waiting for the API
server."""

ATTEMPT_WORKERS = 32
"""Number of executors' attempts reconciled concurrently: most of the time is spent waiting for
an API."""

_OURS = ",".join(f"{key}={value}" for key, value in worker_pods.MANAGED.items())


def new_token() -> str:
    """Return 32 random bytes as text, for the channel Secret of a TaskCluster."""
    return secrets.token_urlsafe(32)


class Controllers:
    """All controllers of a manager. `verifier` is the channel's TokenVerifier.

    `namespaces`: the namespaces to serve; empty for all. `read_log`: reads the logs of Pods on a
    node in this process.
    """

    def __init__(
        self,
        kube: client.Client,
        settings: worker_pods.WorkerPodSettings,
        *,
        time: clock.Clock,
        on_failure: Callable[[str, BaseException], None] | None = None,
        namespaces: Sequence[str] = (),
        read_log: container_logs.ReadLog | None = None,
    ) -> None:
        self.caches = caches.Caches()
        self._recorder = events.Recorder(kube, component="kilnwork-manager", time=time)
        self._tasks_queue = queue.WorkQueue(time=time)
        self._clusters_queue = queue.WorkQueue(time=time)
        context = reconciler_context.ReconcilerContext(kube, self.caches, self._recorder.emit, time)
        self._tasks = task_reconciler.Reconciler(context, self._tasks_queue)
        self._jobs_queue = queue.WorkQueue(time=time)
        self._configs_queue = queue.WorkQueue(time=time)
        self._jobs = job_reconciler.Reconciler(
            context,
            self._jobs_queue,
            find_input=self._tasks.find_input,
            find_view=self._tasks.find_view,
        )
        self._configs = job_config_reconciler.Reconciler(context, self._configs_queue)
        self._ticks_first = controller_precedence.Precedence(self._configs_queue, time=time)
        self._clock_watch = clock_watch.ClockWatch(time, self._configs.clock_set)
        self._tasks.on_task = self._jobs.task_over
        self._jobs.on_change = self._configs.group_changed
        self._containers = ephemeral.EphemeralExecutor(kube, self.caches.pods)
        self._clusters = task_cluster_reconciler.Reconciler(
            context,
            self._clusters_queue,
            settings=settings,
            new_token=new_token,
            is_used_up=self._containers.is_used_up,
        )
        self.ledger = ledger.Ledger(time)
        """The snapshots that runs need from DataPonds, and the snapshots that nodes hold."""
        self._ponds = data_ponds.Ponds(context, settings, known=self.ledger, new_token=new_token)
        self._attempts_queue = queue.WorkQueue(time=time)
        self._pods = pod_executor.PodExecutor(
            kube,
            self.caches.pods,
            beside=settings.sidecar,
            blobs=settings.blobs,
            read_log=read_log,
        )
        self._kinds = custom_resource.Kinds(
            kube, custom_resource.AllowedKinds(settings.allowed_kinds), time=time
        )
        self._sets_queue = queue.WorkQueue(time=time)
        self._sets = sync_set_reconciler.Reconciler(context, self._sets_queue, served=self._kinds)
        self._objects = custom_resource.Follower(kube, namespaces=namespaces)
        executors = registry.Registry(
            [self._pods, self._containers, *self._of_objects(context, settings)]
        )
        self._attempts = reconciler.AttemptReconciler(executors, self._attempts_queue)
        self.outputs = self._attempts.outputs
        """The output of executors' attempts."""
        self.claims: task_claims.TaskClaims | None = None
        if settings.socket is not None:
            self.claims = task_claims.TaskClaims(
                kube,
                self.caches.claims,
                socket=settings.socket,
                blobs=settings.blobs,
                time=time,
                on_failure=on_failure,
            )
        blobs = settings.blobs
        self._code = (
            None if blobs is None else code_blob_renewal.CodeBlobs(self.caches, blobs, time=time)
        )
        self._follow = coroutines.BackgroundWork("controllers", on_failure=on_failure)
        self._manager = manager.Manager("controllers", on_failure=on_failure)
        reflectors = self._all_reflectors(kube, namespaces)
        self._synced = [one.synced for one in reflectors]
        self.verifier = worker_verifier.SecretVerifier(
            self.caches,
            synced=[
                one.synced
                for one in reflectors
                if one.resource in (kinds.TASK_CLUSTERS, api_resources.SECRETS)
            ],
        )
        self.pond_verifier = self._ponds.verifier(reflectors)
        self._manager.add_service(self._recorder)
        self._manager.add_reflector(*reflectors)
        self._manager.add_controller(*self._loops())

    def _of_objects(
        self, context: reconciler_context.ReconcilerContext, settings: worker_pods.WorkerPodSettings
    ) -> tuple[custom_resource.ObjectExecutor, workflow.WorkflowExecutor]:
        """Create the executors whose attempts are Kubernetes objects: of kinds that tasks name, and
        Argo Workflows.
        """
        shared = custom_resource.Shared(
            kinds=self._kinds,
            objects=self._objects,
            accounts=self.caches.accounts,
            time=context.time,
            blobs=settings.blobs,
        )
        of_objects = custom_resource.ObjectExecutor(
            context.kube, custom_resource.RuleReader(), shared
        )
        return of_objects, workflow.WorkflowExecutor(context.kube, shared)

    async def start(
        self,
        hub: ports.Hub,
        jobs: ports.JobHub,
        flows: set_ports.Flows | None = None,
        *,
        sync_timeout_s: float = 30.0,
    ) -> None:
        """Start following the dispatcher, the engines and the API server, then start the
        reconcilers.

        Without `flows`, SyncSets wait. Raises NotSynced.
        """
        self._configs.use(jobs)
        self._sets.use(hub, self.ledger)
        if flows is not None:
            self._follow.start("flow views", self._sets.follow(flows))
        self._follow.start("job views", self._jobs.follow(jobs))
        self._follow.start("wall clock", self._clock_watch.run())
        self._follow.start("task views", self._tasks.follow(hub))
        self._follow.start("cluster views", self._clusters.follow(hub))
        self._containers.use(hub.containers.kill)
        await self._attempts.start(hub)
        self._follow.start("objects of attempts", self._objects.run(self._kinds))
        try:
            await self._manager.start(sync_timeout_s=sync_timeout_s)
        except BaseException:
            await self._follow.stop()
            raise
        if self.claims is not None:
            self.claims.start()
        if self._code is not None:
            of_flows = None if flows is None else flows.code
            self._follow.start("code of jobs", self._code.run(self._all_synced, of_flows))

    async def stop(self) -> None:
        """Stop the reconcilers, then stop following the dispatcher, the engines and the API
        server.
        """
        self.ledger.close()
        if self.claims is not None:
            await self.claims.stop()
        await self._manager.stop()
        await self._attempts.outputs.stop()
        await self._follow.stop()

    @property
    def synced(self) -> bool:
        """Whether each cache has been complete at least once."""
        return all(event.is_set() for event in self._synced)

    async def _all_synced(self) -> None:
        for event in self._synced:
            await event.wait()

    async def wait_synced(self) -> None:
        """Wait a limited time until all caches are complete. Raises NotYet."""
        await worker_verifier.wait_synced(self._synced)

    async def is_pod_of(
        self, ref: api_attempts.AttemptRef, namespace: str, name: str, *, uid: str
    ) -> bool:
        """Return whether the Pod with this name and uid runs an attempt of an executor. Raises
        NotYet while that is unknown.
        """
        await self.wait_synced()
        found = self._pods.is_pod_of(ref, namespace, name, uid=uid)
        if found is None:
            raise errors.NotYet(f"Pod {namespace}/{name} has not been seen yet")
        return found

    def image_of_spawned(self, namespace: str, spec: task.TaskSpec) -> model.ImageUse:
        """Return how the image of a spawned command is used: ignored, or run in a separate Pod or
        container. The result is a refusal while the caches are not complete, and if the TaskCluster
        does not exist.
        """
        if not self.synced:
            return model.ImageUse(
                spec, refusal="the manager has just started: ask again", status=503
            )
        cluster = self.caches.clusters.get((namespace, task.queue_cluster(spec.cluster_name)))
        pods = () if cluster is None else self.caches.pods.owned_by(cluster.metadata.uid)
        return own_container_choice.use_for_spawned(
            spec, cluster, own_container_choice.worker_image(pods)
        )

    def _object_changed(
        self,
        key: tuple[str, str],
        old: task_object.TaskObject | None,
        new: task_object.TaskObject | None,
    ) -> None:
        self._tasks.object_changed(key, old, new)
        self._jobs.object_changed(key, old, new)

    def _loops(self) -> tuple[controller.Controller, ...]:
        return (
            controller.Controller(
                "task", self._tasks.reconcile, self._tasks_queue, workers=TASK_WORKERS
            ),
            controller.Controller(
                "taskcluster",
                self._clusters.reconcile,
                self._clusters_queue,
                workers=CLUSTER_WORKERS,
            ),
            controller.Controller(
                "job",
                self._jobs.reconcile,
                self._jobs_queue,
                workers=JOB_WORKERS,
                turn=self._ticks_first.wait,
            ),
            controller.Controller(
                "jobconfig",
                self._configs.reconcile,
                self._configs_queue,
                workers=CONFIG_WORKERS,
            ),
            self._ponds.controller(),
            controller.Controller(
                "syncset", self._sets.reconcile, self._sets_queue, workers=SET_WORKERS
            ),
            controller.Controller(
                "attempt", self._attempts.reconcile, self._attempts_queue, workers=ATTEMPT_WORKERS
            ),
        )

    def _all_reflectors(
        self, kube: client.Client, namespaces: Sequence[str]
    ) -> list[reflector.Reflector[Any]]:
        nodes = self._ponds.cluster_reflectors()
        if not namespaces:
            known = self.caches.namespaces
            every = reflector.Reflector(kube, api_resources.NAMESPACES, meta.Partial, known)
            return [*self._reflectors(kube, None), every, *nodes]
        for name in namespaces:
            self.caches.namespaces.put(meta.Partial(metadata=meta.ObjectMeta(name=name)))
        return [*(one for name in namespaces for one in self._reflectors(kube, name)), *nodes]

    def _reflectors(
        self, kube: client.Client, namespace: str | None
    ) -> list[reflector.Reflector[Any]]:
        known, here = self.caches, reflector.Scope(namespace=namespace)
        ours = reflector.Scope(namespace=namespace, label_selector=_OURS)
        clusters = reflector.Reflector(
            kube, kinds.TASK_CLUSTERS, task_cluster.TaskCluster, known.clusters, scope=here
        )
        clusters.subscribe(self._clusters.cluster_changed)
        clusters.subscribe(self._tasks.cluster_changed)
        clusters.subscribe(self._jobs.cluster_changed)
        clusters.subscribe(self._sets.cluster_changed)
        part = self._clusters.part_changed
        pods = reflector.Reflector(kube, api_resources.PODS, pod.Pod, known.pods, part, scope=ours)
        pods.subscribe(self._pods.changed)
        pods.subscribe(self._containers.changed)
        pods.subscribe(self._sets.pod_changed)
        pods.subscribe(self._ponds.part_changed)
        secrets = reflector.Reflector(
            kube, api_resources.SECRETS, caches.Secret, known.secrets, part, scope=ours
        )
        secrets.subscribe(self._ponds.part_changed)
        configs = reflector.Reflector(
            kube, kinds.JOB_CONFIGS, job_config.JobConfig, known.job_configs, scope=here
        )
        configs.subscribe(self._configs.config_changed)
        configs.subscribe(self._jobs.config_changed)
        jobs = reflector.Reflector(
            kube,
            kinds.JOBS,
            job.Job,
            known.jobs,
            self._jobs.job_changed,
            # Jobs created while no manager ran are queued in this order.
            scope=reflector.Scope(namespace=namespace, oldest_first=True),
        )
        jobs.subscribe(self._configs.job_changed)
        sets = reflector.Reflector(
            kube,
            kinds.SYNC_SETS,
            sync_set.SyncSet,
            known.sync_sets,
            self._sets.set_changed,
            scope=here,
        )
        claims = reflector.Reflector(
            kube, kinds.TASK_CLAIMS, task_claim.TaskClaim, known.claims, scope=here
        )
        if self.claims is not None:
            claims.subscribe(self.claims.changed)
        return [
            reflector.Reflector(
                kube,
                kinds.TASKS,
                task.Task,
                known.tasks,
                self._tasks.task_changed,
                # Tasks created while no manager ran are submitted in this order.
                scope=reflector.Scope(namespace=namespace, oldest_first=True),
            ),
            reflector.Reflector(
                kube,
                kinds.TASK_OBJECTS,
                task_object.TaskObject,
                known.objects,
                self._object_changed,
                scope=here,
            ),
            clusters,
            pods,
            claims,
            configs,
            jobs,
            sets,
            secrets,
            *self._ponds.reflectors(namespace),
            reflector.Reflector(
                kube,
                api_resources.SERVICE_ACCOUNTS,
                meta.Partial,
                known.accounts,
                self._clusters.account_changed,
                scope=here,
            ),
        ]
