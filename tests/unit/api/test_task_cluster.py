"""Fields of a TaskCluster: defaults and bounds."""

import msgspec
import pytest

from kilnwork.api import task_cluster


def test_empty_spec_has_one_worker_with_one_slot() -> None:
    spec = msgspec.convert({}, task_cluster.TaskClusterSpec)
    assert (spec.replicas, spec.slots_per_worker, spec.drain_seconds) == (1, 1, 300)
    assert (spec.runtime, spec.strategy, spec.template) == ("Auto", None, None)


def test_rolling_update_replaces_one_worker_at_a_time_by_default() -> None:
    found = task_cluster.RollingUpdate()
    assert (found.max_unavailable, found.max_surge) == (1, 0)
    assert task_cluster.Strategy().type == "RollingUpdate"


@pytest.mark.parametrize(
    ("field", "usable", "unusable"),
    [
        ("replicas", [0, 1000], [-1, 1001]),
        ("slotsPerWorker", [1, 1000], [0, 1001]),
        ("drainSeconds", [0, 86_400], [-1, 86_401]),
        ("runtime", ["Auto", "Agent", "EphemeralContainers"], ["Pod", "auto"]),
        ("strategy", [{}, {"type": "RollingUpdate"}], [{"type": "Recreate"}]),
        ("deploymentName", ["a"], ["", "a" * 254]),
        ("slots", [], [1]),
    ],
)
def test_fields_of_a_cluster_have_bounds(
    field: str, usable: list[object], unusable: list[object]
) -> None:
    for value in usable:
        msgspec.convert({field: value}, task_cluster.TaskClusterSpec)
    for value in unusable:
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({field: value}, task_cluster.TaskClusterSpec)


def test_cluster_without_spec_or_status_is_decoded() -> None:
    found = msgspec.convert({"metadata": {"name": "a"}}, task_cluster.TaskCluster)
    assert found.spec == task_cluster.TaskClusterSpec()
    assert (found.status.slots.total, found.status.queued, found.status.selector) == (0, 0, "")
