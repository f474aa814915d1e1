"""Values of file jobs: ids, directories, counts of records."""

import uuid

from kilnwork.jobs import model


def test_an_id_names_the_directory_of_its_job() -> None:
    made = model.JobId(uuid.UUID(int=1).bytes, "2026-11-1")
    assert made.dashed == "00000000-0000-0000-0000-000000000001"


def test_records_add_up() -> None:
    found = model.FileProgress(lines=9, succeeded=4, failed=2, skipped=1).records
    assert (found.total, found.succeeded, found.failed, found.skipped) == (7, 4, 2, 1)
