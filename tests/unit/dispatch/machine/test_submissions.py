"""What is known already is found and not made again: by id, by key, by its parent's run."""

from typing import Any

import pytest

from kilnwork.api import attempts, calls
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import inputs, instructions
from kilnwork.kit import ids
from support import scripted_calls
from support.scripted_calls import DRIVER, World, spawn, spec, state_and_reason, task_id

RETRY = spec(retry=api_task.Retry(max_attempts=5, max_losses=5, delay_seconds=0))
FAILED = attempts.Ending.FAILED
_S = api_task.State


def json_arguments(text: str) -> attempts.Payload:
    return attempts.Payload(attempts.JSON, text.encode())


def world_of(**options: Any) -> World:
    return scripted_calls.world_with_driver(RETRY, **({"slots": 4} | options))


def with_call(**options: Any) -> tuple[World, ids.TaskId]:
    return scripted_calls.world_with_call(RETRY, **({"slots": 4} | options))


def found(world: World) -> dict[int, ids.TaskId]:
    return {send.number: send.task for send in world.sent_of(instructions.FoundCall)}


def known(
    world: World, task: ids.TaskId, *, arguments: attempts.Payload = scripted_calls.ARGUMENTS
) -> inputs.StoredCall:
    """As the journal would say it of a child that is over."""
    record = world.task(task)
    value = calls.Value(task, record.state, record.reason, record.message, record.result)
    requested_by = record.parent.attempt if record.parent else 0
    return inputs.StoredCall(value, arguments, record.spec, requested_by)


def test_the_same_call_again_is_the_same_task() -> None:
    world, task = with_call()
    world.driver(101)
    world.define(RETRY, link=101)
    world.submit(link=101, task=task)
    assert len(world.memory.tasks) == 1
    world.end(task)
    assert world.result(1) is not None
    assert world.result(2, link=101) is not None


def test_the_same_call_again_after_a_new_link_gets_the_result_there() -> None:
    world, task = with_call()
    world.apply(inputs.LinkClosed(DRIVER))
    world.driver(101, session=DRIVER.to_bytes(16, "big"))
    world.define(RETRY, link=101)
    world.submit(link=101, task=task, number=1)
    assert world.accepted[101] == 1
    world.end(task)
    assert world.result(1, link=101) is not None
    assert world.result(1) is None


def test_a_call_that_is_over_and_forgotten_is_found_in_the_journal() -> None:
    world, task = with_call()
    world.end(task)
    item = inputs.SubmitCalls(DRIVER, (calls.CallItem(9, task, 1, scripted_calls.ARGUMENTS),))
    assert world.machine.lookups(item) is None
    asked = world.machine.lookups(item, again=True)
    assert asked is not None
    assert asked.calls == [(9, task)]
    world.submit(number=9, task=task, known={9: known(world, task)})
    assert not world.memory.tasks
    result = world.result(9)
    assert result is not None
    assert (result.state, result.payload) == (_S.SUCCESS, scripted_calls.RESULT)


def test_plain_calls_need_no_lookup() -> None:
    world = world_of()
    items = tuple(calls.CallItem(n, task_id(n), 1, scripted_calls.ARGUMENTS) for n in range(5, 9))
    assert world.machine.lookups(inputs.SubmitCalls(DRIVER, items)) is None


def test_dependencies_missing_from_memory_are_looked_up() -> None:
    world, here = with_call()
    first = calls.CallItem(5, task_id(50), 1, scripted_calls.ARGUMENTS)
    needs = (here, task_id(50), task_id(60))
    second = calls.CallItem(6, task_id(51), 1, scripted_calls.ARGUMENTS, needs)
    asked = world.machine.lookups(inputs.SubmitCalls(DRIVER, (first, second)))
    assert asked is not None
    assert asked.values == {task_id(60)}


def test_watched_tasks_missing_from_memory_are_looked_up() -> None:
    world, here = with_call()
    known_one = inputs.WatchTasks(DRIVER, (calls.Watched(5, here),))
    assert world.machine.lookups(known_one) is None
    asked = world.machine.lookups(inputs.WatchTasks(DRIVER, (calls.Watched(5, task_id(60)),)))
    assert asked is not None
    assert asked.values == {task_id(60)}


def test_drivers_key_identifies_one_call_forever() -> None:
    world = world_of()
    (task,) = world.submit(key="k")
    world.driver(101)
    world.define(RETRY, link=101)
    (other,) = world.submit(link=101, key="k")
    assert found(world) == {2: task}
    assert other not in world.memory.tasks
    world.end(task)
    assert world.result(2, link=101) is not None
    assert not world.memory.keys


def test_a_drivers_key_is_looked_up_when_it_is_over() -> None:
    world = world_of()
    (task,) = world.submit(key="k")
    world.end(task)
    item = inputs.SubmitCalls(
        DRIVER, (calls.CallItem(9, task_id(9), 1, scripted_calls.ARGUMENTS, key="k"),)
    )
    asked = world.machine.lookups(item)
    assert asked is not None
    assert asked.keys == [(9, "=k")]
    world.submit(number=9, key="k", known={9: known(world, task)})
    assert found(world) == {9: task}
    assert not world.memory.tasks
    assert world.result(9) is not None


@pytest.mark.parametrize(
    ("theirs", "ours", "same"),
    [
        ("[[1],{}]", "[[1],{}]", True),
        ('[[],{"a":1,"b":2}]', '[[],{"b": 2, "a": 1}]', True),
        ("[[1],{}]", "[[2],{}]", False),
        ("[[1],{}]", '[["1"],{}]', False),
    ],
)
def test_json_arguments_are_compared(theirs: str, ours: str, same: bool) -> None:  # noqa: FBT001
    world = world_of()
    (task,) = world.submit(key="k", arguments=json_arguments(theirs))
    world.submit(key="k", arguments=json_arguments(ours))
    assert (found(world) == {2: task}) is same
    result = world.result(2)
    if not same:
        assert result is not None
        assert (result.state, result.reason) == (_S.FAILED, "KeyTaken")


def test_pickled_arguments_are_not_compared() -> None:
    world = world_of()
    (task,) = world.submit(key="k", arguments=attempts.Payload(attempts.PICKLE, b"1"))
    world.submit(key="k", arguments=attempts.Payload(attempts.PICKLE, b"2"))
    assert found(world) == {2: task}


def test_key_used_by_another_function_is_refused() -> None:
    world = world_of()
    world.define(spec("m:other"), number=2)
    world.submit(key="k")
    world.submit(key="k", template=2)
    result = world.result(2)
    assert result is not None
    assert result.reason == "KeyTaken"


def test_the_next_attempt_finds_the_children_of_the_one_before() -> None:
    world, parent = with_call()
    child = spawn(world, parent)
    keyed = spawn(world, parent, key="k", ordinal=0)
    world.end(parent, FAILED)
    assert world.task(parent).attempt == 2
    other = spawn(world, parent)
    other_keyed = spawn(world, parent, key="k", ordinal=0)
    assert found(world) == {4: child, 5: keyed}
    assert not {other, other_keyed} & set(world.memory.tasks)
    assert world.task(child).parent == world.task(parent).ref
    world.end(child)
    assert world.results[world.holder(parent).link][-1].number == 4


def test_the_next_attempt_finds_children_that_are_over_in_the_journal() -> None:
    world, parent = with_call()
    child = spawn(world, parent)
    world.end(child)
    world.end(parent, FAILED)
    ref = world.task(parent).ref
    link = world.holder(parent).link
    world.define(spec("m:child"), link=link)
    item = calls.CallItem(9, task_id(9), 1, scripted_calls.ARGUMENTS, ordinal=1, parent=ref)
    asked = world.machine.lookups(inputs.SubmitCalls(link, (item,)))
    assert asked is not None
    assert asked.children == [(9, parent, 1, "m:child#1")]
    again = spawn(world, parent, number=9, known={9: known(world, child)})
    assert found(world) == {9: child}
    assert again not in world.memory.tasks
    assert world.results[link][-1].payload == scripted_calls.RESULT


def test_children_of_different_functions_are_counted_apart() -> None:
    world, parent = with_call()
    first = spawn(world, parent, template=spec("m:a"), ordinal=1)
    second = spawn(world, parent, template=spec("m:b"), ordinal=1)
    assert world.task(first).child_key == "m:a#1"
    assert world.task(second).child_key == "m:b#1"
    world.end(parent, FAILED)
    again = spawn(world, parent, template=spec("m:b"), ordinal=1)
    assert found(world)[4] == second
    assert again not in world.memory.tasks


def test_another_child_than_before_replaces_it_and_the_parent_says_so() -> None:
    world, parent = with_call()
    child = spawn(world, parent, arguments=json_arguments("[[1],{}]"))
    world.end(parent, FAILED)
    again = spawn(world, parent, arguments=json_arguments("[[2],{}]"))
    assert state_and_reason(world.task(child)) == ("Killing", "Replaced")
    assert world.task(parent).reason == "NonDeterministicRetry"
    assert world.holds(again)
    assert world.task(again).child_key == "m:child#1"


def test_another_child_than_one_that_is_over_is_made() -> None:
    world, parent = with_call()
    child = spawn(world, parent, arguments=json_arguments("[[1],{}]"))
    world.end(child)
    world.end(parent, FAILED)
    was = known(world, child, arguments=json_arguments("[[1],{}]"))
    again = spawn(world, parent, number=9, arguments=json_arguments("[[2],{}]"), known={9: was})
    assert world.task(parent).reason == "NonDeterministicRetry"
    assert world.holds(again)


def test_second_child_with_the_same_key_is_refused() -> None:
    world, parent = with_call()
    spawn(world, parent, key="k", arguments=json_arguments("[[1],{}]"))
    other = spawn(world, parent, key="k", arguments=json_arguments("[[2],{}]"))
    result = world.results[world.holder(parent).link][-1]
    assert (result.state, result.reason) == (_S.FAILED, "KeyTaken")
    assert other not in world.memory.tasks


def test_children_that_the_successful_attempt_did_not_ask_for_are_killed() -> None:
    world, parent = with_call()
    kept, dropped = (spawn(world, parent, ordinal=number) for number in (1, 2))
    world.end(parent, FAILED)
    spawn(world, parent, ordinal=1)
    world.end(parent)
    assert state_and_reason(world.task(dropped)) == ("Killing", "Replaced")
    assert state_and_reason(world.task(kept)) == ("Staging", "Starting")


def test_children_that_a_delegating_attempt_did_not_ask_for_are_killed() -> None:
    world, parent = with_call()
    kept, dropped = (spawn(world, parent, ordinal=number) for number in (1, 2))
    world.end(parent, FAILED)
    spawn(world, parent, ordinal=1)
    world.end(parent, delegate=kept, payload=None)
    assert state_and_reason(world.task(dropped)) == ("Killing", "Replaced")


def test_an_attempt_that_is_over_cannot_have_children() -> None:
    world, parent = with_call()
    player, ref = world.holder(parent), world.task(parent).ref
    world.define(spec("m:child"), link=player.link)
    world.end(parent)
    (child,) = world.submit(link=player.link, parent=ref, ordinal=1)
    assert child not in world.memory.tasks
    result = world.results[player.link][-1]
    assert (result.state, result.reason) == (_S.KILLED, "ParentKilled")


def test_an_attempt_in_another_slot_cannot_be_the_parent() -> None:
    world = world_of()
    (one, other) = world.submit(2)
    player = world.holder(one)
    world.define(spec("m:child"), link=player.link)
    (child,) = world.submit(link=player.link, parent=world.task(other).ref, ordinal=1)
    assert child not in world.memory.tasks


def test_an_attempt_that_is_being_stopped_gets_no_children() -> None:
    world, parent = with_call()
    world.apply(inputs.Kill(parent, "Killed"))
    child = spawn(world, parent)
    assert child not in world.memory.tasks


def test_a_watcher_gets_the_result_when_it_is_there() -> None:
    world, task = with_call()
    world.driver(101)
    world.apply(inputs.WatchTasks(101, (calls.Watched(7, task),)))
    assert world.result(7, link=101) is None
    world.end(task)
    assert world.result(7, link=101) is not None


def test_watcher_of_a_finished_task_gets_the_result_at_once() -> None:
    world, task = with_call()
    world.end(task)
    value = known(world, task).value
    world.apply(inputs.WatchTasks(DRIVER, (calls.Watched(7, task),), {task: value}))
    result = world.result(7)
    assert result is not None
    assert result.payload == scripted_calls.RESULT


def test_a_watcher_of_an_unknown_task_is_notified() -> None:
    world = world_of()
    world.apply(inputs.WatchTasks(DRIVER, (calls.Watched(7, task_id(99)),)))
    result = world.result(7)
    assert result is not None
    assert (result.state, result.reason) == (_S.PENDING, "")


def test_a_task_of_another_namespace_is_unknown_to_watchers() -> None:
    world, task = with_call()
    world.apply(inputs.Attach(300, b"x" * 16, "other"))
    world.apply(inputs.WatchTasks(300, (calls.Watched(7, task),)))
    result = world.result(7, link=300)
    assert result is not None
    assert result.state is _S.PENDING


def test_declared_tasks_can_be_watched_and_needed() -> None:
    world = world_of()
    declared = world.declare(900, api_task.TaskSpec(command=("true",)))
    (task,) = world.submit(needs=(declared,))
    world.apply(inputs.WatchTasks(DRIVER, (calls.Watched(7, declared),)))
    payload = json_arguments("5")
    outcome = attempts.Outcome(attempts.Ending.SUCCEEDED, "Succeeded", result=payload)
    world.apply(inputs.Finished(1, 1, world.task(declared).ref, outcome))
    assert world.holds(task)
    result = world.result(7)
    assert result is not None
    assert result.payload == payload


def test_yielded_values_go_to_all_watchers() -> None:
    world, task = with_call()
    world.driver(101)
    world.apply(inputs.WatchTasks(101, (calls.Watched(7, task),)))
    player, ref = world.holder(task), world.task(task).ref
    world.apply(inputs.Yielded(player.link, ref, 0, scripted_calls.RESULT))
    streamed = world.sent_of(instructions.Stream)
    assert [(send.link, send.number, send.index) for send in streamed] == [
        (DRIVER, 1, 0),
        (101, 7, 0),
    ]
    world.apply(
        inputs.Yielded(player.link, attempts.AttemptRef(task, 1, 9), 1, scripted_calls.RESULT)
    )
    assert len(world.sent_of(instructions.Stream)) == 2


def test_equal_templates_are_shared() -> None:
    world = world_of()
    world.driver(101)
    world.define(RETRY, link=101, number=8)
    assert len(world.memory.templates) == 1
    world.apply(inputs.Attach(300, b"x" * 16, "other"))
    world.define(RETRY, link=300)
    assert len(world.memory.templates) == 2


def test_a_template_without_a_call_is_refused() -> None:
    world = world_of()
    world.define(api_task.TaskSpec(command=("true",)), number=3)
    (closed,) = world.sent_of(instructions.CloseLink)
    assert closed.link == DRIVER


def test_a_declared_call_runs_in_a_slot_with_the_arguments_of_its_spec() -> None:
    world = world_of()
    template = api_task.TaskSpec(
        call=api_task.Call("m:f", args=(1, "a"), kwargs={"b": [2]}), run=1, priority=3
    )
    task = world.declare(900, template, inputs=b'{"x": {"y": 1.50}}')
    record = world.task(task)
    assert world.holds(task)
    assert record.template is not None
    assert record.template.spec.call == api_task.Call("m:f")
    assert record.arguments == json_arguments('[[1,"a"],{"b":[2],"x":{"y": 1.50}}]')
    assert record.spec is template
    assert not record.has_template_spec
    world.end(task)
    assert state_and_reason(record) == ("Success", "Succeeded")
    assert not world.memory.clusters["ns", "default"].declared


def test_declared_calls_of_one_function_share_a_template() -> None:
    world = world_of()
    for number in (900, 901):
        call = api_task.Call("m:f", args=(number,))
        world.declare(number, api_task.TaskSpec(call=call, run=number))
    assert world.task(task_id(900)).template is world.task(task_id(901)).template


def test_a_command_can_have_a_call_as_child() -> None:
    world = world_of()
    parent = world.declare(900, api_task.TaskSpec(command=("true",)))
    ref = world.task(parent).ref
    world.apply(inputs.Started(1, 1, ref, world.now.wall))
    world.apply(
        inputs.Spawn(
            link=1, serial=2, parent=ref, child_key="#1", task=task_id(901), name="c",
            spec=spec("m:f", args=(1,)), inputs=None, digest=b"",
        )
    )  # fmt: skip
    assert world.holds(task_id(901))
    world.end(task_id(901))
    assert state_and_reason(world.task(task_id(901))) == ("Success", "Succeeded")


def test_call_whose_id_is_known_only_when_accepted_can_be_awaited() -> None:
    world, parent = with_call()
    assert world.awaited == set()
    world.submit(key="k")
    assert world.awaited == {DRIVER}
    spawn(world, parent)
    assert world.awaited == {DRIVER}
    world.end(parent, FAILED)
    link = world.holder(parent).link
    spawn(world, parent)
    assert world.awaited == {DRIVER, link}
