"""Values that enter and leave runs of flows."""

from typing import Any

import msgspec
import pytest

from kilnwork.jobs.flows import model

NEW: dict[str, Any] = {
    "uid": "u",
    "namespace": "default",
    "set_name": "risk",
    "generation": 3,
    "flow": {"do": [{"a": {"call": "m:f"}}]},
}


@pytest.mark.parametrize(
    ("phase", "is_final"),
    [("Running", False), ("Succeeded", True), ("Failed", True), ("Killed", True)],
)
def test_only_a_running_flow_changes(phase: str, is_final: bool) -> None:  # noqa: FBT001
    assert model.Phase(phase).final is is_final


def test_a_run_is_named_by_its_set_and_generation() -> None:
    new = msgspec.convert(NEW, model.NewFlowRun)
    assert new.key == model.FlowKey("u", 3)
    view = model.FlowRunView(
        uid="u", namespace="", set_name="", generation=3, version=1, phase=model.Phase.RUNNING,
        reason="", message="", suspended=False, started=0.0, finished=None, steps={},
    )  # fmt: skip
    assert view.key == new.key


def test_a_new_run_is_the_first_and_uses_earlier_results() -> None:
    new = msgspec.convert(NEW, model.NewFlowRun)
    assert (new.run, new.memo, new.priority) == (1, True, 0)


def test_the_journal_keeps_no_defaults_and_reads_what_it_kept() -> None:
    new = msgspec.convert(NEW, model.NewFlowRun)
    kept = msgspec.json.encode(new)
    assert set(msgspec.json.decode(kept)) == set(NEW)
    assert msgspec.json.decode(kept, type=model.NewFlowRun) == new


def test_states_of_instances_are_written_as_users_read_them() -> None:
    found = [state.value for state in model.InstanceState]
    assert found == ["Waiting", "Running", "Succeeded", "Failed", "Skipped", "Killed"]
