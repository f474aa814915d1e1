"""Bounds of a rollout: how many workers of a TaskCluster are replaced at the same time.

No I/O. Used by validation and by the TaskCluster controller. The arithmetic is that of Deployments
(kubernetes pkg/controller/deployment/util, ResolveFenceposts).
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from kilnwork.api import task_cluster

_PERCENT = re.compile(r"([0-9]{1,3})%")
_AT = "spec.strategy.rollingUpdate"
MAX_WORKERS = 1000
MAX_PERCENT = 100


class Bounds(NamedTuple):
    """How many workers may be missing or draining, and how many may exist above `replicas`."""

    unavailable: int
    surge: int


def bounds(spec: task_cluster.TaskClusterSpec) -> Bounds:
    """Return the bounds of a valid spec; at least one of them is positive if there are workers."""
    update = _update(spec)
    surge = _share(update.max_surge, spec.replicas, up=True)
    unavailable = min(_share(update.max_unavailable, spec.replicas, up=False), spec.replicas)
    if not surge and not unavailable:
        unavailable = min(1, spec.replicas)
    return Bounds(unavailable, surge)


def problems(spec: task_cluster.TaskClusterSpec) -> Iterator[tuple[str, str]]:
    """Yield the problems of the bounds, by field."""
    update = _update(spec)
    for name, value in (
        ("maxUnavailable", update.max_unavailable),
        ("maxSurge", update.max_surge),
    ):
        if not _is_share(value):
            why = f"must be a number from 0 to {MAX_WORKERS} or a percentage from 0% to 100%"
            yield f"{_AT}.{name}", f"{why}, not {value!r}"


def _update(spec: task_cluster.TaskClusterSpec) -> task_cluster.RollingUpdate:
    given = spec.strategy.rolling_update if spec.strategy is not None else None
    return given or task_cluster.RollingUpdate()


def _is_share(value: Any) -> bool:
    if isinstance(value, str):
        found = _PERCENT.fullmatch(value)
        return found is not None and int(found[1]) <= MAX_PERCENT
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_WORKERS


def _share(value: Any, total: int, *, up: bool) -> int:
    """Return the number of workers for a valid share, which is a number or a percentage of `total`.
    `up`: whether a percentage is rounded up, not down.
    """
    if isinstance(value, int):
        return value
    hundredths = int(value.removesuffix("%")) * total
    return -(-hundredths // 100) if up else hundredths // 100
