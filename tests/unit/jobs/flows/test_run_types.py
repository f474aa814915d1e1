"""Conversion of values that enter and leave runs of flows."""

from typing import Any

import msgspec
import pytest

from kilnwork.jobs.flows import run_types

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
def test_only_running_phase_is_not_final(phase: str, is_final: bool) -> None:  # noqa: FBT001
    assert run_types.FlowPhase(phase).final is is_final


def test_run_key_is_set_uid_and_generation() -> None:
    new = msgspec.convert(NEW, run_types.NewFlowRun)
    assert new.key == run_types.FlowKey("u", 3)
    view = run_types.FlowRunView(
        uid="u",
        namespace="",
        set_name="",
        generation=3,
        version=1,
        phase=run_types.FlowPhase.RUNNING,
        reason="",
        message="",
        suspended=False,
        started=0.0,
        finished=None,
        steps={},
    )
    assert view.key == new.key


def test_new_run_has_number_1_and_uses_earlier_results() -> None:
    new = msgspec.convert(NEW, run_types.NewFlowRun)
    assert (new.run, new.memo, new.priority) == (1, True, 0)


def test_encoded_run_omits_defaults_and_decodes_to_same_run() -> None:
    new = msgspec.convert(NEW, run_types.NewFlowRun)
    kept = msgspec.json.encode(new)
    assert set(msgspec.json.decode(kept)) == set(NEW)
    assert msgspec.json.decode(kept, type=run_types.NewFlowRun) == new


def test_instance_states_have_names_shown_to_users() -> None:
    found = [state.value for state in run_types.InstanceState]
    assert found == ["Waiting", "Running", "Succeeded", "Failed", "Skipped", "Killed"]
