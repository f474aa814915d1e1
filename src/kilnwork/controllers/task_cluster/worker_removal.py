"""The choice of the workers of a TaskCluster to remove, and of the Pods to delete now.

No I/O. Used by `plan`. A worker to be removed is drained: it finishes its tasks and gets no new
ones. Its Pod is deleted when the dispatcher reports that it is drained and holds no tasks, so that
no task is lost. Workers of an older template are removed within the bounds of `spec.strategy`,
however busy they are: otherwise the outdated workers of a cluster with a full queue would stay for
ever.
"""

import msgspec

from kilnwork.api import pod, rollouts, task_cluster
from kilnwork.controllers import worker_pods
from kilnwork.dispatch import model

FEWER = "the TaskCluster asks for fewer workers"
OUTDATED = "it was made from an older template"
USED_UP = "it has had as many ephemeral containers as a Pod should have"


class RemovalChoice(msgspec.Struct, frozen=True):
    """The chosen workers to remove."""

    pods: tuple[pod.Pod, ...] = ()
    """Pods whose workers must be drained."""
    why: str = ""
    """Why these workers are removed."""
    draining: frozenset[str] = frozenset()
    """Uids of Pods whose workers stay drained until they are gone."""
    empty: tuple[pod.Pod, ...] = ()
    """The Pods of `pods` that may be deleted now."""
    missing: int = 0
    """Number of Pods to create."""


class _Facts:
    """The facts on which the choice depends, by Pod."""

    def __init__(
        self, cluster: task_cluster.TaskCluster, view: model.ClusterView | None, digest: str
    ) -> None:
        workers = view.workers if view else ()
        self.draining = view.draining if view else frozenset[str]()
        self._waiting = {w.pod_uid for w in workers if w.holding and not w.busy}
        self._holding = {w.pod_uid: w.holding for w in workers}
        self._ready = {w.pod_uid for w in workers if w.ready}
        self._serving = {w.pod_uid for w in workers if w.serving}
        self._cluster = cluster
        self._digest = digest

    def holding(self, seen: pod.Pod) -> int:
        """Return the number of attempts that would be lost with the worker of a Pod."""
        return self._holding.get(seen.metadata.uid, 0)

    def ready(self, seen: pod.Pod) -> bool:
        """Return whether the worker is connected and gets tasks."""
        return seen.metadata.uid in self._ready

    def serving(self, seen: pod.Pod) -> bool:
        """Return whether the worker gets tasks, or would get tasks if it were not drained."""
        return seen.metadata.uid in self._serving

    def waiting(self, seen: pod.Pod) -> bool:
        """Return whether all attempts of the worker wait for other tasks, which need a slot
        somewhere."""
        return seen.metadata.uid in self._waiting

    def outdated(self, seen: pod.Pod) -> bool:
        """Return whether the Pod was created from an older template."""
        return is_outdated(self._cluster, seen, self._digest)

    def rank(self, seen: pod.Pod) -> tuple[object, ...]:
        """Return the sort key of a Pod for removal.

        First come workers without tasks, then drained, unconnected and outdated ones, those with
        the fewest tasks, the youngest.
        """
        holding = self.holding(seen)
        return (
            holding > 0,
            seen.metadata.uid not in self.draining,
            self.ready(seen),
            not self.outdated(seen),
            holding,
            -worker_pods.ordinal(seen.metadata.name),
            seen.metadata.name,
        )


def is_outdated(cluster: task_cluster.TaskCluster, seen: pod.Pod, digest: str) -> bool:
    """Return whether a Pod was created from another template than the current one. `digest`: digest
    of the current template."""
    made_from = seen.metadata.annotations.get(worker_pods.TEMPLATE_ANNOTATION)
    return made_from != digest or not worker_pods.is_named_for(cluster, seen.metadata.name)


def choose(
    cluster: task_cluster.TaskCluster,
    pods: tuple[pod.Pod, ...],
    *,
    view: model.ClusterView | None,
    digest: str,
    replaceable: bool,
    used_up: frozenset[str] = frozenset(),
) -> RemovalChoice:
    """Choose the workers to remove: surplus workers, otherwise some outdated ones; and all whose
    Pods are used up.

    `digest`: digest of the template for new Pods. `replaceable`: whether new Pods can be created.
    `used_up`: uids of Pods that can take no more containers and are replaced immediately.
    """
    facts = _Facts(cluster, view, digest)
    existing = [p for p in pods if not p.terminating and not p.is_finished]
    used_up_pods = [p for p in existing if p.metadata.uid in used_up]
    staying = [p for p in existing if p.metadata.uid not in used_up]
    replicas = cluster.spec.replicas
    outdated = [p for p in staying if facts.outdated(p)] if replaceable else []
    spare = _max_surplus(cluster, outdated, facts)
    surplus = len(staying) - replicas - spare
    if surplus > 0:
        chosen, why = sorted(staying, key=facts.rank)[:surplus], FEWER
    elif outdated:
        chosen, why = _choose_outdated(cluster, staying, outdated, facts), OUTDATED
    else:
        chosen, why = [], ""
    if used_up_pods:
        chosen, why = [*used_up_pods, *chosen], USED_UP
    terminating = facts.draining & {p.metadata.uid for p in pods if p.terminating}
    drained = [p for p in chosen if p.metadata.uid in facts.draining]
    made = sum(not p.terminating for p in pods if p.metadata.uid not in used_up)
    current = made - len(outdated)
    return RemovalChoice(
        pods=tuple(chosen),
        why=why,
        draining=terminating | {p.metadata.uid for p in chosen},
        empty=tuple(p for p in drained if not facts.holding(p)),
        missing=max(0, min(replicas - current, replicas + spare - made)),
    )


def _max_surplus(cluster: task_cluster.TaskCluster, outdated: list[pod.Pod], facts: _Facts) -> int:
    """Return how many surplus workers may exist while some are outdated.

    At least one if all may drain at once and hold attempts, which may wait for tasks that only
    another worker can take.
    """
    if not outdated:
        return 0
    unavailable, surge = rollouts.bounds(cluster.spec)
    alone = unavailable >= cluster.spec.replicas and any(map(facts.holding, outdated))
    return max(surge, 1) if alone else surge


def _choose_outdated(
    cluster: task_cluster.TaskCluster,
    staying: list[pod.Pod],
    outdated: list[pod.Pod],
    facts: _Facts,
) -> list[pod.Pod]:
    """Choose as many outdated workers as `maxUnavailable` allows, counting all workers that are not
    connected.

    So a template with which no worker can start ends only that many workers, instead of one after
    the other. Unready ones come first, as in a Deployment. A worker that has not reconnected since
    a restart keeps its tasks.
    """
    least = cluster.spec.replicas - rollouts.bounds(cluster.spec).unavailable
    starting = sum(not facts.serving(p) for p in staying if not facts.outdated(p))
    serving = [p for p in staying if facts.serving(p)]
    may_go = len(staying) - least - starting
    idle = [p for p in outdated if not facts.serving(p) and not facts.holding(p)]
    unhealthy = sorted(idle, key=facts.rank)[: max(0, may_go)]
    others = any(not facts.outdated(p) for p in serving)
    healthy = [p for p in outdated if facts.serving(p) and (others or not facts.waiting(p))]
    count = min(may_go - len(unhealthy), len(serving) - least)
    return unhealthy + sorted(healthy, key=facts.rank)[: max(0, count)]
