"""When a TaskCluster has the finalizer, and how long it may drain."""

import pytest

from kilnwork.api import meta, task_cluster
from kilnwork.controllers.task_cluster import deletion
from kilnwork.dispatch import model
from kilnwork.kit import clock

NOW = 1_800_000_000.0


def cluster(
    *, held: bool = False, drain: int = 300, deleted: bool = False
) -> task_cluster.TaskCluster:
    return task_cluster.TaskCluster(
        metadata=meta.ObjectMeta(
            name="c",
            finalizers=(deletion.FINALIZER,) if held else (),
            deletion_timestamp=clock.rfc3339(NOW) if deleted else None,
        ),
        spec=task_cluster.TaskClusterSpec(drain_seconds=drain),
    )


def view(*, queued: int = 0, holding: int = 0) -> model.ClusterView:
    worker = model.WorkerView(
        name="w", pod_uid="u", node="n", slots=2, busy=0, ready=True, holding=holding
    )
    return model.ClusterView(
        namespace="n", cluster="c", workers=(worker,), queued=queued, draining=frozenset()
    )


def test_waiting_and_running_tasks_are_work() -> None:
    assert not deletion.works(None)
    assert not deletion.works(view())
    assert deletion.works(view(queued=1))
    assert deletion.works(view(holding=1))


@pytest.mark.parametrize(
    ("given", "queued", "idle_s", "found"),
    [
        (cluster(), 1, 0, (True, None)),
        (cluster(held=True), 1, 0, (None, None)),
        (cluster(), 0, 0, (None, None)),
        (cluster(held=True), 0, 20, (None, 40.0)),
        (cluster(held=True), 0, 60, (False, None)),
        (cluster(held=True, drain=0), 0, 0, (False, None)),
        (cluster(drain=0), 1, 0, (None, None)),
    ],
)
def test_finalizer_is_set_with_work_and_removed_when_idle(
    given: task_cluster.TaskCluster,
    queued: int,
    idle_s: float,
    found: tuple[bool | None, float | None],
) -> None:
    decided = deletion.finalizer(given, view(queued=queued), worked=NOW - idle_s, now=NOW)
    assert decided == found


@pytest.mark.parametrize(
    ("given", "left_s"),
    [
        (cluster(held=True, deleted=True), 200.0),
        (cluster(held=True, deleted=True, drain=50), 0.0),
        (cluster(deleted=True), 0.0),
        (cluster(held=True), 0.0),
    ],
)
def test_remaining_seconds_of_a_deleted_cluster(
    given: task_cluster.TaskCluster, left_s: float
) -> None:
    assert deletion.left_s(given, now=NOW + 100) == left_s


@pytest.mark.parametrize(("holding", "text"), [(1, "1 task ends"), (2, "2 tasks end")])
def test_drain_message_describes_remaining_tasks(holding: int, text: str) -> None:
    found = deletion.why(cluster(), view(holding=holding), until=NOW)
    assert text in found.message
    assert clock.rfc3339(NOW) in found.message
