"""Calls: from a driver's submit over a slot to its result."""

import gc

import pytest

from kilnwork.api import attempts
from kilnwork.dispatch.machine import inputs, instructions, memory
from support import scripted_calls
from support.scripted_calls import World, spec, state_and_reason, world_with_driver


def test_a_call_runs_in_a_slot_and_its_result_comes_back() -> None:
    world = world_with_driver()
    (task,) = world.submit()
    record = world.task(task)
    assert state_and_reason(record) == ("Staging", "Starting")
    assert world.accepted == {scripted_calls.DRIVER: 1}
    assert len(world.sent_of(instructions.OpenSlot)) == 1
    world.end(task)
    assert state_and_reason(record) == ("Success", "Succeeded")
    result = world.result(1)
    assert result is not None
    assert result.payload == attempts.Payload(attempts.JSON, b"1")
    assert (record.attempt, record.stopped, record.slot) == (1, True, None)
    assert not world.memory.tasks


def test_the_next_call_takes_the_idle_slot() -> None:
    world = world_with_driver()
    for _ in range(3):
        (task,) = world.submit()
        world.end(task)
    assert len(world.sent_of(instructions.OpenSlot)) == 1


def test_a_call_waits_for_a_worker_and_says_so() -> None:
    world = World(slots=0)
    world.driver()
    world.define(spec())
    (task,) = world.submit()
    assert state_and_reason(world.task(task)) == ("Pending", "NoFreeSlot")
    world.worker()
    assert world.holds(task)


def test_one_slot_opens_for_each_reservation_and_no_more_than_calls_wait() -> None:
    world = World(slots=4, opens=False)
    world.driver()
    world.define(spec())
    world.submit(2)
    assert len(world.sent_of(instructions.OpenSlot)) == 2
    world.submit(5)
    assert len(world.sent_of(instructions.OpenSlot)) == 4
    assert world.memory.links[1].busy == 4


def test_a_started_call_is_running() -> None:
    world = world_with_driver()
    (task,) = world.submit()
    world.started(task)
    assert state_and_reason(world.task(task)) == ("Running", "Started")
    player = world.holder(task)
    assert world.acknowledged[player.link] == 1


def test_a_call_of_an_unknown_template_closes_the_link() -> None:
    world = world_with_driver()
    world.submit(template=7)
    (closed,) = world.sent_of(instructions.CloseLink)
    assert closed.link == scripted_calls.DRIVER
    assert "template 7" in closed.message


def test_a_late_report_is_acknowledged_and_changes_nothing() -> None:
    world = world_with_driver()
    (task,) = world.submit()
    player, ref = world.holder(task), world.task(task).ref
    world.end(task)
    player.has.append(ref)
    world.end(task, attempts.Ending.FAILED)
    assert state_and_reason(world.task(task)) == ("Success", "Succeeded")
    assert world.acknowledged[player.link] == 2


def test_a_newer_link_of_the_same_session_replaces_the_older() -> None:
    world = world_with_driver()
    world.driver(101, session=scripted_calls.DRIVER.to_bytes(16, "big"))
    (closed,) = world.sent_of(instructions.CloseLink)
    assert closed.link == scripted_calls.DRIVER
    world.apply(inputs.LinkClosed(scripted_calls.DRIVER))
    world.define(spec(), link=101)
    (task,) = world.submit(link=101)
    world.end(task)
    assert world.result(1, link=101) is not None


def test_forgotten_template_is_undefined_and_its_tasks_continue() -> None:
    world = world_with_driver(slots=0)
    (task,) = world.submit()
    world.define(spec("m:other"), number=2)
    world.apply(inputs.Undefine(scripted_calls.DRIVER, (1, 2, 99)))
    world.worker()
    world.end(task)
    assert world.result(1) is not None
    world.submit()
    (closed,) = world.sent_of(instructions.CloseLink)
    assert "names template 1, which is not defined" in closed.message


def test_templates_that_no_call_uses_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "RECENT_TEMPLATES", 10)
    world = world_with_driver()
    for number in range(2, 100):
        world.define(spec(f"m:f{number}"), number=number)
        (task,) = world.submit(template=number)
        world.end(task)
    world.apply(inputs.Undefine(scripted_calls.DRIVER, tuple(range(2, 100))))
    world.finals.clear()
    world.written.clear()
    gc.collect()
    assert len(world.memory.templates) <= 12
    world.define(spec(), number=100)
    assert (
        world.memory.submitters[scripted_calls.DRIVER].templates[1]
        is (world.memory.submitters[scripted_calls.DRIVER].templates[100])
    )
