"""Tables of Jobs and indexes, descriptions of one Job, and selection by options."""

from typing import Any

import pytest

from kilnwork.cli import job_fields, job_lists, job_progress
from kilnwork.kit import progress_meter

NOW = 1_700_000_000.0


def job(name: str = "report-1", *, config: str = "report", **status: Any) -> dict[str, Any]:
    owner = {"kind": "JobConfig", "name": config, "apiVersion": "kilnwork.dev/v1alpha1", "uid": "u"}
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "creationTimestamp": "2023-11-14T22:10:20Z",
            "ownerReferences": [owner] if config else [],
        },
        "spec": {"type": "Scheduled"},
        "status": {"phase": "Running", "run": 1, **status},
    }


COUNTS = {"total": 10, "succeeded": 3, "failed": 2, "running": 4, "failedIndexes": "1,7"}


def test_row_has_counts_and_times() -> None:
    found = job(indexes=COUNTS, startTime="2023-11-14T22:12:20Z")
    [header, row] = job_lists.table([found], now=NOW)
    assert header.split() == ["NAME", "CONFIG", "PHASE", "INDEXES", "AGE", "TOOK"]
    assert row.split("   ")[0] == "report-1"
    assert "3/10 (2 failed)" in row
    assert row.split()[-2:] == ["3m", "60s"]


def test_unprocessed_job_has_no_phase() -> None:
    found = {"metadata": {"name": "new"}, "spec": {"configName": "later"}}
    row = job_lists.table([found], now=NOW)[1]
    assert row.split() == ["new", "later", "<none>", "<none>", "0s", "<none>"]
    assert job_lists.group(found) == "queued"


@pytest.mark.parametrize("namespaces", [False, True])
def test_long_config_names_are_cut_to_the_width(namespaces: bool) -> None:  # noqa: FBT001
    name = "a" * (30 if namespaces else 40)
    found = job(name, config="c" * 49, indexes=COUNTS)
    lines = job_lists.table([found], now=NOW, namespaces=namespaces)
    assert max(map(len, lines)) <= job_lists.WIDTH
    assert name in lines[1], "names are there to be copied"
    assert "…" in lines[1]
    wide = job_lists.table([found], now=NOW, wide=True)
    assert "c" * 49 in wide[1]


def test_messages_of_indexes_are_cut_to_the_width() -> None:
    index = {"number": 7, "label": "k" * 60, "state": "Failed", "run": 2, "message": "m" * 300}
    lines = job_lists.index_table([index], now=NOW)
    assert max(map(len, lines)) <= job_lists.WIDTH
    assert "m" * 300 in job_lists.index_table([index], now=NOW, wide=True)[1]


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        ({}, True),
        ({"state": "running"}, True),
        ({"state": "phase=Failed"}, False),
        ({"active": True}, True),
        ({"queued": True, "active": True}, True),
        ({"finished": True}, False),
        ({"config": "other"}, False),
        ({"scheduled": True}, True),
        ({"adhoc": True}, False),
        ({"active": True, "adhoc": True}, False),
    ],
)
def test_options_select_jobs(asked: dict[str, Any], chosen: bool) -> None:  # noqa: FBT001
    assert job_lists.JobSelection(asked).has(job()) is chosen


def test_description_names_the_next_step() -> None:
    running = "\n".join(job_lists.describe(job(indexes=COUNTS), now=NOW))
    assert "kiln cancel job/report-1" in running
    assert "10 in all, 3 succeeded, 2 failed (1,7), 4 running" in running
    failed = "\n".join(job_lists.describe(job(phase="Failed", indexes=COUNTS), now=NOW))
    assert "kiln retry job/report-1" in failed
    assert "--indexes --state Failed" in failed
    refused = "\n".join(job_lists.describe(job(phase="AdmissionError"), now=NOW))
    assert "kiln retry" not in refused


def test_requested_run_is_unfinished_although_an_earlier_one_ended() -> None:
    found = job(phase="Failed", run=1)
    assert job_fields.is_over(found)
    found["spec"]["run"] = 2
    assert not job_fields.is_over(found)
    never = job_fields.test_of("Failed", "x")
    assert never is not None
    assert never(found) is False


def test_progress_line_has_phase_bar_and_counts() -> None:
    counted = progress_meter.Meter(None, progress_meter.format_count, unit=" indexes")
    text = job_progress.line(job(indexes=COUNTS, message="held"), counted, now_s=0.0)
    assert text.startswith("Running  [#####.....]  50%  5 of 10 indexes")
    assert text.endswith("4 running  2 failed  held")


def test_failure_names_the_index_by_number_and_label() -> None:
    assert job_progress.failure({"number": 3, "label": "3"}).startswith("index 3 failed: ")
    text = job_progress.failure({"number": 3, "label": "oslo", "message": "exit code 1"})
    assert text == "index 3 (oslo) failed: exit code 1"
