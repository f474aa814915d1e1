"""The shell of the TaskCluster controller: reads the facts about one TaskCluster and carries out
its plan.

Used by `assembly`. Decides nothing: see `plan` and `status`.
"""

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from kilnwork.api import api_resources, kinds, meta, pod, reasons, task_cluster
from kilnwork.controllers import (
    ports,
    reconciler_context,
    status_writer,
    waiting_keys,
    worker_pods,
    worker_verifier,
)
from kilnwork.controllers.task_cluster import deletion, object_creation, plan, status
from kilnwork.dispatch import model
from kilnwork.kube import errors, events, finalizers, queue

log = logging.getLogger(__name__)

Key = tuple[str, str]

NewToken = Callable[[], str]
"""Returns a new secret for a cluster's workers."""


class Reconciler:
    """The reconciler of TaskClusters; each pass handles one TaskCluster."""

    def __init__(
        self,
        context: reconciler_context.ReconcilerContext,
        work: queue.WorkQueue,
        *,
        settings: worker_pods.WorkerPodSettings,
        new_token: NewToken,
        is_used_up: Callable[[pod.Pod], bool] = lambda seen: False,
    ) -> None:
        self._client = context.kube
        self._caches = context.caches
        self._emit = context.emit
        self._clock = context.time
        self._queue = work
        self._settings = settings
        self._new_token = new_token
        self._is_used_up = is_used_up
        self._hub: ports.ClusterHub | None = None
        self._waiting_keys = waiting_keys.WaitingKeys()
        self._writer = status_writer.StatusWriter(
            context.kube, kinds.TASK_CLUSTERS, task_cluster.TaskClusterStatus
        )
        self._refusals: dict[Key, status.CreationRefusal] = {}
        self._written: dict[Key, float] = {}
        self._worked: dict[Key, float] = {}
        self._accepted: dict[Key, str] = {}
        self._may_hold = True
        self._heard: dict[str, float] = {}
        self._expected = object_creation.ExpectedPods(context.time)

    # Event handlers: each one only queues the keys that must be reconciled.

    def cluster_changed(
        self,
        key: Key,
        old: task_cluster.TaskCluster | None,
        new: task_cluster.TaskCluster | None,
    ) -> None:
        """Handle the creation, change or deletion of a TaskCluster."""
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._writer.forget(old.metadata.uid)
        self._queue.add(key)

    def part_changed(self, key: Key, old: Any, new: Any) -> None:
        """Handle the creation, change or deletion of a worker Pod or channel Secret."""
        metadata: meta.ObjectMeta = (new or old).metadata
        if isinstance(old, pod.Pod) and isinstance(new, pod.Pod):
            same = worker_pods.is_same(old, new)
            if same and self._is_used_up(old) == self._is_used_up(new):
                return  # only attempts have started or ended in the Pod
        self._expected.forget(metadata.uid)
        if new is None:
            self._heard.pop(metadata.uid, None)
        cluster = metadata.annotations.get(worker_pods.CLUSTER_LABEL)
        if cluster is not None:
            self._queue.add((key[0], cluster))

    def account_changed(self, key: Key, old: meta.Partial | None, new: meta.Partial | None) -> None:
        """Handle the creation or deletion of a ServiceAccount."""
        if old is None or new is None:
            for waiting in self._waiting_keys.waiting(api_resources.SERVICE_ACCOUNTS.plural, *key):
                self._queue.add(waiting)

    async def follow(self, hub: ports.ClusterHub) -> None:
        """Process the changes of clusters that the dispatcher publishes, until cancelled."""
        self._hub = hub
        since = 0
        while True:
            since, changed = await hub.clusters_changed(since)
            for key in changed:
                self._queue.add(key)

    async def reconcile(self, key: Key) -> float | None:
        """Make one pass over a TaskCluster; return in how many seconds to make the next one, if no
        change comes first.
        """
        hub = self._dispatcher()
        facts = self._facts(key)
        decided = plan.decide(facts, self._settings)
        if decided.drain is not None and decided.drain != facts.draining:
            await hub.drain(*key, decided.drain)
            facts = self._facts(key)
            decided = plan.decide(facts, self._settings)
        if decided.close or decided.close_waiting:
            await hub.close_cluster(*key, running=decided.close)
        for gone in decided.gone:
            if gone.why and gone.ended is None and facts.cluster is not None:
                self._emit_event(facts.cluster, "WorkerEnded", gone.why)
            await hub.worker_gone(gone.pod_uid, why=gone.why, ended=gone.ended)
        for worker in decided.missing:
            await self._report_gone(key, worker)
        if facts.cluster is None or decided.status is None:
            await self._hold(facts.cluster, wanted=decided.finalizer)
            self._forget(key)
            return None
        await self._remove(facts.cluster, decided.remove)
        refusal, wait_s = await self._make(facts.cluster, decided)
        if decided.trial is not None and refusal is None:
            refusal, wait_s = await self._try_out(key, facts.cluster, decided.trial)
        self._waiting_keys.set(key, (plan.awaited_account(facts.cluster),))
        if refusal != self._refusals.get(key):
            self._refused(key, facts.cluster, refusal)
            decided = plan.decide(self._facts(key), self._settings)
        if await self._hold(facts.cluster, wanted=decided.finalizer):
            return (
                object_creation.SOON_S
            )  # the status is written to the changed object in the next pass
        again_s = (
            None
            if decided.status is None
            else await self._update_status(key, facts, decided.status)
        )
        return min((w for w in (wait_s, again_s, decided.again_s) if w is not None), default=None)

    # Reading

    def _facts(self, key: Key) -> plan.Facts:
        found = self._caches.clusters.get(key)
        view = self._dispatcher().cluster(*key)
        if found is None:
            return plan.Facts(cluster=None, view=view)
        cluster = msgspec.structs.replace(found, status=self._writer.current(found))
        uid = cluster.metadata.uid
        owned = self._expected.merge_with(uid, self._caches.pods.owned_by(uid))
        secret = worker_verifier.channel_secret(self._caches, cluster)
        now = self._clock.wall()
        if deletion.has_work(view):
            self._worked[key] = now
        self._heard |= {w.pod_uid: now for w in view.workers if w.ready} if view else {}
        return plan.Facts(
            cluster=cluster,
            pods=tuple(sorted(owned, key=_pod_name)),
            secret_uid=secret.metadata.uid if secret else "",
            secret_ca=secret.data.get(worker_pods.CA_KEY, "") if secret else "",
            account_exists=(key[0], plan.service_account(cluster)) in self._caches.accounts,
            refusal=self._refusals.get(key),
            view=view,
            now=now,
            heard=self._heard,
            worked=self._worked.setdefault(key, now),
            used_up=frozenset(p.metadata.uid for p in owned if self._is_used_up(p)),
            accepted=self._accepted.get(key, ""),
        )

    def _forget(self, key: Key) -> None:
        self._refusals.pop(key, None)
        self._written.pop(key, None)
        self._worked.pop(key, None)
        self._accepted.pop(key, None)
        self._waiting_keys.set(key, ())

    # Writing

    async def _report_gone(self, key: Key, worker: model.WorkerView) -> None:
        """Report to the dispatcher that a worker's Pod is gone, if the API server confirms it."""
        try:
            found = await self._client.get(
                api_resources.PODS, worker.name, key[0], type=meta.Partial
            )
        except errors.NotFound:
            pass
        else:
            if found.metadata.uid == worker.pod_uid:
                return
        await self._dispatcher().worker_gone(worker.pod_uid)

    async def _hold(self, cluster: task_cluster.TaskCluster | None, *, wanted: bool | None) -> bool:
        """Set or remove the finalizer of a TaskCluster; return whether that was done."""
        if cluster is None or wanted is None or not self._may_hold:
            return False
        change = finalizers.add if wanted else finalizers.remove
        try:
            await change(self._client, kinds.TASK_CLUSTERS, cluster, finalizer=deletion.FINALIZER)
        except (errors.Invalid, errors.NotFound):  # the TaskCluster is being deleted, or gone
            return False
        except errors.Forbidden as error:  # installed with the manifests of an older version
            self._may_hold = False
            log.warning("deleted TaskClusters will not drain", extra={"why": error.message})
            return False
        return True

    async def _remove(
        self, cluster: task_cluster.TaskCluster, removals: tuple[plan.Removal, ...]
    ) -> None:
        for removal in removals:
            facts = {"pod": removal.name, "cluster": cluster.metadata.name, "why": removal.why}
            log.info("deleting worker Pod", extra=facts)
            try:
                await self._client.delete(
                    api_resources.PODS,
                    removal.name,
                    cluster.metadata.namespace,
                    uid=removal.uid,
                    grace_s=removal.grace_s,
                )
            except (errors.NotFound, errors.Conflict):
                continue

    async def _make(
        self, cluster: task_cluster.TaskCluster, decided: plan.Plan
    ) -> tuple[status.CreationRefusal | None, float | None]:
        if decided.make_secret:
            body = worker_pods.make_secret(cluster, self._new_token(), ca=self._settings.ca)
            made = await object_creation.create(
                self._client, api_resources.SECRETS, body, cluster=cluster
            )
            return made.refusal, made.again_s
        if decided.mend_secret:
            name = worker_pods.secret_name(cluster.metadata.name)
            await object_creation.update_secret(
                self._client, name, decided.mend_secret, cluster=cluster
            )
        wait_s = None
        for body in decided.create:
            made = await object_creation.create(
                self._client, api_resources.PODS, body, cluster=cluster
            )
            wait_s = made.again_s if made.again_s is not None else wait_s
            if made.refusal is not None:
                return made.refusal, wait_s  # the others would be refused, too
            if made.body is not None:
                pod_made = msgspec.convert(made.body, pod.Pod, strict=False)
                self._expected.add(cluster.metadata.uid, pod_made)
        return None, wait_s

    async def _try_out(
        self, key: Key, cluster: task_cluster.TaskCluster, trial: meta.JsonObject
    ) -> tuple[status.CreationRefusal | None, float]:
        """Check by a dry run that Pods of a new template can be created, before workers are
        replaced.
        """
        refusal = await object_creation.dry_run(self._client, trial, cluster=cluster)
        if refusal is not None:
            return refusal, object_creation.LATER_S
        self._accepted[key] = worker_pods.digest_of(trial)
        return None, 0.0

    def _refused(
        self, key: Key, cluster: task_cluster.TaskCluster, refusal: status.CreationRefusal | None
    ) -> None:
        if refusal is None:
            self._refusals.pop(key, None)
            return
        self._refusals[key] = refusal
        if refusal.reason is reasons.ClusterReason.NAMESPACE_ENDING:
            return  # a kube event could not be created either
        self._emit_event(cluster, str(refusal.reason), refusal.message)

    def _emit_event(self, cluster: task_cluster.TaskCluster, reason: str, message: str) -> None:
        about = events.reference(kinds.TASK_CLUSTERS, cluster)
        self._emit(about, "Warning", reason, message)

    async def _update_status(
        self, key: Key, facts: plan.Facts, wanted: task_cluster.TaskClusterStatus
    ) -> float | None:
        if facts.cluster is None:
            return None
        now = self._clock.monotonic()
        wait_s = status.wait_s(
            facts.cluster.status, wanted, written=self._written.get(key), now=now
        )
        if wait_s is None or wait_s > 0:
            return wait_s
        try:
            await self._writer.write(facts.cluster, wanted)
        except errors.NotFound:
            return None
        self._written[key] = now
        return None

    def _dispatcher(self) -> ports.ClusterHub:
        if self._hub is None:
            raise errors.NotSynced("the dispatcher is not there yet")
        return self._hub


def _pod_name(seen: pod.Pod) -> str:
    return seen.metadata.name
