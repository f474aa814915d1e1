"""Which workers of a TaskCluster are to go, and which of their Pods may be deleted now.

Pure. Used by `plan`. A worker that is to go is drained: it finishes what it has and gets nothing
new. Its Pod is deleted when the dispatcher says that it is drained and holds nothing, so that no
task is lost by it.
"""

import msgspec

from kilnwork.api import pod, task_cluster
from kilnwork.controllers import worker_pods
from kilnwork.dispatch import model

FEWER = "the TaskCluster asks for fewer workers"
OUTDATED = "it was made from an older template"
USED_UP = "it has had as many ephemeral containers as a Pod should have"


class Leaving(msgspec.Struct, frozen=True):
    """`pods`: to be drained, and why. `draining`: uids of those that stay drained until they are
    gone. `empty`: those of `pods` that may be deleted."""

    pods: tuple[pod.Pod, ...] = ()
    why: str = ""
    draining: frozenset[str] = frozenset()
    empty: tuple[pod.Pod, ...] = ()


class _Facts:
    """What the choice depends on, by Pod."""

    def __init__(
        self, cluster: task_cluster.TaskCluster, view: model.ClusterView | None, digest: str
    ) -> None:
        workers = view.workers if view else ()
        self.draining = view.draining if view else frozenset[str]()
        self._holding = {w.pod_uid: w.holding for w in workers}
        self._ready = {w.pod_uid for w in workers if w.ready}
        self._cluster = cluster
        self._digest = digest

    def holding(self, seen: pod.Pod) -> int:
        """Attempts that would be lost with its worker."""
        return self._holding.get(seen.metadata.uid, 0)

    def ready(self, seen: pod.Pod) -> bool:
        """Its worker is connected and gets tasks."""
        return seen.metadata.uid in self._ready

    def outdated(self, seen: pod.Pod) -> bool:
        """It would be made otherwise now."""
        made_from = seen.metadata.annotations.get(worker_pods.TEMPLATE_ANNOTATION)
        named = worker_pods.is_named_for(self._cluster, seen.metadata.name)
        return made_from != self._digest or not named

    def rank(self, seen: pod.Pod) -> tuple[object, ...]:
        """Who goes first: who holds nothing, who is drained already, who is not connected, who is
        outdated, who holds least, who came last."""
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


def choose(
    cluster: task_cluster.TaskCluster,
    pods: tuple[pod.Pod, ...],
    *,
    view: model.ClusterView | None,
    digest: str,
    replaceable: bool,
    used_up: frozenset[str] = frozenset(),
) -> Leaving:
    """As many as are too many; else one that is outdated; and all that are used up.

    `digest`: of the template that new Pods are made from. `replaceable`: new Pods can be made.
    `used_up`: uids of Pods that take no more, in whose place others are made at once.
    """
    facts = _Facts(cluster, view, digest)
    there = [p for p in pods if not p.terminating and not p.over]
    finished = [p for p in there if p.metadata.uid in used_up]
    staying = [p for p in there if p.metadata.uid not in used_up]
    surplus = len(staying) - cluster.spec.replicas
    if surplus > 0:
        chosen, why = sorted(staying, key=facts.rank)[:surplus], FEWER
    elif surplus == 0 and replaceable:
        chosen, why = _outdated(staying, facts), OUTDATED
    else:
        chosen, why = [], ""
    if finished:
        chosen, why = [*finished, *chosen], USED_UP
    gone = facts.draining & {p.metadata.uid for p in pods if p.terminating}
    drained = [p for p in chosen if p.metadata.uid in facts.draining]
    return Leaving(
        pods=tuple(chosen),
        why=why,
        draining=gone | {p.metadata.uid for p in chosen},
        empty=tuple(p for p in drained if not facts.holding(p)),
    )


def _outdated(staying: list[pod.Pod], facts: _Facts) -> list[pod.Pod]:
    """One that holds nothing, if all that are as they should be are connected: a template that no
    worker can start from ends one worker, and not one after the other."""
    if not all(facts.ready(p) for p in staying if not facts.outdated(p)):
        return []
    idle = [p for p in staying if facts.outdated(p) and not facts.holding(p)]
    return sorted(idle, key=facts.rank)[:1]
