"""Attempts that wait for other tasks: they free their slots, and may run these tasks in place.

Does no I/O. Used by `machine` and `dependencies`. A wait *in place* runs the awaited tasks on top
of the waiting task, in the same slot, one at a time; so a chain of waits needs no other process.
For this, awaited tasks (and the tasks that these need or have delegated to) may leave the queue of
the same cluster out of turn.
"""

from collections.abc import Iterable

from kilnwork.api import reasons
from kilnwork.dispatch.machine import (
    assignment,
    inputs,
    memory,
    records,
    slot_occupancy,
    task_ends,
    task_starts,
)
from kilnwork.kit import ids

_R = reasons.Reason

UNKNOWN = 1 << 40
"""Stands for the number of tasks that must end before a wait is over, where it is not known."""


def begin(mem: memory.Memory, item: inputs.Waiting, now: inputs.Moment) -> None:
    """Free the slot of an attempt that waits for other tasks."""
    slot = mem.slot_links.get(item.link)
    task = None if slot is None else slot.held.get(item.ref.task)
    if slot is None or task is None or task.ref != item.ref:
        return
    # An attempt that waits has begun, though slots report the start of long calls only.
    task_starts.start(mem, task, now, at=now.wall)
    wait = _wait_of(mem, slot, task)
    # Any other wait may end otherwise: by a thread or coroutine, or with the first of several
    # tasks.
    only_these = item.in_place and not item.more and (not item.first or len(item.tasks) == 1)
    wait.all_of = item.tasks if only_these else ()
    # `alone`: a task on top of an earlier attempt of it may have ended its process.
    if item.in_place and not task.alone:
        names = dict.fromkeys(item.tasks)
        _want(mem, wait, names)
        awaited = [name for name in names if name in wait.wants]
        wait.wants.update(dict.fromkeys(awaited, True))
        ended = len(names) - len(awaited)
        wait.left = UNKNOWN if item.more else (1 if item.first else len(names)) - ended
    slot_occupancy.update(mem, slot)
    _refuse_circle(mem, task, wait, now)


def _refuse_circle(
    mem: memory.Memory, task: records.Task, wait: records.Wait, now: inputs.Moment
) -> None:
    """End a task that waits for a task which in turn waits for it."""
    name = find_cycle(mem, task, wait.all_of)
    if name is None:
        return
    message = f"it waits for {ids.task_text(name)}, which waits for its outcome"
    if name == task.id:
        message = "it waits for itself"
    task_ends.stop(
        mem, task, now, intent=records.Intent.DEADLOCK, reason=_R.DEADLOCK, message=message
    )


def _wait_of(mem: memory.Memory, slot: records.Slot, task: records.Task) -> records.Wait:
    """Return the wait of a task: a new wait on top of the stack, or its existing wait.

    The existing wait is for other tasks now.
    """
    if task.waiting:
        for wait in reversed(slot.stack):
            if wait.task is task:
                slot_occupancy.stop_wanting(mem, wait)
                return wait
    task.waiting = True
    wait = records.Wait(task)
    slot.stack.append(wait)
    return wait


def end(mem: memory.Memory, item: inputs.Resumed) -> None:
    """Let an attempt resume; it then occupies its slot again.

    For a while the worker may then have one occupied slot too many.
    """
    slot = mem.slot_links.get(item.link)
    task = None if slot is None else slot.held.get(item.ref.task)
    if slot is None or task is None or task.ref != item.ref or not task.waiting:
        return
    task.waiting = False
    slot_occupancy.unstack(mem, slot, task)
    slot_occupancy.update(mem, slot)


def _want(mem: memory.Memory, wait: records.Wait, tasks: Iterable[ids.TaskId]) -> None:
    """Register the tasks that may run in place for a wait: `tasks`, those they need, their
    delegates.
    """
    front = list(tasks)
    for name in front:  # the list grows in this loop
        task = mem.tasks.get(name)
        if name in wait.wants or task is None or task.state.final:
            continue
        wait.wants[name] = False
        mem.waits_by_task.setdefault(name, []).append(wait)
        # Otherwise `task_starts.enqueue` offers it when it is queued.
        if task.ticket is not None:
            wait.ready[name] = task
        elif task.unmet:
            front += task.needs
        elif task.delegate is not None:
            front.append(task.delegate)


def follow(mem: memory.Memory, task: records.Task, target: ids.TaskId) -> None:
    """Let waits for `task` also wait for `target`, to which it has delegated."""
    for wait in list(mem.waits_by_task.get(task.id, ())):
        _want(mem, wait, (target,))
        if wait.ready and wait.task.slot is not None:
            mem.waiting_slots[wait.task.slot] = None


def serve(mem: memory.Memory, now: inputs.Moment) -> None:
    """Give each slot that waits in place and runs nothing a task that it waits for."""
    for slot in list(mem.waiting_slots):
        if mem.closing or not _serve(mem, slot, now):
            del mem.waiting_slots[slot]


def _serve(mem: memory.Memory, slot: records.Slot, now: inputs.Moment) -> bool:
    """Give one slot that waits in place a task that it waits for.

    Returns True if there is such a task but no free capacity yet.
    """
    worker = slot.worker
    # Only the top of a stack can go on, and only if no task runs on it.
    if slot.occupied or slot.leaving or not slot.link or not slot.stack or not worker.connected:
        return False
    wait = slot.stack[-1]
    while wait.ready:
        name = next(iter(wait.ready))
        task = wait.ready[name]
        # It may have left the queue since it was offered.
        if task.ticket is not None and _fits(wait.task, task):
            break
        del wait.ready[name]
    else:
        return False
    # It stays among `waiting_slots`, and is checked again with the next batch.
    if worker.busy >= worker.slots:
        return True
    del wait.ready[name]
    # Out of turn: an attempt that waits for it holds a process until it ends.
    task.cluster.queue.remove(task)
    task.in_place = True
    assignment.reserve(mem, task, slot, now)
    return False


def _fits(below: records.Task, above: records.Task) -> bool:
    """Return whether two calls may share a process: same cluster, files and environment."""
    lower, upper = below.template, above.template
    if lower is None or upper is None or lower.cluster is not upper.cluster:
        return False
    if lower is upper:
        return True
    one, other = lower.spec, upper.spec
    if one.call is None or other.call is None:
        return False
    return one.call.environment == other.call.environment and one.env == other.env


def find_cycle(
    mem: memory.Memory, task: records.Task, names: Iterable[ids.TaskId]
) -> ids.TaskId | None:
    """Return the first of `names` that cannot end before `task` does, or None.

    Follows inputs, delegations, and waits that can end in no other way: waits of a whole task,
    without a time limit, for all of its tasks. Waits in threads or coroutines may end otherwise.
    """
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
    """Return the tasks that must all end before this task does."""
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
