"""Which slots are occupied: while they open, and while they have what does not wait."""

from kilnwork.dispatch.machine import records, slot_occupancy
from support import scripted_calls


def a_slot() -> tuple[scripted_calls.World, records.Worker, records.Slot]:
    world = scripted_calls.World(slots=0)
    worker = world.worker(2, slots=2)
    slot = slot_occupancy.add(world.memory, worker, b"s" * 16)
    return world, worker, slot


def a_task(world: scripted_calls.World) -> records.Task:
    if scripted_calls.DRIVER not in world.memory.submitters:
        world.driver()
        world.define(scripted_calls.spec(), number=1)
    (task,) = world.submit()
    return world.task(task)


def test_opening_slot_is_occupied_until_it_has_joined() -> None:
    world, worker, slot = a_slot()
    assert (worker.occupied, worker.cluster.openings, slot.occupied) == (1, 1, True)
    slot.link = 5
    for _ in range(2):  # may be repeated
        slot_occupancy.end_opening(world.memory, slot)
    assert (worker.occupied, worker.cluster.openings) == (0, 0)
    assert list(worker.idle) == [slot.id]


def test_slot_is_occupied_by_its_attempts() -> None:
    world, worker, slot = a_slot()
    task = a_task(world)
    slot.link = 5
    slot_occupancy.end_opening(world.memory, slot)
    slot.held[task.id] = task
    slot_occupancy.update(world.memory, slot)
    assert (worker.occupied, list(worker.idle)) == (1, [])
    task.slot = slot
    slot_occupancy.release_attempt(world.memory, task, slot, proof=True)
    assert worker.occupied == 0
    assert [task.slot] == [None]
    assert list(worker.idle) == [slot.id]


def test_without_proof_the_attempt_stays_with_the_worker() -> None:
    world, worker, slot = a_slot()
    task = a_task(world)
    slot.held[task.id], task.slot = task, slot
    slot_occupancy.release_attempt(world.memory, task, slot, proof=False)
    assert worker.unproven == {task.ref: task}
    assert task.slot is slot
    slot_occupancy.release_attempt(world.memory, task, slot, proof=True)
    assert task.slot is slot, "it has left before"


def test_ended_slot_is_forgotten() -> None:
    world, worker, slot = a_slot()
    slot_occupancy.remove(world.memory, slot)
    assert (worker.occupied, worker.cluster.openings) == (0, 0)
    assert (worker.processes, world.memory.slots) == ({}, {})
    assert slot.leaving
