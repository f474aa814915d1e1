"""Families: the children of one run of a task, and how a task becomes a member of a family.

Does no I/O. Used by `child_spawning`, `submissions` and `requested_reruns`, which decide who
belongs to a family, and by `machine` and `journal.restore`. A run may take over the children of the
previous run.
"""

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import end_notifications, inputs, memory, records


def of_run(parent: records.Task) -> records.Family:
    """Return the family of the current run of `parent`, made if new."""
    if parent.family is None:
        parent.family = records.Family(parent.id, parent.run, declared=parent.declared)
    return parent.family


def adopt(
    family: records.Family, child: records.Task, parent: attempts.AttemptRef, *, child_key: str
) -> None:
    """Make `child` a member of `family`."""
    child.child_key = child_key
    child.parent = parent
    child.siblings = family
    family.members[child_key] = child


def take_over(mem: memory.Memory, task: records.Task, earlier: inputs.Earlier | None) -> None:
    """Let the new run of a task continue with the children of an earlier run.

    The children belong to the new run from now on, and none of its attempts has requested any of
    them yet.
    """
    if earlier is None or not earlier.total:
        return
    family = of_run(task)
    family.total = earlier.total
    family.succeeded, family.failed = earlier.succeeded, earlier.failed
    # Attempt 0: lower than any real one, so that children not requested again are killed.
    requested = attempts.AttemptRef(task.id, task.run, 0)
    for name in earlier.unfinished:
        child = mem.tasks.get(name)
        if child is None or child.siblings is None or child.child_key is None:
            continue
        if child.state.final:  # its end is not on disk yet
            _count(family, child.state)
        adopt(family, child, requested, child_key=child.child_key)
    mem.batch.taken_over.append((task.id, earlier.run, task.run))


def earlier_of(task: records.Task) -> inputs.Earlier | None:
    """Return the children of a finished run in memory, with which the next run may continue, or
    None if it has none.
    """
    family = task.family
    if family is None:
        return None
    unfinished = tuple(child.id for child in family.members.values() if not child.state.final)
    return inputs.Earlier(task.run, family.total, family.succeeded, family.failed, unfinished)


def replace_failed(mem: memory.Memory, task: records.Task, family: records.Family) -> None:
    """Count `task`, a new run of a failed child of that family, in place of the failed run."""
    family.failed -= 1
    mem.batch.superseded.append((task.id, task.run))
    end_notifications.publish_parent(mem, family)


def _count(family: records.Family, state: api_task.State) -> None:
    if state is api_task.State.SUCCESS:
        family.succeeded += 1
    else:
        family.failed += 1
