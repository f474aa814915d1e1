"""Memory keeps its indexes together: templates, queues, keys, timers, moves of states."""

import pytest

from kilnwork.api import task as api_task
from kilnwork.dispatch import errors
from kilnwork.dispatch.machine import memory
from support import scripted_calls

_S = api_task.State


def test_equal_specs_share_a_template() -> None:
    mem = scripted_calls.World(slots=0).memory
    first = mem.template("ns", scripted_calls.spec("m:f"))
    assert mem.template("ns", scripted_calls.spec("m:f")) is first
    others = {
        mem.template("ns", scripted_calls.spec("m:g")),
        mem.template("b", scripted_calls.spec()),
    }
    assert first not in others
    assert mem.batch.templates[0] is first
    assert len(mem.batch.templates) == 3


def test_executors_have_one_queue_for_all_namespaces() -> None:
    mem = scripted_calls.World(slots=0).memory
    assert mem.cluster("a", "default") is not mem.cluster("b", "default")
    assert mem.cluster("a", "default") is mem.cluster("a", "default")
    pods = api_task.executor_queue("pod")
    assert mem.cluster("a", pods) is mem.cluster("b", pods)


def test_an_illegal_move_raises_with_the_history_and_changes_nothing() -> None:
    world, task = scripted_calls.world_with_call(slots=0)
    record = world.task(task)
    record.state = _S.SUCCESS
    with pytest.raises(errors.IllegalTransition, match="Success → Running") as raised:
        world.memory.move(record, _S.RUNNING)
    assert "SubmitCalls" in str(raised.value)
    assert [record.state] == [_S.SUCCESS]


def test_key_refers_to_the_newest_task() -> None:
    world, first = scripted_calls.world_with_call(slots=0)
    (second,) = world.submit()
    mem = world.memory
    one, two = world.task(first), world.task(second)
    one.child_key = two.child_key = "=k"
    mem.index_key(one)
    mem.index_key(two)
    mem.forget(one)
    assert mem.keys == {("ns", "=k"): two}
    mem.forget(two)
    assert (mem.keys, mem.tasks) == ({}, {})


def test_timer_is_returned_once_when_due() -> None:
    world, task = scripted_calls.world_with_call(slots=0)
    mem, record = world.memory, world.task(task)
    mem.set_timer(20.0, memory.Timer.RETRY, record)
    mem.set_timer(10.0, memory.Timer.TOTAL, record, attempt=3)
    assert mem.next_timer() == 10.0
    assert mem.pop_due_timer(9.9) is None
    assert mem.pop_due_timer(10.0) == (memory.Timer.TOTAL, record, 3)
    assert mem.pop_due_timer(10.0) is None
    assert mem.next_timer() == 20.0


def test_deadlines_of_finished_tasks_are_swept() -> None:
    world, task = scripted_calls.world_with_call(slots=0)
    mem, record = world.memory, world.task(task)
    record.state = _S.SUCCESS
    for number in range(memory.MIN_TIMERS_SWEPT + 1):
        mem.set_timer(float(number), memory.Timer.TOTAL, record)
    assert mem.next_timer() is None
