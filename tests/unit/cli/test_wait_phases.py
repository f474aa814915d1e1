"""Phases that `kiln wait --for` accepts."""

from collections.abc import Mapping
from typing import Any

import pytest

from kilnwork.api import job
from kilnwork.cli import errors, wait_phases

KNOWN = {phase.lower(): phase for phase in job.Phase}
SUCCEEDED, RUNNING = job.Phase.SUCCEEDED, job.Phase.RUNNING


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Succeeded", SUCCEEDED),
        ("phase=succeeded", SUCCEEDED),
        ("state=SUCCEEDED", SUCCEEDED),
        ("condition=Succeeded", None),
        ("phase=", None),
        ("nonsense", None),
    ],
)
def test_phase_is_found_in_any_spelling(text: str, found: job.Phase | None) -> None:
    assert wait_phases.find(text, KNOWN) == found


def reached(wanted: wait_phases.Phase | None, found: Mapping[str, Any] | None) -> bool:
    return wait_phases.test_of(
        wanted,
        "it",
        phase=lambda item: str(item["phase"]),
        is_over=lambda item: bool(item["over"]),
        sentence=lambda item: f"is {item['phase']}",
    )(found)


@pytest.mark.parametrize(
    ("wanted", "phase", "over", "expected"),
    [
        (None, "Failed", True, True),
        (None, "Running", False, False),
        (SUCCEEDED, "Succeeded", True, True),
        (SUCCEEDED, "Succeeded", False, False),  # of the run before the one that was asked for
        (RUNNING, "Running", False, True),
        (SUCCEEDED, "Running", False, False),
    ],
)
def test_phase_is_reached(
    *, wanted: job.Phase | None, phase: str, over: bool, expected: bool
) -> None:
    assert reached(wanted, {"phase": phase, "over": over}) is expected


def test_other_final_phase_and_missing_object_are_errors() -> None:
    with pytest.raises(errors.TaskFailed, match="it will not be Succeeded: is Failed"):
        reached(SUCCEEDED, {"phase": "Failed", "over": True})
    with pytest.raises(errors.Missing, match="it does not exist"):
        reached(None, None)
