"""Admission of jobs: deadlines by two clocks, and claims that are not yet in the journal."""

from typing import Any

import pytest

from kilnwork.jobs import job_start_queue, live_job_state, row_storage, start_admission
from kilnwork.kit import clock as clocks
from support import index_records


class FakeJournal:
    """Keeps the claims of jobs as rows."""

    def __init__(self) -> None:
        self.claims: list[tuple[Any, ...]] = []

    def select(self, name: str, *values: Any) -> list[tuple[Any, ...]]:
        if name == "job_claims":
            return [row for row in self.claims if row[0] > values[0]]
        return []


@pytest.fixture
def clock() -> clocks.ManualClock:
    return clocks.ManualClock()


@pytest.fixture
def journal() -> FakeJournal:
    return FakeJournal()


@pytest.fixture
def waiting_jobs(journal: FakeJournal, clock: clocks.ManualClock) -> start_admission.Admission:
    return start_admission.Admission(row_storage.Tables(journal.select), clock)


def test_job_waits_until_start_after(
    waiting_jobs: start_admission.Admission, clock: clocks.ManualClock
) -> None:
    job = index_records.job()
    waiting_jobs.add_waiting(job, job_start_queue.Claim(start_after=clock.wall() + 100))
    assert waiting_jobs.next_deadline_s == start_admission.POLL_S
    assert waiting_jobs.turns.decide() == []
    clock.advance(100)
    waiting_jobs.check_deadlines()
    (start,) = waiting_jobs.turns.decide()
    assert isinstance(start, job_start_queue.Start)
    assert [waiting_jobs.next_deadline_s] == [None]


def test_job_beyond_time_limit_is_reported_once(
    waiting_jobs: start_admission.Admission, clock: clocks.ManualClock
) -> None:
    job = index_records.job()
    waiting_jobs.add_waiting(job, job_start_queue.Claim(job_seconds=60))
    waiting_jobs.start_time_limit(job)
    clock.jump(3600)  # only the wall clock: that is no time
    assert (waiting_jobs.check_deadlines(), waiting_jobs.next_deadline_s) == ([], 60)
    clock.advance(60)
    assert waiting_jobs.check_deadlines() == [job.row]
    assert waiting_jobs.check_deadlines() == []


def test_deadline_of_earlier_run_is_ignored(
    waiting_jobs: start_admission.Admission, clock: clocks.ManualClock
) -> None:
    job = index_records.job()
    waiting_jobs.add_waiting(job, job_start_queue.Claim(job_seconds=60))
    waiting_jobs.start_time_limit(job)
    clock.advance(30)
    waiting_jobs.start_time_limit(job)
    clock.advance(40)
    assert waiting_jobs.check_deadlines() == []
    clock.advance(20)
    assert waiting_jobs.check_deadlines() == [job.row]


def test_claim_of_discarded_job_is_not_written(
    waiting_jobs: start_admission.Admission,
) -> None:
    job = index_records.job()
    waiting_jobs.add_waiting(job, job_start_queue.Claim())
    assert waiting_jobs.row_of(job.id.uuid) == job.row
    assert waiting_jobs.uuids_of([job.row, 99]) == [job.id.uuid]
    waiting_jobs.discard(job.row)
    writes = row_storage.JobWrites()
    waiting_jobs.collect_writes(writes)
    assert list(writes.statements()) == []
    assert waiting_jobs.row_of(job.id.uuid) is None


def test_load_restores_claims_from_journal(
    waiting_jobs: start_admission.Admission, journal: FakeJournal, clock: clocks.ManualClock
) -> None:
    claim = b'{"job_seconds":60}'
    journal.claims = [
        (1, b"a" * 16, "ns", 1, int(live_job_state.RUNNING), None, b"{}"),
        (2, b"b" * 16, "ns", 0, int(live_job_state.RUNNING), clock.wall() - 20, claim),
        (3, b"c" * 16, "ns", 1, int(live_job_state.RUNNING), None, b"no JSON"),
    ]
    waiting_jobs.load()
    assert [waiting_jobs.uuid_of(row) for row in (1, 2, 3)] == [b"a" * 16, b"b" * 16, None]
    assert waiting_jobs.next_deadline_s == 40
    assert waiting_jobs.find_claim(2) == job_start_queue.Claim(job_seconds=60)
