"""When the status of a Job is written: not at each change, and not never."""

import msgspec
import pytest

from kilnwork.api import job
from kilnwork.controllers.job import status

EMPTY = job.JobStatus()
RUNNING = job.JobStatus(phase="Running", state="Running", run=1)
PENDING = job.JobStatus(phase="Pending", state="Waiting", run=1)


def _write_times(current: job.JobStatus, *, until: float) -> list[float]:
    """When it is written of a Job that runs and waits in turn, each for a tenth of a second."""
    found: list[float] = []
    held: status.Hold | None = None
    for step in range(int(until * 10)):
        now = step / 10
        wanted = msgspec.structs.replace((RUNNING, PENDING)[step % 2], created_tasks=step)
        held, wait_s = status.hold(current, wanted, held=held, now=now)
        if wait_s == 0:
            found.append(now)
            current, held = wanted, None
    return found


def test_job_with_alternating_phases_is_written_within_a_second() -> None:
    assert _write_times(EMPTY, until=1.0)[0] < 1.0


def test_status_of_a_higher_run_is_written_within_a_second() -> None:
    over = job.JobStatus(phase="Failed", state="Finished", run=0)
    assert _write_times(over, until=1.0)[0] < 1.0


def test_status_is_written_no_more_often_than_counts() -> None:
    assert 8 <= len(_write_times(EMPTY, until=20.0)) <= 11


def test_lasting_difference_is_written_after_its_hold() -> None:
    held, wait_s = status.hold(EMPTY, RUNNING, held=None, now=100.0)
    assert wait_s == pytest.approx(status.RUNNING_HOLD_S)
    assert status.hold(EMPTY, RUNNING, held=held, now=100.2)[1] == 0
