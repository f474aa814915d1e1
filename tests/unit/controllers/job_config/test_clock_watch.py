"""That the wall clock was set is found out once, and that time passes is no step."""

import pytest

from kilnwork.controllers.job_config import clock_watch
from kilnwork.kit import clock


@pytest.mark.parametrize("step_s", [3600.0, -3600.0, 1.0, -0.3])
def test_step_is_reported_once(step_s: float) -> None:
    time, steps = clock.ManualClock(), []
    watch = clock_watch.ClockWatch(time, lambda: steps.append(time.wall()))
    time.advance(100)
    watch.look()
    assert steps == []
    time.jump(step_s)
    watch.look()
    watch.look()
    assert len(steps) == 1
    time.advance(100)
    watch.look()
    assert len(steps) == 1


def test_accumulated_small_steps_are_reported() -> None:
    time, steps = clock.ManualClock(), []
    watch = clock_watch.ClockWatch(time, lambda: steps.append(time.wall()))
    for _ in range(10):
        time.jump(0.05)
        watch.look()
    assert len(steps) == 2
