"""Events of a flow in virtual time."""

import pytest

from kilnwork.testing import flow_timeline


def test_events_at_the_same_moment_are_ends_calls_limits() -> None:
    found = flow_timeline.Timeline()
    for kind in (
        flow_timeline.Kind.LIMIT,
        flow_timeline.Kind.CALL,
        flow_timeline.Kind.END,
    ):
        found.add(flow_timeline.Event(kind, "step"), after_s=2.0)
    found.add(flow_timeline.Event(flow_timeline.Kind.LIMIT, "first"), after_s=1.0)
    taken = [found.take() for _ in range(4)]
    assert [event.kind.name for event in taken] == ["LIMIT", "END", "CALL", "LIMIT"]
    assert taken[0].key == "first"
    assert found.now == 2.0


def test_delays_count_from_now() -> None:
    found = flow_timeline.Timeline()
    found.add(flow_timeline.Event(flow_timeline.Kind.END, "a"), after_s=3.0)
    found.take()
    found.add(flow_timeline.Event(flow_timeline.Kind.END, "b"), after_s=3.0)
    found.take()
    assert found.now == 6.0


def test_stopping_an_instance_leaves_its_limits_and_other_instances() -> None:
    found = flow_timeline.Timeline()
    found.add(flow_timeline.Event(flow_timeline.Kind.LIMIT, "a"))
    assert found.stop("a") is None
    assert found.take().key == "a"


@pytest.mark.parametrize(
    ("lanes", "expected"), [(None, 3.0), (3, 3.0), (4, 3.0), (2, 4.0), (1, 6.0)]
)
def test_a_task_begins_as_soon_as_a_lane_is_free(lanes: int | None, expected: float) -> None:
    assert flow_timeline.makespan_s([1.0, 2.0, 3.0], lanes) == expected


def test_no_tasks_take_no_time() -> None:
    assert flow_timeline.makespan_s([], None) == 0.0
