"""Pins: finished tasks that a running prune must keep, since unfinished tasks need them. No I/O.

A prune goes on for minutes, one batch at a time, while tasks are submitted. Meanwhile
`hub.retention` collects pins, and marks the tasks that it is about to delete as retiring.
`machine`, `dependencies`, `submissions` and `requested_reruns` pin the tasks that they begin to
need, and refuse to need retiring tasks. All of these run on one event loop, so a finished task is
either pinned or retiring, and no accepted task misses a result that it needs, not even after a
restart, which reads that result again.
"""

import contextlib
from collections.abc import Iterable, Iterator

from kilnwork.kit import ids


class Pins:
    """The pins of all running prunes, and the tasks that the prunes are about to delete."""

    def __init__(self) -> None:
        self._collecting: list[set[ids.TaskId]] = []
        self._retiring: set[ids.TaskId] = set()

    def pin(self, tasks: Iterable[ids.TaskId]) -> None:
        """Pin tasks whose results or children are needed from now on."""
        for pinned in self._collecting:
            pinned.update(tasks)

    def is_retiring(self, task: ids.TaskId) -> bool:
        """Return whether the task is about to be deleted, so that no other task may begin to need
        it.
        """
        return task in self._retiring

    @contextlib.contextmanager
    def collect(self, needed: Iterable[ids.TaskId]) -> Iterator[set[ids.TaskId]]:
        """Provide a set of `needed` tasks, to which all tasks pinned until the context ends are
        added.
        """
        pinned = set(needed)
        self._collecting.append(pinned)
        try:
            yield pinned
        finally:
            # Compared by identity: two prunes may have equal sets.
            self._collecting = [other for other in self._collecting if other is not pinned]

    @contextlib.contextmanager
    def retire(self, tasks: Iterable[ids.TaskId]) -> Iterator[None]:
        """Mark tasks as retiring until their deletion is on disk or has failed."""
        retiring = set(tasks) - self._retiring  # another prune may have some of them
        self._retiring |= retiring
        try:
            yield
        finally:
            self._retiring -= retiring
