"""Who sits where: a slot takes calls and lets go of them, and so takes a seat of its worker. Pure.

Used by `assignment`, `completion`, `slots` and `waits`, which decide; here only the counts are
kept. A slot takes a seat while it opens, or while it has something that does not wait for other
tasks, or whose wait in place is over.
"""

from kilnwork.dispatch.machine import memory, records


def weigh(mem: memory.Memory, slot: records.Slot) -> None:
    """Something about a slot has changed: whether it takes a seat, whether it is idle."""
    worker, waits = slot.worker, len(slot.stack)
    taken = slot.opening or len(slot.held) > waits or (waits > 0 and slot.stack[-1].left <= 0)
    if taken is not slot.taken:
        slot.taken = taken
        worker.taken += 1 if taken else -1
        mem.touch(worker.cluster)
    if taken or waits or slot.leaving or not slot.link:
        worker.idle.pop(slot.id, None)
    else:
        worker.idle[slot.id] = slot
        mem.hungry[worker.cluster] = None
    if waits and not taken:
        mem.idlers[slot] = None


def add(mem: memory.Memory, worker: records.Worker, name: bytes) -> records.Slot:
    """A slot that is to join."""
    slot = records.Slot(name, worker)
    worker.processes[name] = mem.slots[name] = slot
    worker.cluster.openings += 1
    weigh(mem, slot)
    return slot


def opened(mem: memory.Memory, slot: records.Slot) -> None:
    """It is here, or will never be."""
    if slot.opening:
        slot.opening = False
        slot.worker.cluster.openings -= 1
        weigh(mem, slot)


def drop(mem: memory.Memory, slot: records.Slot) -> None:
    """It is over, and holds nothing any more."""
    opened(mem, slot)
    slot.leaving = True
    weigh(mem, slot)
    slot.worker.processes.pop(slot.id, None)
    mem.slots.pop(slot.id, None)
    mem.idlers.pop(slot, None)
    mem.touch(slot.worker.cluster)


def leave(mem: memory.Memory, task: records.Task, slot: records.Slot, *, proof: bool) -> None:
    """The newest attempt of `task` is not in `slot` any more; without proof it takes a seat."""
    if slot.held.pop(task.id, None) is None:
        return
    if task.waiting:
        task.waiting = False
        unstack(mem, slot, task)
    if proof:
        task.slot = None
    else:
        slot.worker.zombies[task.ref] = task
    task.in_place = False
    weigh(mem, slot)
    mem.touch(slot.worker.cluster)


def arrived(mem: memory.Memory, task: records.Task) -> None:
    """A task is over: what waits for it in place will go on in a moment, and needs its seat."""
    for wait in mem.wanted.get(task.id, ()):
        if wait.wants[task.id]:
            wait.left -= 1
            if wait.task.slot is not None:
                weigh(mem, wait.task.slot)


def unstack(mem: memory.Memory, slot: records.Slot, task: records.Task) -> None:
    """It waits no longer: it is the top of the stack, as a rule."""
    for at in range(len(slot.stack) - 1, -1, -1):
        if slot.stack[at].task is task:
            stop_wanting(mem, slot.stack.pop(at))
            return


def stop_wanting(mem: memory.Memory, wait: records.Wait) -> None:
    """Nothing is to run in place for this wait any more."""
    for task in wait.wants:
        waits = mem.wanted.get(task)
        if waits is not None:
            waits.remove(wait)
            if not waits:
                del mem.wanted[task]
    wait.wants.clear()
    wait.ready.clear()
    wait.left = 1
