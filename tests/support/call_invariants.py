"""Invariants of the machine's memory that hold after any sequence of calls; for random stories."""

from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import memory, records
from kilnwork.kit import ids
from support import call_simulation


def check_each_task_has_one_place(mem: memory.Memory) -> None:
    """Check that each task is in exactly one place: held, queued, backing off, suspended, waiting
    for inputs, or delegated.
    """
    holders: dict[ids.TaskId, int] = {}
    for worker in mem.workers.values():
        held = [worker.held, worker.unclaimed, *(s.held for s in worker.processes.values())]
        for task in [task for some in held for task in some.values()]:
            holders[task.id] = holders.get(task.id, 0) + 1
            assert task.held
            assert task.worker is worker
    for task in mem.tasks.values():
        assert not task.state.final, "finals are forgotten after their commit"
        assert task.reason, "what waits says why"
        assert holders.get(task.id, 0) == (1 if task.held else 0)
        assert not (task.held and task.ticket is not None)
        if task.state is api_task.State.PENDING:
            waits = (task.ticket is not None, task.due > 0, task.unmet > 0, task.suspended)
            assert any(waits), f"{task.reason} {task.message}"
        elif not task.held:
            assert task.delegate in mem.tasks


def check_reservation_counts(mem: memory.Memory) -> None:
    """Check that the counts kept for each slot and worker equal a recount."""
    for worker in mem.workers.values():
        for slot in worker.processes.values():
            _slot_is_right(worker, slot)
        assert worker.occupied == sum(slot.occupied for slot in worker.processes.values())
        assert worker.busy >= 0
        assert worker.idle.keys() <= worker.processes.keys()
    slots = [slot for worker in mem.workers.values() for slot in worker.processes.values()]
    assert {slot.id for slot in slots} == mem.slots.keys()
    for cluster in mem.clusters.values():
        own = [slot for slot in slots if slot.worker.cluster is cluster]
        assert cluster.openings == sum(slot.opening for slot in own)


def _slot_is_right(worker: records.Worker, slot: records.Slot) -> None:
    assert slot.worker is worker
    over = bool(slot.stack) and slot.stack[-1].left <= 0
    assert slot.occupied == (slot.opening or len(slot.held) > len(slot.stack) or over)
    idle = not (slot.occupied or slot.stack or slot.leaving or not slot.link)
    assert (slot.id in worker.idle) == idle
    for wait in slot.stack:
        assert wait.task.slot is slot
        assert wait.task.waiting


def check_no_call_waits_beside_idle_slot(mem: memory.Memory) -> None:
    """Check that no call is queued while an idle slot has a free reservation."""
    for cluster in mem.clusters.values():
        for worker in cluster.workers.values():
            free = worker.ready and worker.idle and worker.busy < worker.slots
            assert not (free and len(cluster.queue))


def check_slots_open_for_waiting_calls(mem: memory.Memory) -> None:
    """Check that a queue with free reservations has slots opening, unless slots cannot be
    opened.
    """
    for cluster in mem.clusters.values():
        for worker in cluster.workers.values():
            few = len(worker.processes) < 8 * worker.slots and not worker.misses
            free = worker.ready and worker.busy < worker.slots
            assert not (few and free and len(cluster.queue) > cluster.openings)


def check_wanted_tasks_index(mem: memory.Memory) -> None:
    """Check that the index of wanted tasks has exactly the waits that exist."""
    for task, waits in mem.waits_by_task.items():
        assert waits
        for wait in waits:
            assert task in wait.wants
            assert wait.task.slot is not None
            assert wait in wait.task.slot.stack


def check_no_task_runs_twice_at_once(world: call_simulation.Simulation) -> None:
    """Check that the newest attempt of a task runs in at most one slot."""
    seen = set()
    for slot in world.slots():
        for ref in slot.stack:
            task = world.memory.tasks.get(ref.task)
            if task is not None and task.held and task.ref == ref:
                assert ref not in seen
                seen.add(ref)


def check_no_accepted_task_is_lost(world: call_simulation.Simulation) -> None:
    for task in world.accepted:
        assert task in world.memory.tasks or task in world.finals
