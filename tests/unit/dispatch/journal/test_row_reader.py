"""Attempts of a task, of which the newest one is only on the row of the task."""

from kilnwork.dispatch.journal import memory_store
from kilnwork.dispatch.machine import instructions, transition_table
from support import scripted_calls


def test_attempt_that_its_slot_gave_back_is_not_listed() -> None:
    world, task = scripted_calls.world_with_call(slots=1)
    record = world.task(task)
    store = memory_store.MemoryStore()
    store.write(instructions.Batch(dirty={record: None}), lambda _: None)
    [reserved] = store.attempts(task)
    assert (reserved.ref, reserved.ending) == (record.ref, None)
    world.memory.closing = True
    world.give_back(world.holder(task), [record.ref])
    assert record.attempt_state is transition_table.AttemptState.LOST
    store.write(instructions.Batch(dirty={record: None}), lambda _: None)
    assert store.attempts(task) == []
