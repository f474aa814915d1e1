"""Which workers go: surplus ones, outdated ones within bounds, and those that are used up."""

from typing import Any

import pytest

from kilnwork.api import meta, pod, task_cluster
from kilnwork.controllers import worker_pods
from kilnwork.controllers.task_cluster import worker_removal
from kilnwork.dispatch import model

NEW = "digest-2"


def cluster(replicas: int, **update: Any) -> task_cluster.TaskCluster:
    rolling = task_cluster.RollingUpdate(**update) if update else None
    return task_cluster.TaskCluster(
        metadata=meta.ObjectMeta(name="c", namespace="n", uid="u"),
        spec=task_cluster.TaskClusterSpec(
            replicas=replicas, strategy=task_cluster.Strategy(rolling_update=rolling)
        ),
    )


def pods(count: int, *, old: str = "") -> tuple[pod.Pod, ...]:
    """`old`: ordinals of those of an older template."""
    return tuple(
        pod.Pod(
            metadata=meta.ObjectMeta(
                name=f"c-{n}",
                uid=f"u{n}",
                annotations={worker_pods.TEMPLATE_ANNOTATION: "digest-1" if str(n) in old else NEW},
            ),
            status=pod.PodStatus(phase="Running"),
        )
        for n in range(count)
    )


def view(*holding: int, draining: str = "", ready: bool = True) -> model.ClusterView:
    workers = tuple(
        model.WorkerView(
            name=f"c-{n}",
            pod_uid=f"u{n}",
            node="n",
            slots=2,
            busy=count,
            ready=ready,
            holding=count,
        )
        for n, count in enumerate(holding)
    )
    return model.ClusterView(
        namespace="n",
        cluster="c",
        workers=workers,
        queued=0,
        draining=frozenset(f"u{n}" for n in draining),
    )


def choose(of: task_cluster.TaskCluster, seen: tuple[pod.Pod, ...], **more: Any) -> Any:
    given = {"view": None, "digest": NEW, "replaceable": True, **more}
    return worker_removal.choose(of, seen, **given)


def names(found: tuple[pod.Pod, ...]) -> list[str]:
    return [one.metadata.name for one in found]


def test_idle_and_youngest_surplus_workers_are_removed() -> None:
    found = choose(cluster(2), pods(4), view=view(0, 1, 0, 2))
    assert sorted(names(found.pods)) == ["c-0", "c-2"]
    assert found.why == worker_removal.FEWER
    busy = choose(cluster(1), pods(3), view=view(2, 1, 2))
    assert sorted(names(busy.pods)) == ["c-1", "c-2"]


def test_a_pod_is_deleted_when_it_is_drained_and_holds_nothing() -> None:
    found = choose(cluster(0), pods(2), view=view(0, 1, draining="01"))
    assert names(found.empty) == ["c-0"]
    fresh = choose(cluster(0), pods(2), view=view(0, 1))
    assert fresh.empty == ()
    assert fresh.draining == {"u0", "u1"}


def test_outdated_workers_are_removed_one_after_the_other() -> None:
    found = choose(cluster(3), pods(3, old="012"), view=view(0, 0, 0))
    assert (len(found.pods), found.why) == (1, worker_removal.OUTDATED)
    two = choose(cluster(3, max_unavailable=2), pods(3, old="012"), view=view(0, 0, 0))
    assert len(two.pods) == 2


def test_outdated_workers_are_kept_while_a_new_one_starts() -> None:
    found = choose(cluster(3), pods(3, old="01"), view=view(0, 0))
    assert found.pods == ()


def test_no_worker_is_replaced_if_pods_cannot_be_created() -> None:
    assert choose(cluster(2), pods(2, old="01"), view=view(0, 0), replaceable=False).pods == ()


def test_used_up_workers_are_replaced_immediately() -> None:
    found = choose(cluster(2), pods(2), view=view(0, 0), used_up=frozenset({"u1"}))
    assert names(found.pods) == ["c-1"]
    assert (found.why, found.missing) == (worker_removal.USED_UP, 1)


@pytest.mark.parametrize(
    ("name", "digest", "outdated"),
    [("c-0", NEW, False), ("c-0", "digest-1", True), ("other-0", NEW, True)],
)
def test_pod_of_another_template_is_outdated(name: str, digest: str, *, outdated: bool) -> None:
    annotations = {worker_pods.TEMPLATE_ANNOTATION: digest}
    seen = pod.Pod(metadata=meta.ObjectMeta(name=name, annotations=annotations))
    assert worker_removal.is_outdated(cluster(1), seen, NEW) is outdated


def test_missing_workers_are_counted() -> None:
    assert choose(cluster(3), pods(1), view=view(0)).missing == 2
    assert choose(cluster(3), pods(4), view=view(0, 0, 0, 0)).missing == 0
