"""Items, inputs and template of a step, computed from the values so far."""

from typing import Any

import pytest

from kilnwork.jobs.flows import live_run_state, scope, step_inputs, step_work_builder, views
from support import flow_world

FLOW = {
    "params": {"list": [1, 2], "number": 7},
    "do": [
        {"one": {"call": "f.one", "with": {"n": "${ params.number }"}}},
        {"shards": {"each": "s", "of": "data.trades", "call": "f.s", "with": {"s": "${ s }"}}},
        {"listed": {"each": "n", "of": "params.list", "call": "f.n", "with": {"n": "${ n }"}}},
        {"odd": {"each": "n", "of": "params.number", "call": "f.n", "with": {"n": "${ n }"}}},
    ],
}


def work(step: str, data: dict[str, list[Any]] | None = None, **more: Any) -> step_inputs.StepWork:
    run = live_run_state.Run(
        flow_world.new(FLOW, data=data, **more), live_run_state.RunState(started=0), row=1
    )
    return step_work_builder.make_step_work(
        run, step, views.nodes_by_path(run.program)[step], scope.Scope(run, {})
    )


def test_step_without_items_has_one_task() -> None:
    made = work("one")
    assert (made.size, bytes(made.shared["n"])) == (1, b"7")
    assert made.template.cluster_name == "flow-g1-workers"


@pytest.mark.parametrize(("step", "items"), [("shards", [b"5", b"6"]), ("listed", [b"1", b"2"])])
def test_items_come_from_shards_or_list(step: str, items: list[bytes]) -> None:
    made = work(step, {"trades": [5, 6]})
    assert [bytes(item) for item in made.items] == items
    assert made.size == 2


def test_items_that_are_not_a_list_fail_the_step() -> None:
    with pytest.raises(step_work_builder.StepFailure, match="of: gives int, and a list is needed"):
        work("odd")
    with pytest.raises(step_work_builder.StepFailure, match="snapshot trades has no shards"):
        work("shards")


def test_portions_are_those_of_the_reading_group() -> None:
    data, portions = {"trades": [5, 6]}, {"workers": 2}
    assert work("shards", data, portions=portions).portions == 0
    assert work("shards", data, portions=portions, by_shard=("trades",)).portions == 2
    assert work("listed", data, portions=portions, by_shard=("trades",)).portions == 0
