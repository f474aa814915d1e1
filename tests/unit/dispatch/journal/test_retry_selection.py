"""What runs again when what failed of a task is retried: the plan, of graphs made at random."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilnwork.dispatch.journal import retry_selection, task_rows
from kilnwork.kit import ids

Graph = dict[ids.TaskId, task_rows.TaskRow]

EMPTY = task_rows.TaskRow(*[None] * len(task_rows.TaskRow._fields))  # type: ignore[arg-type]


def an_id(number: int) -> ids.TaskId:
    return ids.TaskId(number.to_bytes(16, "big"))


def a_row(number: int, state: str = "Failed", **facts: Any) -> task_rows.TaskRow:
    return EMPTY._replace(
        row=number, task=an_id(number), run=1, namespace="ns", state=state, declared=0,
        name=str(number), **facts,
    )  # fmt: skip


def needing(*numbers: int) -> bytes:
    return b"".join(map(an_id, numbers))


def child_of(number: int, *, run: int = 1) -> dict[str, Any]:
    return {"parent": an_id(number), "parent_run": run, "child_key": "f#1"}


def plan_of(graph: Graph, start: int) -> retry_selection.Plan:
    needs = [(row.task, row.needed) for row in graph.values() if retry_selection.has_failed(row)]
    dependents = retry_selection.dependents_of(needs)
    return retry_selection.plan(graph[an_id(start)], graph.get, dependents)


def numbers(plan: retry_selection.Plan) -> list[int]:
    return [row.row for row in plan.rows]


def of(*rows: task_rows.TaskRow) -> Graph:
    return {row.task: row for row in rows}


CHAIN = of(
    a_row(1), a_row(2, needs=needing(1)), a_row(3, needs=needing(2)),
    a_row(4, "Success"), a_row(5, needs=needing(4)),
)  # fmt: skip


@pytest.mark.parametrize("start", [1, 2, 3])
def test_all_connected_failed_tasks_run_in_order_whichever_is_named(start: int) -> None:
    assert numbers(plan_of(CHAIN, start)) == [1, 2, 3]


def test_unconnected_failed_task_runs_alone() -> None:
    assert numbers(plan_of(CHAIN, 5)) == [5]


def test_child_waits_for_the_request_of_its_parent() -> None:
    graph = of(a_row(1), a_row(2, **child_of(1)), a_row(3, needs=needing(1)))
    assert numbers(plan_of(graph, 3)) == [1, 3]
    assert (numbers(plan_of(graph, 2)), plan_of(graph, 2).left) == ([1, 2, 3], 0)


def test_child_that_others_need_does_not_wait() -> None:
    graph = of(a_row(1), a_row(2, **child_of(1)), a_row(3, needs=needing(2)))
    assert numbers(plan_of(graph, 3)) == [1, 2, 3]


def test_child_of_an_earlier_run_runs_alone() -> None:
    graph = of(a_row(1)._replace(run=2), a_row(2, **child_of(1)))
    assert numbers(plan_of(graph, 2)) == [2]


def test_a_parent_that_succeeded_does_not_run_again() -> None:
    assert numbers(plan_of(of(a_row(1, "Success"), a_row(2, **child_of(1))), 2)) == [2]


def test_failed_delegate_runs_again() -> None:
    graph = of(a_row(1, delegate=an_id(2)), a_row(2), a_row(3, delegate=an_id(4)))
    graph |= of(a_row(4, **child_of(3)))
    assert numbers(plan_of(graph, 1)) == [2, 1]
    assert (numbers(plan_of(graph, 3)), plan_of(graph, 3).left) == ([3], 1)


def test_task_objects_are_named_and_their_children_wait_for_them() -> None:
    graph = of(a_row(1)._replace(declared=1), a_row(2, **child_of(1)))
    plan = plan_of(graph, 2)
    assert (plan.rows, [row.row for row in plan.declared], plan.left) == ((), [1], 1)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    found: Graph = {}
    for number in range(1, draw(st.integers(1, 14)) + 1):
        before = list(range(1, number))
        facts: dict[str, Any] = {}
        if before:
            facts["needs"] = needing(*draw(st.lists(st.sampled_from(before), max_size=2))) or None
            if draw(st.booleans()):
                facts |= child_of(draw(st.sampled_from(before)), run=draw(st.sampled_from([1, 2])))
        state = draw(st.sampled_from(["Failed", "Failed", "Killed", "Success", "Running"]))
        found |= of(a_row(number, state, **facts))
    return found


@given(graphs(), st.data())
def test_order_respects_dependencies_and_is_complete(graph: Graph, data: st.DataObject) -> None:
    failed = {row.row for row in graph.values() if retry_selection.has_failed(row)}
    if not failed:
        return
    start = data.draw(st.sampled_from(sorted(failed)))
    plan, order = plan_of(graph, start), {}
    for place, row in enumerate(plan.rows):
        assert row.row in failed
        assert row.task not in order, "each once"
        order[row.task] = place
        before = [task for task in row.needed if task in graph]
        if row.parent is not None and retry_selection.parent_in(row, graph):
            before.append(row.parent)
        for task in before:
            if retry_selection.has_failed(graph[task]) and task != row.task:
                asked_for = retry_selection.parent_in(graph[task], {row.task: row})
                assert asked_for or order[task] < place
    assert an_id(start) in order
    for row in graph.values():
        needs_one = any(task in order for task in row.needed)
        if row.row in failed and needs_one and not retry_selection.parent_in(row, graph):
            assert row.task in order, "who failed for it runs again too"
