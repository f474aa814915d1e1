"""What a batch writes, by statement, and how it changes the counts of tasks."""

from collections import Counter

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch.journal import rows_to_write
from kilnwork.dispatch.machine import instructions
from support import scripted_calls

_S = api_task.State
DIGEST = b"d" * 32


def submitted(count: int = 1) -> tuple[scripted_calls.World, instructions.Batch]:
    world = scripted_calls.world_with_driver(slots=0)
    tasks = [world.task(task) for task in world.submit(count)]
    return world, instructions.Batch(dirty=dict.fromkeys(tasks))


def test_new_calls_and_their_changes_have_statements_of_their_own() -> None:
    _, batch = submitted()
    (task,) = batch.dirty
    first = rows_to_write.of_batch(batch)
    assert first.calls
    assert (first.inserts, first.updates) == ([], [])
    assert task.stored is _S.PENDING
    task.failures = 1
    second = rows_to_write.of_batch(batch)
    assert (second.calls, len(second.updates)) == ([], 1)


def test_blobs_are_needed_while_the_row_is_there() -> None:
    _, batch = submitted()
    (task,) = batch.dirty
    task.arguments = attempts.Payload(attempts.JSON, b"", DIGEST, 9, (b"e" * 32,))
    assert rows_to_write.of_batch(batch).blobs == [(DIGEST, task.row), (b"e" * 32, task.row)]


def test_task_is_deleted_by_its_row_if_known() -> None:
    forgotten = {scripted_calls.task_id(1): 7, scripted_calls.task_id(2): None}
    found = rows_to_write.of_batch(instructions.Batch(forgotten=forgotten))
    assert (found.dropped, found.forgotten) == ([7], [scripted_calls.task_id(2)])


def test_equal_moves_are_written_as_one() -> None:
    _, batch = submitted(3)
    one, two, three = batch.dirty
    (move,), numbers = rows_to_write.state_moves(batch.dirty)
    assert (move.before, move.after, move.number) == (None, "Pending", 3)
    assert numbers == [one.row, two.row, three.row]
    for task in batch.dirty:
        task.stored = _S.PENDING
    two.state = _S.RUNNING
    (only,), _ = rows_to_write.state_moves(batch.dirty)
    assert (only.before, only.after, only.number) == ("Pending", "Running", 1)
    assert list(only.of_one) == [only]


def test_counts_move_from_state_to_state() -> None:
    moves = [
        rows_to_write.Move("m:f", False, "ns", None, "Pending", 3),
        rows_to_write.Move("m:f", False, "ns", "Pending", "Running", 2),
    ]
    changed = rows_to_write.count_deltas(moves)
    assert changed["ns", False, "m:f", "Pending"] == 1
    assert changed["ns", False, "m:f", "Running"] == 2


def test_counts_are_shown_sorted_without_zeros() -> None:
    counted = rows_to_write.counts_of([("b", 1, "", "Success", 2), ("a", 0, "f", "Failed", 1)])
    counted["a", False, "f", "Pending"] = 0
    shown = rows_to_write.task_counts(Counter(counted).items())
    assert [(one.namespace, one.declared, one.number) for one in shown] == [
        ("a", False, 1),
        ("b", True, 2),
    ]


def test_consecutive_numbers_are_one_range() -> None:
    assert rows_to_write.ranges([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 7), (9, 10)]
    assert rows_to_write.ranges([]) == []


def test_command_has_no_function() -> None:
    assert rows_to_write.called(api_task.TaskSpec(command=("true",))) == ""
    assert rows_to_write.called(scripted_calls.spec("m:g")) == "m:g"
