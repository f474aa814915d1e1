"""The dispatcher's last published views of declared tasks, by id and by object name.

Filled from `Hub.changes` by the Task controller; lost and filled again with each start.
"""

from collections.abc import Iterable

from kilnwork.dispatch import model
from kilnwork.kit import ids

Key = tuple[str, str]


class TaskViews:
    """Register of the newest view of each declared task."""

    def __init__(self) -> None:
        self._by_id: dict[ids.TaskId, model.TaskView] = {}
        self._by_key: dict[Key, set[ids.TaskId]] = {}

    def put(self, view: model.TaskView) -> None:
        """Store a view unless a newer one is known: responses and changes may overtake each
        other.
        """
        before = self._by_id.get(view.task)
        if before is not None and (view.run, view.seq) < (before.run, before.seq):
            return
        self._by_id[view.task] = view
        self._by_key.setdefault((view.namespace, view.name), set()).add(view.task)

    def get(self, task: ids.TaskId) -> model.TaskView | None:
        return self._by_id.get(task)

    def named(self, key: Key) -> tuple[model.TaskView, ...]:
        """Return the views of all tasks that were declared under a name and are still stored."""
        return tuple(self._by_id[task] for task in sorted(self._by_key.get(key, ())))

    def keys(self) -> Iterable[Key]:
        """Return the names of all objects that have a view."""
        return self._by_key.keys()

    def drop(self, task: ids.TaskId) -> None:
        """Remove the view of a task whose object is gone and whose run has finished."""
        view = self._by_id.pop(task, None)
        if view is None:
            return
        key = (view.namespace, view.name)
        self._by_key[key].discard(task)
        if not self._by_key[key]:
            del self._by_key[key]

    def __len__(self) -> int:
        return len(self._by_id)
