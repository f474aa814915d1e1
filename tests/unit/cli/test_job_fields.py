"""Reading of Job objects."""

from typing import Any

import pytest

from kilnwork.cli import errors, job_fields


def job(spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "j"}, "spec": spec or {}, "status": status}


@pytest.mark.parametrize(
    ("found", "over"),
    [
        (job(), False),
        (job(phase="Running"), False),
        (job(phase="Succeeded"), True),
        (job({"run": 2}, phase="Failed", run=1), False),
        (job({"run": 2}, phase="Failed", run=2), True),
    ],
)
def test_job_is_finished_when_the_requested_run_is(*, found: dict[str, Any], over: bool) -> None:
    assert job_fields.is_over(found) is over


@pytest.mark.parametrize(
    ("counts", "text"),
    [
        ({}, None),
        ({"total": 10, "succeeded": 3}, "3/10"),
        ({"total": 10, "succeeded": 3, "failed": 2}, "3/10 (2 failed)"),
    ],
)
def test_indexes_are_counted(counts: dict[str, int], text: str | None) -> None:
    assert job_fields.indexes(job(indexes=counts)) == text


def test_config_is_the_owner_or_the_one_in_the_spec() -> None:
    owned = job({"configName": "named"})
    assert job_fields.config(owned) == "named"
    owned["metadata"]["ownerReferences"] = [
        {"kind": "Other", "name": "x"},
        {"kind": "JobConfig", "name": "owner"},
    ]
    assert job_fields.config(owned) == "owner"
    assert job_fields.config(job()) == ""


def test_time_taken_ends_with_the_job_or_now() -> None:
    start, end = "1970-01-01T00:00:10Z", "1970-01-01T00:00:15Z"
    assert job_fields.took_s(job(), now=100.0) is None
    assert job_fields.took_s(job(startTime=start), now=100.0) == 90.0
    assert job_fields.took_s(job(startTime=start, finishTime=end), now=100.0) == 5.0


def test_sentence_has_state_and_reason() -> None:
    assert job_fields.sentence(job()) == "Job j has not been processed yet"
    found = job(
        phase="Failed",
        reason="IndexesFailed",
        message="one failed.",
        indexes={"total": 2, "succeeded": 1},
    )
    assert job_fields.sentence(found) == (
        "Job j is Failed (IndexesFailed): one failed; 1 of 2 indexes have succeeded"
    )
    assert job_fields.sentence(job(phase="Running", reason="Running")) == "Job j is Running"


def test_unsuccessful_end_is_an_error_with_a_hint() -> None:
    job_fields.check_end(job(phase="Succeeded"))
    with pytest.raises(errors.TaskFailed, match="`kiln retry job/j`"):
        job_fields.check_end(job(phase="Failed"))
    with pytest.raises(errors.TaskFailed, match="It never ran"):
        job_fields.check_end(job(phase="AdmissionError"))
