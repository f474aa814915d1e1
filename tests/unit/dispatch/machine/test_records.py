"""Records of memory: counts of children, templates of calls."""

import pytest

from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import records
from support import scripted_calls


def test_children_that_are_not_over_run() -> None:
    family = records.Family(scripted_calls.task_id(1), 1, declared=False)
    family.total, family.succeeded, family.failed = 10, 3, 2
    counts = family.counts()
    assert (counts.total, counts.running, counts.succeeded, counts.failed) == (10, 5, 3, 2)


@pytest.mark.parametrize(
    ("timeouts", "timed"),
    [
        (api_task.Timeouts(), False),
        (api_task.Timeouts(running_seconds=1), False),
        (api_task.Timeouts(pending_seconds=1), True),
        (api_task.Timeouts(total_seconds=1), True),
    ],
)
def test_templates_know_whether_their_calls_have_deadlines(
    timeouts: api_task.Timeouts, *, timed: bool
) -> None:
    mem = scripted_calls.World(slots=0).memory
    template = mem.template("ns", scripted_calls.spec(timeouts=timeouts, accept_failures=timed))
    assert template.timed is timed
    assert template.accept_failures is timed
    assert template.function == "m:f"


def test_a_reference_names_the_newest_attempt() -> None:
    world, task = scripted_calls.with_call()
    ref = world.task(task).ref
    assert (ref.task, ref.run, ref.attempt) == (task, 1, 1)
