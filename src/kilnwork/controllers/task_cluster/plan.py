"""The plan for one TaskCluster: the Secret and the Pods to create and to delete.

No I/O. Used by `reconciler`, which gathers `Facts` and carries out the `Plan`. A new Pod gets the
first free name, so that two passes, or two managers, create each only once. A worker to be removed
is drained first: its Pod is deleted when the dispatcher reports that it holds no tasks and will get
none.
"""

import functools
from collections.abc import Iterator, Mapping

import msgspec

from kilnwork.api import api_resources, meta, pod, task_cluster
from kilnwork.controllers import worker_pods
from kilnwork.controllers.task_cluster import deletion, status, worker_removal
from kilnwork.dispatch import model
from kilnwork.kit import clock

_GONE_GRACE_S = 0

YOUNG_S = 5.0
"""Age in seconds below which a failed Pod counts as refused by its node (OutOfcpu,
NodeAffinity). The next one would fail, too, so it is kept for this time, for users to see and
for the node to change."""

LOOK_S = 1.0
"""Seconds between checks of a draining cluster: running tasks may need another attempt, or
children."""


class Removal(msgspec.Struct, frozen=True):
    """An order to delete a Pod. `grace_s`: grace period; None keeps the Pod's own."""

    name: str
    uid: str
    grace_s: int | None
    why: str


class EndedWorker(msgspec.Struct, frozen=True):
    """A worker that has ended; `why`: the cause in one sentence, "" if nothing was wrong.

    `ended`: None if the Pod is gone or has finished. Otherwise the time at which its container
    ended (wall clock of its node), if it has not restarted yet.
    """

    pod_uid: str
    why: str
    ended: float | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All known facts about one TaskCluster."""

    cluster: task_cluster.TaskCluster | None
    pods: tuple[pod.Pod, ...] = ()
    """The Pods that the TaskCluster controls."""
    secret_uid: str = ""
    """Uid of the channel Secret that the TaskCluster controls; "" if there is none."""
    secret_ca: str = ""
    """The CA in the channel Secret; "" if there is none."""
    account_exists: bool = True
    """Whether the ServiceAccount of the Pods exists."""
    refusal: status.CreationRefusal | None = None
    """Why the last Pod or Secret was not created; None if it was."""
    view: model.ClusterView | None = None
    """The dispatcher's view of the cluster."""
    now: float = 0.0
    """Wall clock, in seconds."""
    heard: Mapping[str, float] = {}
    """When the worker of each Pod was last connected (wall clock, in seconds), by uid of the
    Pod."""
    worked: float = 0.0
    """When the cluster last had tasks (wall clock, in seconds)."""
    used_up: frozenset[str] = frozenset()
    """Uids of Pods that can take no more containers."""
    accepted: str | None = None
    """Digest of the template from which the API server would create Pods; None: no check is
    needed."""

    @property
    def draining(self) -> frozenset[str]:
        """Uids of the Pods whose workers are draining."""
        return self.view.draining if self.view else frozenset()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The actions to take for one TaskCluster; repeating them changes nothing."""

    close: bool = False
    """Whether the dispatcher must end all tasks of the cluster: it is gone, or has drained for long
    enough."""
    close_waiting: bool = False
    """Whether the cluster is being deleted, so that tasks that are not on a worker must end."""
    finalizer: bool | None = None
    """Whether to set or remove the finalizer of `deletion`; None leaves it unchanged."""
    drain: frozenset[str] | None = None
    """Uids of all Pods whose workers must be drained; None leaves them unchanged."""
    make_secret: bool = False
    mend_secret: dict[str, str] = {}
    """Entries of the channel Secret that must be changed."""
    remove: tuple[Removal, ...] = ()
    create: tuple[meta.JsonObject, ...] = ()
    trial: meta.JsonObject | None = None
    """A Pod of a new template, to check whether the API server would create it."""
    missing: tuple[model.WorkerView, ...] = ()
    """Workers whose Pods are unknown; the API server is asked before they are reported as gone."""
    gone: tuple[EndedWorker, ...] = ()
    """Workers that have ended although their Pods exist."""
    again_s: float | None = None
    """Seconds until the next pass, even without a change."""
    status: task_cluster.TaskClusterStatus | None = None


def decide(facts: Facts, settings: worker_pods.WorkerPodSettings) -> Plan:
    cluster = facts.cluster
    if cluster is None:
        return Plan(close=True, missing=_workers_without_pod(facts))
    if cluster.metadata.deletion_timestamp is not None:
        return _plan_deletion(facts, cluster)
    problem = worker_pods.template_problem(cluster)
    made_from = None
    if facts.secret_uid and not problem:
        made_from = worker_pods.template(cluster, settings, secret_uid=facts.secret_uid)
    base = _base_plan(facts, cluster, made_from, problem=problem)
    if problem:
        return base  # the Pods of the previous spec continue
    if made_from is None:
        return msgspec.structs.replace(base, make_secret=True)
    ca = worker_pods.ca_data(settings.ca)
    mend = {} if facts.secret_ca == ca.get(worker_pods.CA_KEY, facts.secret_ca) else ca
    digest = worker_pods.digest_of(made_from)
    choose = functools.partial(
        worker_removal.choose,
        cluster,
        facts.pods,
        view=facts.view,
        digest=digest,
        used_up=facts.used_up,
    )
    accepted = facts.accepted in (None, digest)
    leaving = choose(replaceable=facts.account_exists and accepted)
    tried = facts.account_exists and not accepted and choose(replaceable=True) != leaving
    return msgspec.structs.replace(
        base,
        trial=_trial_pod(facts, cluster, made_from) if tried else None,
        drain=leaving.draining,
        create=_new_pods(facts, cluster, made_from, count=leaving.missing),
        remove=(*_ended_pods(facts), *(_removal(p, leaving.why) for p in leaving.empty)),
        mend_secret=mend,
    )


def _base_plan(
    facts: Facts,
    cluster: task_cluster.TaskCluster,
    made_from: meta.JsonObject | None,
    *,
    problem: str,
) -> Plan:
    """Return the part of the plan that is valid for an unusable Pod template, too: the status, the
    finalizer, and the workers that have ended. `made_from`: the manifest of new Pods; None if the
    template is unusable or there is no Secret yet.
    """
    outdated = frozenset[str]()
    if made_from is not None:
        digest = worker_pods.digest_of(made_from)
        found = (p for p in facts.pods if worker_removal.is_outdated(cluster, p, digest))
        outdated = frozenset(p.metadata.uid for p in found)
    shown = status.make(
        cluster,
        status.ObservedWorkers(facts.pods, facts.view, facts.heard, outdated),
        account_exists=facts.account_exists,
        refusal=status.CreationRefusal(status.Reason.INVALID_SPEC, problem)
        if problem
        else facts.refusal,
        now=facts.now,
    )
    finalizer, idle_s = deletion.finalizer_change(
        cluster, facts.view, worked=facts.worked, now=facts.now
    )
    return Plan(
        finalizer=finalizer,
        status=shown,
        missing=_workers_without_pod(facts),
        gone=_gone_workers(facts),
        again_s=min((s for s in (_again_s(facts), idle_s) if s is not None), default=None),
    )


def _plan_deletion(facts: Facts, cluster: task_cluster.TaskCluster) -> Plan:
    """Plan for a deleted cluster: running tasks may finish and nothing new starts. Without the
    finalizer everything ends now.
    """
    left_s = deletion.remaining_s(cluster, now=facts.now)
    if facts.view is None or left_s <= 0 or not any(w.holding for w in facts.view.workers):
        finalizer = False if deletion.has_finalizer(cluster) else None
        return Plan(
            close=True,
            finalizer=finalizer,
            missing=_workers_without_pod(facts),
            gone=_gone_workers(facts),
        )
    shown = status.make(
        cluster,
        status.ObservedWorkers(facts.pods, facts.view, facts.heard),
        account_exists=True,
        refusal=deletion.drain_reason(cluster, facts.view, until=facts.now + left_s),
        now=facts.now,
    )
    return Plan(
        close_waiting=True,
        drain=frozenset(p.metadata.uid for p in facts.pods),
        missing=_workers_without_pod(facts),
        gone=_gone_workers(facts),
        again_s=min(left_s, LOOK_S),
        status=shown,
    )


def _new_pods(
    facts: Facts, cluster: task_cluster.TaskCluster, made_from: meta.JsonObject, *, count: int
) -> tuple[meta.JsonObject, ...]:
    """Return the manifests of `count` new Pods, or none while the ServiceAccount is missing. A Pod
    that is being deleted keeps its name, on a lost node for long.
    """
    if not facts.account_exists:
        return ()
    taken = frozenset(p.metadata.name for p in facts.pods)
    free = worker_pods.free_names(cluster, count, taken)
    return tuple(worker_pods.with_name(made_from, name) for name in free)


def _trial_pod(
    facts: Facts, cluster: task_cluster.TaskCluster, made_from: meta.JsonObject
) -> meta.JsonObject:
    [name] = worker_pods.free_names(cluster, 1, frozenset(p.metadata.name for p in facts.pods))
    return worker_pods.with_name(made_from, name)


def service_account(cluster: task_cluster.TaskCluster) -> str:
    """Return the ServiceAccount of the cluster's Pods (`default` if none is named, as in
    Kubernetes).
    """
    return cluster.spec.service_account_name or "default"


def _ended_pods(facts: Facts) -> tuple[Removal, ...]:
    return tuple(
        _removal(p, "it has ended", grace_s=_GONE_GRACE_S)
        for p in facts.pods
        if p.is_finished and not p.terminating and _age_s(facts, p) >= YOUNG_S
    )


def _workers(facts: Facts) -> tuple[model.WorkerView, ...]:
    return facts.view.workers if facts.view else ()


def _age_s(facts: Facts, seen: pod.Pod) -> float:
    created = seen.metadata.creation_timestamp
    return facts.now - clock.parse_rfc3339(created) if created else YOUNG_S


def _again_s(facts: Facts) -> float | None:
    """Return the seconds until an ended Pod is old enough to be replaced."""
    ages = [_age_s(facts, p) for p in facts.pods if p.is_finished and not p.terminating]
    return min((YOUNG_S - age for age in ages if age < YOUNG_S), default=None)


def _removal(seen: pod.Pod, why: str, *, grace_s: int | None = None) -> Removal:
    return Removal(seen.metadata.name, seen.metadata.uid, grace_s, why)


def _workers_without_pod(facts: Facts) -> tuple[model.WorkerView, ...]:
    known = {p.metadata.uid for p in facts.pods}
    return tuple(w for w in _workers(facts) if w.pod_uid not in known)


def _gone_workers(facts: Facts) -> tuple[EndedWorker, ...]:
    """Return the workers that have ended although their Pods still exist."""
    over = {p.metadata.uid: pod.find_trouble(p) for p in facts.pods if p.is_finished}
    found = ((w.pod_uid, over[w.pod_uid]) for w in _workers(facts) if w.pod_uid in over)
    gone = (EndedWorker(uid, trouble.text if trouble else "") for uid, trouble in found)
    return (*gone, *_stopped_workers(facts))


def _stopped_workers(facts: Facts) -> Iterator[EndedWorker]:
    """Yield unconnected workers whose container is not running, since its restart may take
    minutes.
    """
    silent = {w.pod_uid for w in _workers(facts) if not w.ready}
    for seen in facts.pods:
        status = worker_pods.container_status(seen)
        ended = None if status is None or seen.is_finished else status.ended
        if seen.metadata.uid in silent and ended is not None and ended.finished_at:
            why = ended.reason or f"exit code {ended.exit_code}"
            yield EndedWorker(seen.metadata.uid, why, clock.parse_rfc3339(ended.finished_at))


def awaited_account(cluster: task_cluster.TaskCluster) -> tuple[str, str, str]:
    """Return the ServiceAccount that must exist before a Pod can be created, as (plural, namespace,
    name).
    """
    return (
        api_resources.SERVICE_ACCOUNTS.plural,
        cluster.metadata.namespace,
        service_account(cluster),
    )
