"""Progress lines of a Job."""

from typing import Any

import pytest

from kilnwork.cli import job_progress
from kilnwork.kit import progress_meter


def meter() -> progress_meter.Meter:
    return progress_meter.Meter(None, progress_meter.format_count, unit=" indexes")


def job(phase: str = "", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a"}, "spec": {}, "status": {"phase": phase, **status}}


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ({"number": 3, "label": "3", "message": "m", "reason": "R"}, "index 3 failed: m"),
        ({"number": 3, "label": "oslo", "reason": "R"}, "index 3 (oslo) failed: R"),
        ({"number": 3, "label": "3"}, "index 3 failed: no reason is known"),
    ],
)
def test_failed_index_is_named_with_its_label_and_why(index: dict[str, Any], text: str) -> None:
    assert job_progress.failure(index) == text


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (job(), "accepted"),
        (job("Running"), "Running"),
        (job("Running", message="why"), "Running  why"),
    ],
)
def test_job_without_indexes_shows_phase_and_message(found: dict[str, Any], text: str) -> None:
    assert job_progress.line(found, meter(), now_s=0.0) == text


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (job("Running", reason="Started", message="m"), "Running"),
        (job("Running", reason="Running"), "Running"),
        (job("Running", reason="Slow", message="m"), "Running (Slow)"),
        (job("Queued", reason="Full", message="m"), "Queued (Full): m"),
        (job("Queued", reason="Full"), "Queued (Full)"),
        (job(), "accepted"),
    ],
)
def test_plain_state_omits_frequently_changing_counts(found: dict[str, Any], text: str) -> None:
    assert job_progress._state(found) == text
