"""Values of file jobs: ids, directories, counts of records."""

import uuid

import msgspec

from kilnwork.jobs import file_job_types


def test_dashed_id_is_name_of_job_directory() -> None:
    made = file_job_types.JobId(uuid.UUID(int=1).bytes, "2026-11-1")
    assert made.dashed == "00000000-0000-0000-0000-000000000001"


def test_record_counts_are_summed() -> None:
    found = file_job_types.FileProgress(lines=9, succeeded=4, failed=2, skipped=1).records
    assert (found.total, found.succeeded, found.failed, found.skipped) == (7, 4, 2, 1)


def test_new_progress_has_zero_counts() -> None:
    counts, progress = file_job_types.PartCounts(), file_job_types.FileProgress()
    assert (counts.total, counts.pending, counts.running) == (0, 0, 0)
    assert (counts.succeeded, counts.failed, counts.cancelled) == (0, 0, 0)
    assert (progress.lines, progress.bytes, progress.done_bytes, progress.sha256) == (0, 0, 0, "")
    assert progress.records.total == 0


def test_adjustment_fields_are_unset_by_default() -> None:
    change = file_job_types.Adjustment(parallelism=None)
    named = {
        name for name in change.__struct_fields__ if getattr(change, name) is not msgspec.UNSET
    }
    assert named == {"parallelism"}
