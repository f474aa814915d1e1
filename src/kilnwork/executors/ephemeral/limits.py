"""The limit of ephemeral containers and of bytes, at which a worker's Pod is replaced.

No I/O. Used by `executor`, and by the controller of TaskClusters, which drains such a Pod and
replaces it. Ephemeral containers stay in the object of their Pod for ever, and each change of the
Pod carries all of them: etcd takes 1.5 MiB, and long before that every task costs more than the one
before.
"""

from kilnwork.api import pod

MAX_CONTAINERS = 64
MAX_BYTES = 192 * 1024
"""Numbers of containers and of bytes of a Pod from which its worker is drained. Tasks that were
sent before still add containers, so that the limits are well below 500 containers and 512 KiB,
which no Pod may reach. The reason for these numbers: docs/explanation/ephemeral-containers.md."""

CONTAINERS_ANNOTATION = "kilnwork.dev/max-containers"
BYTES_ANNOTATION = "kilnwork.dev/max-pod-bytes"
"""Annotations of a Pod with lower limits, set by `spec.template.metadata.annotations` of its
TaskCluster."""


def is_used_up(seen: pod.Pod, size: int) -> bool:
    """Return whether a worker's Pod must be replaced. `size`: bytes of the Pod object; 0 if
    unknown.
    """
    given = seen.metadata.annotations
    most = _limit(given.get(CONTAINERS_ANNOTATION), MAX_CONTAINERS)
    largest = _limit(given.get(BYTES_ANNOTATION), MAX_BYTES)
    return len(seen.spec.ephemeral_containers) >= most or size >= largest


def _limit(text: str | None, most: int) -> int:
    if text is None or not text.isascii() or not text.isdigit():
        return most
    return max(1, min(int(text), most))
