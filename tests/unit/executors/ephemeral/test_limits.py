"""When a worker's Pod has had enough ephemeral containers."""

from typing import Any

import msgspec
import pytest

from kilnwork.api import pod
from kilnwork.executors.ephemeral import limits


def worker(containers: int, **annotations: str) -> pod.Pod:
    given: dict[str, Any] = {
        "metadata": {
            "name": "w",
            "annotations": {
                f"kilnwork.dev/{k.replace('_', '-')}": v for k, v in annotations.items()
            },
        },
        "spec": {
            "containers": [{"name": "worker"}],
            "ephemeralContainers": [{"name": f"c{n}"} for n in range(containers)],
        },
    }
    return msgspec.convert(given, pod.Pod)


@pytest.mark.parametrize(("count", "is_used_up"), [(0, False), (63, False), (64, True)])
def test_so_many_containers_are_enough(count: int, *, is_used_up: bool) -> None:
    assert limits.is_used_up(worker(count), 0) is is_used_up


@pytest.mark.parametrize(
    ("size", "is_used_up"), [(limits.MAX_BYTES - 1, False), (limits.MAX_BYTES, True)]
)
def test_so_many_bytes_are_enough(size: int, *, is_used_up: bool) -> None:
    assert limits.is_used_up(worker(1), size) is is_used_up


def test_annotations_lower_the_limits() -> None:
    assert limits.is_used_up(worker(2, max_containers="2"), 0)
    assert not limits.is_used_up(worker(1, max_containers="2"), 0)
    assert limits.is_used_up(worker(1, max_pod_bytes="100"), 100)


@pytest.mark.parametrize("text", ["", "-1", "many", "1e3", "٣", "100000"])
def test_they_never_raise_a_limit_and_nonsense_is_ignored(text: str) -> None:
    assert not limits.is_used_up(worker(63, max_containers=text), 0)
    assert limits.is_used_up(worker(64, max_containers=text), 0)


def test_limit_of_0_containers_means_1() -> None:
    assert not limits.is_used_up(worker(0, max_containers="0"), 0)
    assert limits.is_used_up(worker(1, max_containers="0"), 0)
