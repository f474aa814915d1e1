"""Circles of tasks that wait for one another, which would do so for ever. Pure.

Used by `waits` and `dependencies` when a task begins to wait for another one. Found are those that
go through inputs, delegations, and waits that end in no other way: of a whole task, without a time
limit, for all that it names. What waits in threads or coroutines may go on for another reason.
"""

from collections.abc import Iterable

from kilnwork.dispatch.machine import memory, records
from kilnwork.kit import ids


def closing(
    mem: memory.Memory, task: records.Task, names: Iterable[ids.TaskId]
) -> ids.TaskId | None:
    """The first of `names` that cannot end before `task` does, or None."""
    seen = set[ids.TaskId]()
    for name in names:
        front = [name]
        while front:
            step = mem.tasks.get(front.pop())
            if step is task:
                return name
            if step is not None and step.id not in seen:
                seen.add(step.id)
                front += _awaited(step)
    return None


def _awaited(task: records.Task) -> Iterable[ids.TaskId]:
    """All of these must end before it does."""
    if task.state.final or task.intent is not records.Intent.NONE:
        return ()
    if task.delegate is not None:
        return (task.delegate,)
    if task.unmet:
        return task.needs
    if task.waiting and task.slot is not None:
        for wait in reversed(task.slot.stack):
            if wait.task is task:
                return wait.all_of
    return ()
