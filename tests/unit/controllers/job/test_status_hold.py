"""When the status of a Job is written: not at each change, and not never."""

import pytest

from kilnwork.api import job
from kilnwork.controllers.job import status

EMPTY = job.JobStatus()
RUNNING = job.JobStatus(phase="Running", state="Running", run=1)
PENDING = job.JobStatus(phase="Pending", state="Waiting", run=1)


def test_a_job_whose_phase_turns_all_the_time_is_written_all_the_same() -> None:
    held, at, wait_s = None, 100.0, None
    while wait_s != 0 and at < 110:
        wanted = RUNNING if round(at * 10) % 2 else PENDING
        held, wait_s = status.hold(EMPTY, wanted, held=held, now=at)
        at += 0.1
    assert wait_s == 0
    assert 101.5 < at < 102.5


def test_what_stays_is_written_when_its_time_is_up() -> None:
    held, wait_s = status.hold(EMPTY, RUNNING, held=None, now=100.0)
    assert wait_s == pytest.approx(status.RUNNING_HOLD_S)
    assert status.hold(EMPTY, RUNNING, held=held, now=100.2)[1] == 0
