"""Which tasks may be forgotten: trees from their root, what nothing needs, the oldest first."""

from typing import Any

from kilnwork.api import attempts
from kilnwork.dispatch import model
from kilnwork.dispatch.hub import prune_selection
from kilnwork.kit import ids
from support import scripted_calls


def an_id(number: int) -> ids.TaskId:
    return ids.TaskId(number.to_bytes(16, "big"))


def a_run(number: int, **facts: Any) -> model.OldRun:
    given = {"namespace": "ns", "over": True, "parent": None, "keyed": False, "size_bytes": 10}
    return model.OldRun(row=number, **{"task": an_id(number), **given, **facts})


def chosen(
    *runs: model.OldRun, over: int = 100, needed: set[ids.TaskId] | None = None, **asked: Any
) -> list[int]:
    choice = prune_selection.PruneSelection(
        model.Pruning(**{"older_s": 0.0, **asked}), over=over, needed=needed or set()
    )
    return [int.from_bytes(task, "big") for task in choice.take(runs, {an_id(1): 1000})]


def test_tree_is_forgotten_from_its_root() -> None:
    tree = (a_run(1), a_run(2, parent=an_id(1)), a_run(3, parent=an_id(2)))
    assert chosen(*tree) == [1, 2, 3]
    assert chosen(a_run(1, over=False), *tree[1:]) == []
    assert chosen(*tree[1:]) == []


def test_needed_task_is_kept_with_all_below_it() -> None:
    tree = (a_run(1), a_run(2, parent=an_id(1)), a_run(3))
    assert chosen(*tree, needed={an_id(1)}) == [3]


def test_keyed_calls_are_forgotten_only_when_asked_for() -> None:
    runs = (a_run(1, keyed=True), a_run(2, parent=an_id(1)), a_run(3))
    assert chosen(*runs) == [3]
    assert chosen(*runs, keyed=True) == [1, 2, 3]


def test_no_more_is_selected_than_asked_for() -> None:
    runs = [a_run(number) for number in range(1, 6)]
    assert chosen(*runs, over=5, keep=3) == [1, 2]
    assert chosen(*runs, over=5, keep=9) == []
    assert chosen(*runs, free_bytes=1005) == [1]
    assert chosen(*runs, free_bytes=1015) == [1, 2]
    assert chosen(a_run(1, namespace="other"), a_run(2), namespace="ns") == [2]


def test_a_task_with_many_runs_counts_once() -> None:
    assert chosen(a_run(1), a_run(2, task=an_id(1)), a_run(3), over=3, keep=1) == [1, 3]


def test_task_whose_result_an_unfinished_task_takes_is_needed() -> None:
    world, task = scripted_calls.world_with_call()
    record = world.task(task)
    record.needs, record.delegate = (an_id(7),), an_id(8)
    record.parent = attempts.AttemptRef(an_id(9), 1, 1)
    assert prune_selection.needed_by([record]) == {an_id(7), an_id(8), an_id(9)}


def test_task_that_becomes_needed_between_two_batches_is_kept() -> None:
    needed, unfinished = set[ids.TaskId](), set[ids.TaskId]()
    selection = prune_selection.PruneSelection(
        model.Pruning(older_s=0), over=9, needed=needed, unfinished=unfinished
    )
    assert selection.take([a_run(1)], {}) == (an_id(1),)
    needed.add(an_id(2))
    unfinished.add(an_id(3))
    runs = [a_run(2), a_run(3), a_run(4, parent=an_id(3)), a_run(5)]
    assert selection.take(runs, {}) == (an_id(5),)
    assert selection.chosen.tasks == 2
