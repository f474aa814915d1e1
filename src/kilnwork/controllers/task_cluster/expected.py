"""Pods that were made and that the cache has not heard of yet.

Used by `reconciler`. Without them a pass between the creation of a Pod and the news of it would
take its place for empty and, as soon as another name is free, make one more.
"""

from collections.abc import Iterable

from kilnwork.api import pod
from kilnwork.kit import clock

PATIENCE_S = 30.0
"""A Pod of which nothing is heard for so long came and went while the watch was interrupted."""


class ExpectedPods:
    """Pods by uid, until the cache has heard of them."""

    def __init__(self, time: clock.Clock) -> None:
        self._clock = time
        self._made: dict[str, tuple[str, pod.Pod, float]] = {}

    def add(self, owner_uid: str, made: pod.Pod) -> None:
        """The API server has this Pod now."""
        due = self._clock.monotonic() + PATIENCE_S
        self._made[made.metadata.uid] = (owner_uid, made, due)

    def heard_of(self, uid: str) -> None:
        self._made.pop(uid, None)

    def and_known(self, owner_uid: str, known: Iterable[pod.Pod]) -> list[pod.Pod]:
        """The Pods of one owner: those of the cache, and those that it will hear of."""
        pods = list(known)
        names = {p.metadata.name for p in pods}
        now = self._clock.monotonic()
        self._made = {uid: kept for uid, kept in self._made.items() if kept[2] > now}
        for owner, made, _ in self._made.values():
            if owner == owner_uid and made.metadata.name not in names:
                pods.append(made)
        return pods
