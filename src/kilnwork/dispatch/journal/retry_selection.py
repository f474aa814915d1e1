"""Decides which tasks run again when a failed task is retried, and in what order.

Does no I/O but through the readers that it is given. Used by `hub.retry_requests`. Tasks are
connected if one takes the result of the other, has delegated to it, or has spawned it. All failed
tasks that are connected with the retried task, through failed tasks, run again; successes are
reused. A failed child runs again when the new run of its parent requests it, with the arguments of
that request. A child runs before such a request only if it is the retried task, or if a task that
is neither its parent nor its sibling needs it.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch.journal import port, restore, task_rows
from kilnwork.dispatch.machine import inputs
from kilnwork.kit import ids

RowOf = Callable[[ids.TaskId], task_rows.TaskRow | None]
"""Returns the row of the newest run of a task."""

Rows = dict[ids.TaskId, task_rows.TaskRow]


class Plan(msgspec.Struct, frozen=True):
    """The tasks that are retried together.

    `rows`: the runs to be followed by new runs, each after its parent and after the tasks that it
    needs. `declared`: the Task objects, whose `spec.run` must be raised. `left`: how many failed
    children of all these tasks wait for their parents to request them.
    """

    rows: tuple[task_rows.TaskRow, ...]
    declared: tuple[task_rows.TaskRow, ...]
    left: int


def has_failed(row: task_rows.TaskRow) -> bool:
    """Return whether a run has ended without success."""
    return api_task.State(row.state).final and row.state != api_task.State.SUCCESS


def dependents_of(
    needs: Iterable[tuple[ids.TaskId, tuple[ids.TaskId, ...]]],
) -> dict[ids.TaskId, list[ids.TaskId]]:
    """Return, for each needed task, the tasks that need it.

    `needs`: tasks, each with the tasks that it needs.
    """
    found: dict[ids.TaskId, list[ids.TaskId]] = {}
    for task, needed in needs:
        for one in needed:
            found.setdefault(one, []).append(task)
    return found


def plan(
    start: task_rows.TaskRow,
    row_of: RowOf,
    dependents: Mapping[ids.TaskId, list[ids.TaskId]],
) -> Plan:
    """Return the plan of the tasks that run again when the failed task `start` is retried."""
    # Each row is read from several places; a cache is faster, and gives all of them the same row.
    row_of = functools.cache(row_of)
    failed = _connected(start, row_of, dependents)
    now = _without_waiting(start, failed)
    return Plan(
        tuple(row for row in _ordered(now, failed) if not row.declared),
        tuple(row for row in failed.values() if row.declared),
        sum(1 for task in failed if task not in now and not failed[task].declared),
    )


def reruns(plan: Plan, reader: port.TaskReader) -> list[inputs.Rerun]:
    """Return the inputs for the new runs of a plan, each with the children that the run continues
    with.
    """
    rows = {row.task: row for row in plan.rows}
    again = []
    for row in plan.rows:
        values = reader.values(row.namespace, row.needed)
        family = None
        if row.parent is not None and parent_in(row, rows):
            # Attempt 0: no attempt of the new run has requested the child yet.
            family = attempts.AttemptRef(row.parent, rows[row.parent].run + 1, 0)
        again.append(restore.rerun(row, values, earlier=reader.earlier(row), family=family))
    return again


def _connected(
    start: task_rows.TaskRow,
    row_of: RowOf,
    dependents: Mapping[ids.TaskId, list[ids.TaskId]],
) -> Rows:
    """Return all failed tasks that are connected with `start` through failed tasks.

    Follows parents and dependents as far as possible. Of the children of a task, follows only those
    that it needs, since children are requested by their parents.
    """
    failed: Rows = {start.task: start}
    front = [start]
    while front:
        row = front.pop()
        around = [*_needed(row), *dependents.get(row.task, ())]
        if row.parent is not None and _has_spawned(row_of(row.parent), row):
            around.append(row.parent)
        for task in around:
            found = None if task in failed else row_of(task)
            # Ids of another namespace are unknown here, as they are to the tasks themselves.
            if found is not None and has_failed(found) and found.namespace == row.namespace:
                failed[task] = found
                front.append(found)
    return failed


def _has_spawned(parent: task_rows.TaskRow | None, child: task_rows.TaskRow) -> bool:
    """Return whether the run in row `parent`, not an earlier run of that task, has spawned the
    child.
    """
    return parent is not None and parent.run == child.parent_run


def _needed(row: task_rows.TaskRow) -> Iterator[ids.TaskId]:
    yield from row.needed
    if row.delegate is not None:
        yield row.delegate


def _parent(row: task_rows.TaskRow) -> Iterator[ids.TaskId]:
    if row.parent is not None:
        yield row.parent


def parent_in(row: task_rows.TaskRow, failed: Mapping[ids.TaskId, task_rows.TaskRow]) -> bool:
    """Return whether the task is a child of the newest run of a task in `failed`."""
    if row.parent is None or row.child_key is None:
        return False
    parent = failed.get(row.parent)
    return parent is not None and parent.run == row.parent_run


def _without_waiting(start: task_rows.TaskRow, failed: Rows) -> set[ids.TaskId]:
    """Return the tasks that run again without waiting for a request of their parents.

    A child of a Task object always waits: the next run of that object does not exist yet.
    """
    # The named tasks, and those that no failed parent could request.
    front = [row for row in failed.values() if row is start or not parent_in(row, failed)]
    front += [
        failed[task]
        for row in failed.values()
        for task in _needed(row)
        # Results that go to another family, which has no way to request that child.
        if task in failed and failed[task].parent not in (row.parent, row.task)
    ]
    now = set[ids.TaskId]()
    while front:
        row = front.pop()
        if row.task in now or row.declared or _below_object(row, failed):
            continue
        now.add(row.task)
        # A child that runs now must belong to a new run of its parent.
        wanted = [row.parent] if row.parent is not None and parent_in(row, failed) else []
        wanted += [task for task in _needed(row) if not _is_child(task, row, failed)]
        front += [failed[task] for task in wanted if task in failed]
    return now


def _is_child(task: ids.TaskId, row: task_rows.TaskRow, failed: Rows) -> bool:
    child = failed.get(task)
    return child is not None and child.parent == row.task and parent_in(child, failed)


def _below_object(row: task_rows.TaskRow, failed: Rows) -> bool:
    while row.parent is not None and parent_in(row, failed):
        row = failed[row.parent]
        if row.declared:
            return True
    return False


def _ordered(tasks: set[ids.TaskId], failed: Rows) -> Iterator[task_rows.TaskRow]:
    """Yield each task after its parent and after the tasks that it needs; tasks in a cycle in any
    order.
    """
    done = set[ids.TaskId]()
    for first in sorted(tasks, key=lambda task: failed[task].row):
        # An explicit stack: chains may be deeper than Python's recursion limit.
        stack: list[tuple[ids.TaskId, bool]] = [(first, False)]
        while stack:
            task, ready = stack.pop()
            if ready:
                yield failed[task]
            elif task not in done:
                # Added when it is first reached, not when it is yielded, so that a cycle ends.
                done.add(task)
                row = failed[task]
                before = [*_parent(row), *_needed(row)]
                stack.append((task, True))
                stack += [(one, False) for one in before if one in tasks and one not in done]
