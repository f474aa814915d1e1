"""Time limits of flows in the test's own process: time is virtual, and counts."""

import time
from typing import Any

import pytest

from kilnwork.testing import flow_timeline, inline_flows


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def fail_after(seconds: float) -> None:
    time.sleep(seconds)
    raise OSError("late")


FUNCTIONS = {"f:sleep": sleep, "f:fail": fail_after}


def run(*steps: dict[str, Any], **more: Any) -> Any:
    return inline_flows.run_flow({"do": list(steps), **more}, functions=FUNCTIONS)


def step(seconds: float, call: str = "f:sleep", **more: Any) -> dict[str, Any]:
    return {"call": call, "with": {"seconds": seconds}, **more}


def test_sleeping_takes_no_time_of_the_test() -> None:
    began = time.monotonic()
    view = run({"a": step(3600.0)}, {"b": step(60.0)})
    assert (view.phase, view.finished - view.started) == ("Succeeded", 3660.0)
    assert time.monotonic() - began < 30.0


def test_step_that_is_no_call_is_refused() -> None:
    with pytest.raises(inline_flows.InvalidFlow, match="step a is no call"):
        run({"a": {"command": ["true"]}})


@pytest.mark.parametrize(("seconds", "reason"), [(2.0, ""), (2.5, "TimedOut")])
def test_attempt_may_take_its_time_and_no_more(seconds: float, reason: str) -> None:
    view = run({"a": step(seconds, attemptSeconds=2)})
    assert view.steps["a"].reason == reason
    if reason:
        assert view.steps["a"].message == "an attempt took longer than 2 s, attemptSeconds"


def test_attempt_that_took_too_long_is_repeated_if_that_is_asked_for() -> None:
    retry = {"maxAttempts": 3, "delaySeconds": 10, "on": ["timeout"]}
    view = run({"a": step(9.0, attemptSeconds=2, retry=retry)})
    assert view.steps["a"].reason == "TimedOut"
    assert view.finished - view.started == 2 + 10 + 2 + 20 + 2
    other = run({"a": step(9.0, "f:fail", retry=retry)})
    assert other.finished - other.started == 9.0  # an error is none of its causes


def test_step_may_take_its_time_and_no_more_with_its_delays() -> None:
    retry = {"maxAttempts": 2, "delaySeconds": 10}
    view = run({"a": step(1.0, "f:fail", retry=retry, timeoutSeconds=11.5)})
    assert (view.steps["a"].reason, view.finished) == ("StepTimedOut", 11.5)


def test_limit_of_a_loop_counts_all_its_rounds() -> None:
    loop = {"until": "${ a.value > 5.0 }", "max": 9, "do": [{"a": step(2.0)}], "timeoutSeconds": 5}
    view = run({"solve": loop})
    assert (view.steps["solve"].reason, view.finished) == ("StepTimedOut", 5.0)


def test_flow_may_take_its_time_and_finally_is_done() -> None:
    last = [{"clean": step(1.0)}]
    view = run({"a": step(3.0)}, {"b": step(3.0)}, timeoutSeconds=5, **{"finally": last})
    assert (view.phase, view.reason, view.finished) == ("Failed", "FlowTimedOut", 6.0)
    assert view.steps["finally.clean"].state == "Succeeded"


def test_shards_run_side_by_side_as_many_as_may() -> None:
    shards = {"each": "seconds", "of": "params.all", "call": "f:sleep"}
    params = {"all": [1.0, 2.0, 3.0]}
    assert run({"a": shards}, params=params).finished == 3.0
    assert run({"a": {**shards, "parallel": 1}}, params=params).finished == 6.0


def test_fastest_branch_stops_the_others() -> None:
    branches = {"slow": step(9.0), "fast": step(1.0)}
    view = run({"race": {"fork": branches, "wait": "any"}})
    assert (view.phase, view.finished) == ("Succeeded", 1.0)
    assert view.steps["race.slow"].state == "Killed"


@pytest.mark.parametrize(
    ("lanes", "seconds"), [(None, 4.0), (1, 10.0), (2, 6.0), (3, 5.0), (9, 4.0)]
)
def test_tasks_begin_as_soon_as_a_lane_is_free(lanes: int | None, seconds: float) -> None:
    assert flow_timeline.makespan_s([1.0, 2.0, 3.0, 4.0], lanes) == seconds
