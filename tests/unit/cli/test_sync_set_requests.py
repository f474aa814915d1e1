"""Reading of SyncSets."""

from typing import Any

import pytest

from kilnwork.cli import errors, sync_set_requests


def sync_set(spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "s"}, "spec": spec or {}, "status": status}


@pytest.mark.parametrize(
    ("found", "over"),
    [
        (sync_set(), False),
        (sync_set(phase="Running", generation=1), False),
        (sync_set(phase="Failed", generation=1), True),
        (sync_set({"generation": 2}, phase="Failed", generation=1), False),
        (sync_set({"run": 2}, phase="Failed", generation=1, run=1), False),
        (sync_set({"run": 2}, phase="Failed", generation=1, run=2), True),
    ],
)
def test_set_is_finished_when_the_requested_run_is(*, found: dict[str, Any], over: bool) -> None:
    assert sync_set_requests.is_over(found) is over


def test_sentence_has_state_and_next_step() -> None:
    assert sync_set_requests.sentence(sync_set()) == "SyncSet s has not been processed yet."
    text = sync_set_requests.sentence(sync_set(phase="Failed", generation=3, progress="2/5"))
    assert text.startswith("SyncSet s is Failed; 2 of 5 tasks have succeeded.")
    assert "`kiln retry syncset/s --failed`" in text
    assert "--generation 3`" in text
    held = sync_set_requests.sentence(sync_set({"suspend": True}, phase="Running", generation=1))
    assert held.endswith("`kiln resume syncset/s` resumes it.")


def test_unmet_conditions_are_named_until_the_set_finishes() -> None:
    unmet = {"type": "DataReady", "status": "False", "reason": "Fetching", "message": "1 of 2."}
    met = {"type": "GangReady", "status": "True", "reason": "Ready"}
    text = sync_set_requests.sentence(sync_set(phase="Pending", conditions=[unmet, met]))
    assert "; DataReady is False (Fetching): 1 of 2." in text
    assert "GangReady" not in text
    assert "DataReady" not in sync_set_requests.sentence(
        sync_set(phase="Failed", conditions=[unmet])
    )


def test_only_success_is_no_error() -> None:
    sync_set_requests.check_end(sync_set(phase="Succeeded"))
    with pytest.raises(errors.TaskFailed, match="SyncSet s is Killed"):
        sync_set_requests.check_end(sync_set(phase="Killed"))
