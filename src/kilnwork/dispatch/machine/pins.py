"""What a prune must leave: tasks that unfinished ones need, also those that came meanwhile. Pure.

A prune goes on for minutes, a batch at a time, while tasks are submitted. `hub.retention` collects
pins for as long as one takes, and retires what it is about to delete. `dependencies`, `submissions`
and `reruns` pin what they begin to need, and need nothing that is retiring. Both happen on one
loop, so that a task that is over is either pinned or retiring, and nothing misses a result that it
was accepted with, not even after a restart, which reads it again.
"""

import contextlib
from collections.abc import Iterable, Iterator

from kilnwork.kit import ids


class Pins:
    """The pins of all prunes that are under way, and the tasks that they are about to delete."""

    def __init__(self) -> None:
        self._collecting: list[set[ids.TaskId]] = []
        self._retiring: set[ids.TaskId] = set()

    def pin(self, tasks: Iterable[ids.TaskId]) -> None:
        """Keep these, whose results or children something needs from now on."""
        for pinned in self._collecting:
            pinned.update(tasks)

    def is_retiring(self, task: ids.TaskId) -> bool:
        """Return whether the task is about to be deleted: nothing may need it any more."""
        return task in self._retiring

    @contextlib.contextmanager
    def collect(self, needed: Iterable[ids.TaskId]) -> Iterator[set[ids.TaskId]]:
        """Give the set of `needed` and of all that is pinned until the context ends."""
        pinned = set(needed)
        self._collecting.append(pinned)
        try:
            yield pinned
        finally:
            # by identity: two prunes may have equal sets
            self._collecting = [other for other in self._collecting if other is not pinned]

    @contextlib.contextmanager
    def retire(self, tasks: Iterable[ids.TaskId]) -> Iterator[None]:
        """Mark tasks that are about to be deleted, until that is on disk or has failed."""
        retiring = set(tasks) - self._retiring  # another prune may have some of them
        self._retiring |= retiring
        try:
            yield
        finally:
            self._retiring -= retiring
