"""Bounds of a rollout: numbers and percentages, rounded as Deployments do."""

from hypothesis import given
from hypothesis import strategies as st

from kilnwork.api import rollouts, task_cluster

SHARES = st.integers(0, 1000) | st.integers(0, 100).map("{}%".format)


def _spec(unavailable: object, surge: object, replicas: int) -> task_cluster.TaskClusterSpec:
    update = task_cluster.RollingUpdate(max_unavailable=unavailable, max_surge=surge)
    return task_cluster.TaskClusterSpec(
        replicas=replicas, strategy=task_cluster.Strategy(rolling_update=update)
    )


@given(SHARES, SHARES, st.integers(0, 1000))
def test_rollout_bounds_allow_progress_and_are_not_negative(
    unavailable: object, surge: object, replicas: int
) -> None:
    spec = _spec(unavailable, surge, replicas)
    assert list(rollouts.problems(spec)) == []
    found = rollouts.bounds(spec)
    assert 0 <= found.unavailable <= replicas
    assert found.surge >= 0
    assert replicas == 0 or found.unavailable + found.surge >= 1


def test_percentages_are_rounded_as_those_of_deployments() -> None:
    assert rollouts.bounds(_spec("25%", "25%", 3)) == (0, 1)
    assert rollouts.bounds(_spec("25%", "25%", 10)) == (2, 3)
    assert rollouts.bounds(task_cluster.TaskClusterSpec(replicas=3)) == (1, 0)
