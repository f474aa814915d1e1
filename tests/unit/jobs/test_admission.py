"""Who may start when: deadlines by two clocks, and claims that the journal has not got."""

from typing import Any

import pytest

from kilnwork.jobs import admission, records, start_queue, tables
from kilnwork.kit import clock as clocks
from support import index_records


class Journal:
    """Claims of jobs, as rows."""

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
def journal() -> Journal:
    return Journal()


@pytest.fixture
def doors(journal: Journal, clock: clocks.ManualClock) -> admission.Admission:
    return admission.Admission(tables.Tables(journal.select), clock)


def test_a_job_waits_for_its_time(doors: admission.Admission, clock: clocks.ManualClock) -> None:
    job = index_records.job()
    doors.add(job, start_queue.Claim(start_after=clock.wall() + 100))
    assert doors.next_s == admission.POLL_S
    assert doors.turns.decide() == []
    clock.advance(100)
    doors.due()
    (start,) = doors.turns.decide()
    assert isinstance(start, start_queue.Start)
    assert [doors.next_s] == [None]


def test_a_job_that_ran_for_too_long_is_due(
    doors: admission.Admission, clock: clocks.ManualClock
) -> None:
    job = index_records.job()
    doors.add(job, start_queue.Claim(job_seconds=60))
    doors.started(job)
    clock.jump(3600)  # only the wall clock: that is no time
    assert (doors.due(), doors.next_s) == ([], 60)
    clock.advance(60)
    assert doors.due() == [job.row]
    assert doors.due() == []


def test_a_deadline_of_an_earlier_run_does_not_count(
    doors: admission.Admission, clock: clocks.ManualClock
) -> None:
    job = index_records.job()
    doors.add(job, start_queue.Claim(job_seconds=60))
    doors.started(job)
    clock.advance(30)
    doors.started(job)
    clock.advance(40)
    assert doors.due() == []
    clock.advance(20)
    assert doors.due() == [job.row]


def test_claims_are_written_once_and_again_when_they_change(doors: admission.Admission) -> None:
    job = index_records.job()
    doors.add(job, start_queue.Claim())
    assert doors.row(job.id.uuid) == job.row
    assert doors.uuids([job.row, 99]) == [job.id.uuid]
    doors.gone(job.row)
    writes = tables.Writes()
    doors.gather(writes)
    assert list(writes.statements()) == []
    assert doors.row(job.id.uuid) is None


def test_the_journal_is_taken_up(
    doors: admission.Admission, journal: Journal, clock: clocks.ManualClock
) -> None:
    claim = b'{"job_seconds":60}'
    journal.claims = [
        (1, b"a" * 16, "ns", 1, int(records.RUNNING), None, b"{}"),
        (2, b"b" * 16, "ns", 0, int(records.RUNNING), clock.wall() - 20, claim),
        (3, b"c" * 16, "ns", 1, int(records.RUNNING), None, b"no JSON"),
    ]
    doors.load()
    assert [doors.uuid(row) for row in (1, 2, 3)] == [b"a" * 16, b"b" * 16, None]
    assert doors.next_s == 40
    assert doors.claim(2) == start_queue.Claim(job_seconds=60)
