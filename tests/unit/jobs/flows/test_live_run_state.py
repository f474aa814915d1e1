"""Records of a run: newest instances, counts by step, values, and changes not yet in the
journal."""

from typing import Any

import pytest

from kilnwork.jobs.flows import live_run_state, run_types
from support import flow_world

FLOW = {"do": [{"load": {"call": "f.load"}}, {"sum": {"join": "load", "call": "f.sum"}}]}
_S = run_types.InstanceState


def a_run(**more: Any) -> live_run_state.Run:
    return live_run_state.Run(
        flow_world.new(FLOW), live_run_state.RunState(started=0.0), row=1, **more
    )


def record(
    key: str, state: run_types.InstanceState = _S.RUNNING, **more: Any
) -> live_run_state.Record:
    return live_run_state.Record(key=key, state=state, started=1.0, **more)


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("load", "load"),
        ("solve[3].iterate", "solve.iterate"),
        ("solve[3].inner[2].x", "solve.inner.x"),
        ("catch[0].load[1]", "catch[0].load"),
        ("finally.clean", "finally.clean"),
    ],
)
def test_step_path_has_no_round_numbers(key: str, path: str) -> None:
    assert live_run_state.step_path(key) == path


@pytest.mark.parametrize(
    ("key", "outer", "within"),
    [
        ("a.b", "a", True),
        ("a[1]", "a", True),
        ("a", "a", True),
        ("ab", "a", False),
        ("a", "", True),
    ],
)
def test_is_within_tells_parts_of_an_instance(key: str, outer: str, *, within: bool) -> None:
    assert live_run_state.is_within(key, outer) is within


def test_counts_of_a_steps_instances_are_summed() -> None:
    run = a_run()
    run.put(record("load[0]", counts=run_types.TaskCounts(total=2, succeeded=1)))
    run.put(record("load[1]", counts=run_types.TaskCounts(total=3, failed=1)))
    run.put(record("load[1]", counts=run_types.TaskCounts(total=3, failed=2)))
    assert run.totals["load"] == run_types.TaskCounts(total=5, succeeded=1, failed=2)
    run.drop("load[0]")
    assert run.totals["load"] == run_types.TaskCounts(total=3, failed=2)
    assert run.newest["load"].key == "load[1]"
    run.drop("load[1]")
    assert "load" not in run.newest
    assert list(run.dropped) == ["load[0]", "load[1]"]


def test_jobs_are_open_until_they_end() -> None:
    run = a_run()
    run.put(record("load", job=True, open=True))
    assert list(run.open_jobs) == ["load"]
    run.put(record("load", _S.SUCCEEDED, job=True))
    assert (list(run.open_jobs), list(run.changed)) == ([], ["load"])


def test_values_come_from_memory_or_journal() -> None:
    asked: list[str] = []

    def read(key: str) -> bytes | None:
        asked.append(key)
        return b"[7]" if key == "old" else None

    run = a_run(read_value=read)
    run.keep_value("load", b'{"rate":3}')
    assert run.value("load") == {"rate": 3}
    assert (run.value("old"), run.value("old"), run.value("none")) == ([7], [7], None)
    assert asked == ["old", "none"]
    run.drop_values("load")
    assert run.value("load") == {"rate": 3}, "it is not written yet"


def test_state_change_marks_run_as_dirty() -> None:
    run = a_run()
    run.dirty = False
    run.update(reason="Killed")
    assert (run.state.reason, run.dirty, run.redefined) == ("Killed", True, False)
    run.redefine(run.new)
    assert run.redefined
