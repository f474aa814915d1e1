"""Records of jobs are restored from their rows; a view gives the reason why nothing runs."""

import msgspec

from kilnwork.api import filejobs
from kilnwork.jobs import file_job_types, index_item_source, live_job_state, rows, transitions
from support import index_records

SOURCES = index_item_source.IndexSources()


def row_of(
    job: live_job_state.Job, key: file_job_types.IdempotencyKey | None = None
) -> rows.JobRow:
    return rows.JobRow._make(rows.new_job_row(job, key))


def test_job_read_from_row_equals_written_job() -> None:
    job = index_records.job(4)
    job.stage, job.verdict = live_job_state.Stage.FINISHED, filejobs.PartOutcome.FAILED
    job.run, job.base_run, job.started, job.finished = 3, 2, 5.0, 9.0
    job.counts.succeeded, job.counts.failed, job.counts.cancelled = 1, 2, 1
    job.failures, job.loss_count, job.version, job.reason = 7, 8, 99, "IndexesFailed"
    job.successes = 1
    back = rows.to_job(row_of(job), SOURCES, msgspec.json.encode(job.source.definition))
    assert rows.job_columns(back) == rows.job_columns(job)
    assert (back.size, back.id, back.successes) == (4, job.id, 1)
    assert not back.dirty
    assert {event.value for event in back.followed} == {"Running", "Failed"}


def test_row_stores_that_nothing_succeeded_since_redrive() -> None:
    job = index_records.job(4)
    job.stage, job.verdict = live_job_state.Stage.FINISHED, filejobs.PartOutcome.FAILED
    job.counts.succeeded, job.counts.failed, job.successes = 1, 3, 1
    transitions.redrive(job, now=7.0)
    back = rows.to_job(row_of(job), SOURCES, msgspec.json.encode(job.source.definition))
    assert (back.counts.succeeded, back.successes) == (1, 0)


def test_row_stores_turn() -> None:
    job = index_records.job()
    job.waits = True
    assert rows.to_job(row_of(job), SOURCES, msgspec.json.encode(job.source.definition)).waits
    job.refused = True
    back = rows.to_job(row_of(job), SOURCES, msgspec.json.encode(job.source.definition))
    assert (back.waits, back.refused) == (False, True)


def test_view_says_what_job_waits_for() -> None:
    job = index_records.job()
    assert rows.view(job).reason == "Queued"
    task = job.tasks[1] = live_job_state.ItemTask()
    assert rows.view(job).message == "TaskCluster default has no worker"
    job.slots = 2
    assert rows.view(job).message == "all slots of TaskCluster default are taken"
    task.failures, task.message = 1, "exit code 1"
    assert rows.view(job).reason == "Retrying"
    assert rows.view(job).message.endswith(" is tried again: exit code 1")
    job.active = 1
    assert rows.view(job).reason == ""
    job.trouble = "disk full"
    assert (rows.view(job).reason, rows.view(job).message) == ("StoreUnavailable", "disk full")


def test_view_counts_add_up() -> None:
    job = index_records.job(5)
    job.counts.succeeded, job.counts.failed, job.active = 1, 1, 2
    parts = rows.view(job).parts
    assert (parts.total, parts.pending, parts.running) == (5, 1, 2)
    stored = rows.row_view(row_of(job), SOURCES)
    assert (stored.parts.pending, stored.parts.running) == (3, 0)
    assert stored.reason == "Queued"
