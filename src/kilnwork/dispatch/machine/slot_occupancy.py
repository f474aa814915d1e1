"""Keeps track of which slots of a worker are occupied. Does no I/O and decides nothing.

Used by the other parts of the machine that handle slots, such as `assignment`, `task_ends`,
`slot_lifecycle`, `workers` and `waits`. A slot is occupied while it opens, and while it has an
attempt that does not wait for other tasks, or whose wait in place has ended.
"""

from kilnwork.dispatch.machine import memory, records


def update(mem: memory.Memory, slot: records.Slot) -> None:
    """Recompute whether a slot is occupied and whether it is idle."""
    worker, waits = slot.worker, len(slot.stack)
    taken = slot.opening or len(slot.held) > waits or (waits > 0 and slot.stack[-1].left <= 0)
    if taken is not slot.occupied:
        slot.occupied = taken
        worker.occupied += 1 if taken else -1
        mem.touch(worker.cluster)
    # With a wait below, the slot can run only tasks that this wait takes in place.
    if taken or waits or slot.leaving or not slot.link:
        worker.idle.pop(slot.id, None)
    else:
        worker.idle[slot.id] = slot
        mem.starve(worker.cluster)
    # No task runs on top now: `waits.serve` looks for one that may.
    if waits and not taken:
        mem.waiting_slots[slot] = None


def add(mem: memory.Memory, worker: records.Worker, name: bytes) -> records.Slot:
    """Add a slot that has been requested and has not joined yet."""
    slot = records.Slot(name, worker)
    worker.processes[name] = mem.slots[name] = slot
    worker.cluster.openings += 1
    update(mem, slot)
    return slot


def end_opening(mem: memory.Memory, slot: records.Slot) -> None:
    """Record that a slot has joined, or never will."""
    if slot.opening:
        slot.opening = False
        slot.worker.cluster.openings -= 1
        update(mem, slot)


def remove(mem: memory.Memory, slot: records.Slot) -> None:
    """Drop a slot that has ended and holds no attempt any more."""
    end_opening(mem, slot)
    # So that `update` removes it from the idle slots.
    slot.leaving = True
    update(mem, slot)
    slot.worker.processes.pop(slot.id, None)
    mem.slots.pop(slot.id, None)
    mem.waiting_slots.pop(slot, None)
    mem.touch(slot.worker.cluster)


def release_attempt(
    mem: memory.Memory, task: records.Task, slot: records.Slot, *, proof: bool
) -> None:
    """Take the newest attempt of `task` out of `slot`.

    Without proof of its end, it counts as busy on the worker (`Worker.unproven`) until there is
    one.
    """
    if slot.held.pop(task.id, None) is None:
        return
    if task.waiting:
        task.waiting = False
        unstack(mem, slot, task)
    if proof:
        task.slot = None
    else:
        # `task.slot` stays: the end of that slot proves the unproven attempts in it
        # (`slot_lifecycle._settle`).
        slot.worker.unproven[task.ref] = task
    task.in_place = False
    update(mem, slot)
    mem.touch(slot.worker.cluster)


def reoccupy_waiting_slots(mem: memory.Memory, task: records.Task) -> None:
    """Count as occupied again the slots whose attempts waited in place for this task and resume
    now.
    """
    for wait in mem.waits_by_task.get(task.id, ()):
        # Only these tasks need the others of `wants`, whose ends do not let the attempt go on.
        if wait.wants[task.id]:
            wait.left -= 1
            if wait.task.slot is not None:
                update(mem, wait.task.slot)


def unstack(mem: memory.Memory, slot: records.Slot, task: records.Task) -> None:
    """Remove a task that no longer waits from the stack of its slot; it usually is on top."""
    for at in range(len(slot.stack) - 1, -1, -1):
        if slot.stack[at].task is task:
            stop_wanting(mem, slot.stack.pop(at))
            return


def stop_wanting(mem: memory.Memory, wait: records.Wait) -> None:
    """Run no more tasks in place for this wait."""
    for task in wait.wants:
        waits = mem.waits_by_task.get(task)
        if waits is not None:
            waits.remove(wait)
            if not waits:
                del mem.waits_by_task[task]
    wait.wants.clear()
    wait.ready.clear()
    # It may go on waiting, not in place: its slot must not count as occupied.
    wait.left = 1
