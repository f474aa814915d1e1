"""Pods that were made count until the cache has them."""

import pytest

from kilnwork.api import meta, pod
from kilnwork.controllers.task_cluster import object_creation
from kilnwork.kit import clock


def a_pod(name: str) -> pod.Pod:
    return pod.Pod(metadata=meta.ObjectMeta(name=name, uid=f"u-{name}"))


@pytest.fixture
def time() -> clock.ManualClock:
    return clock.ManualClock()


@pytest.fixture
def expected(time: clock.ManualClock) -> object_creation.ExpectedPods:
    made = object_creation.ExpectedPods(time)
    made.add("owner", a_pod("c-0"))
    return made


def names(expected: object_creation.ExpectedPods, *known: str, owner: str = "owner") -> list[str]:
    found = expected.and_known(owner, [a_pod(name) for name in known])
    return [one.metadata.name for one in found]


def test_created_pod_counts_before_the_cache_has_it(expected: object_creation.ExpectedPods) -> None:
    assert names(expected, "c-1") == ["c-1", "c-0"]
    assert names(expected, "c-0") == ["c-0"]


def test_pods_of_another_owner_do_not_count(expected: object_creation.ExpectedPods) -> None:
    assert names(expected, owner="other") == []


def test_a_pod_that_the_watch_delivered_is_forgotten(
    expected: object_creation.ExpectedPods,
) -> None:
    expected.heard_of("u-c-0")
    assert names(expected) == []
    expected.heard_of("u-unknown")


def test_pod_that_the_watch_never_delivers_is_forgotten(
    expected: object_creation.ExpectedPods, time: clock.ManualClock
) -> None:
    time.advance(object_creation.PATIENCE_S - 1)
    assert names(expected) == ["c-0"]
    time.advance(1)
    assert names(expected) == []
