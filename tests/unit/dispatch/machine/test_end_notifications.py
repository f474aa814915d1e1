"""Who is notified of a task's end."""

from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import end_notifications, records
from support import scripted_calls

_S = api_task.State


def test_connected_submitter_and_watchers_are_notified() -> None:
    world, task = scripted_calls.world_with_call(slots=0)
    record = world.task(task)
    here, away = (records.Submitter(b"s", "ns", link) for link in (7, 0))
    record.watchers = [(here, 5), (away, 6)]
    record.state = _S.SUCCESS
    end_notifications.notify(world.memory, record)
    results = world.memory.batch.results
    assert {link: [one.number for one in found] for link, found in results.items()} == {
        scripted_calls.DRIVER: [record.number],
        7: [5],
    }


def test_families_count_ends() -> None:
    world, parent = scripted_calls.world_with_call()
    child = world.task(scripted_calls.spawn(world, parent))
    family = child.siblings
    assert family is not None
    for state, counts in ((_S.SUCCESS, (1, 0)), (_S.KILLED, (1, 1)), (_S.FAILED, (1, 2))):
        child.state = state
        end_notifications.notify(world.memory, child)
        assert (family.succeeded, family.failed) == counts
    assert family.parent not in world.memory.batch.published
    family.declared = True
    end_notifications.publish_parent(world.memory, family)
    assert world.memory.batch.published == {family.parent}


def test_dependents_are_settled() -> None:
    world, task = scripted_calls.world_with_call(slots=0)
    record = world.task(task)
    end_notifications.notify(world.memory, record)
    assert world.memory.ended == []
    record.dependents = []
    end_notifications.notify(world.memory, record)
    assert world.memory.ended == [record]
