"""Selects the tasks that a prune may forget: finished, and not needed by any other task.

Does no I/O. Used by `retention`. Goes through runs by age, so that a parent comes before its
children: a tree is forgotten from its root down.
"""

from collections.abc import Container, Iterable, Mapping

from kilnwork.dispatch import model
from kilnwork.dispatch.machine import records
from kilnwork.kit import ids


class PruneSelection:
    """The tasks that one prune deletes, selected batch by batch.

    `over`: number of finished tasks in the namespace, or in all namespaces. `needed`, `unfinished`:
    tasks to keep; the caller may add to both collections between two calls of `take`.
    """

    def __init__(
        self,
        asked: model.Pruning,
        *,
        over: int,
        needed: Container[ids.TaskId],
        unfinished: Container[ids.TaskId] = (),
    ) -> None:
        self._asked = asked
        self._needed = needed
        self._unfinished = unfinished
        self._left = None if asked.keep is None else max(0, over - asked.keep)
        """Number of tasks that may still be forgotten; None: any number."""
        self._gone: set[ids.TaskId] = set()
        self._size_bytes = 0

    @property
    def chosen(self) -> model.Pruned:
        """Return the number and size of the tasks selected so far."""
        return model.Pruned(len(self._gone), self._size_bytes)

    @property
    def enough(self) -> bool:
        """Return whether no more tasks are to be selected."""
        free = self._asked.free_bytes
        return self._left == 0 or (free is not None and self._size_bytes >= free)

    def take(
        self, runs: Iterable[model.OldRun], printed: Mapping[ids.TaskId, int]
    ) -> tuple[ids.TaskId, ...]:
        """Select tasks among the next runs, and return them. `printed`: bytes of output by task."""
        found = []
        for run in runs:
            if self.enough:
                break
            if not self._may_go(run):
                continue
            # Rows are in order of creation, so its children may follow in this loop.
            self._gone.add(run.task)
            self._size_bytes += run.size_bytes + printed.get(run.task, 0)
            if self._left is not None:
                self._left -= 1
            found.append(run.task)
        return tuple(found)

    def _may_go(self, run: model.OldRun) -> bool:
        asked = self._asked
        return (
            bool(run.over)
            and run.task not in self._gone
            and (run.parent is None or run.parent in self._gone)
            and asked.namespace in (None, run.namespace)
            and (asked.keyed or not run.keyed)
            and run.task not in self._needed
            and run.task not in self._unfinished
        )


def needed_by(unfinished: Iterable[records.Task]) -> set[ids.TaskId]:
    """Return the tasks that unfinished tasks need.

    These are the tasks whose results they take or whose outcome becomes theirs, and their parents.
    """
    needed = set[ids.TaskId]()
    for task in unfinished:
        if task.needs:
            needed.update(task.needs)
        if task.delegate is not None:
            needed.add(task.delegate)
        if task.parent is not None:
            needed.add(task.parent.task)
    return needed
