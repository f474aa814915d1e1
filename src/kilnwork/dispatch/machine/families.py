"""Families: the children of one run of a task, and how a task becomes one of them. Pure.

Used by `children`, `submissions` and `reruns`, which decide who is one, and by `restore`.
"""

from kilnwork.api import attempts
from kilnwork.dispatch.machine import records


def of_run(parent: records.Task) -> records.Family:
    """The children of this run of `parent`."""
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
