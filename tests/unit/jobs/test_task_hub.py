"""Ids of the tasks of jobs depend on job and item only."""

import uuid

import pytest

from kilnwork.jobs import task_hub

OF_A_STEP = task_hub.extra_id(b"\xfe" * 16, "1/0.1/price")
OF_A_JOB = uuid.UUID("8c5a7a1e-52c0-4b6e-9d5e-0a1b2c3d4e5f").bytes
OF_A_FILE_JOB = uuid.UUID("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b").bytes
LARGEST = 1_000_000


@pytest.mark.parametrize("job", [OF_A_STEP, OF_A_JOB, OF_A_FILE_JOB])
def test_task_ids_are_distinct_uuids_of_version_8(job: bytes) -> None:
    found = [task_hub.task_id(job, item) for item in (*range(1_000), LARGEST)]
    assert len(set(found)) == len(found)
    assert {(one.version, one.variant) for one in (uuid.UUID(bytes=x) for x in found)} == {
        (8, uuid.RFC_4122)
    }
    assert all(len(one) == 16 for one in found)


@pytest.mark.parametrize("last", [0, 0xFFFF_FFF0])
def test_task_ids_of_a_step_are_consecutive(last: int) -> None:
    job = OF_A_STEP[:12] + last.to_bytes(4, "big")
    found = [task_hub.task_id(job, item) for item in range(32)]
    assert {one[:12] for one in found} == {job[:12]}
    numbers = [int.from_bytes(one[12:], "big") for one in found]
    assert numbers == [(last + item) % (1 << 32) for item in range(32)]


def test_task_ids_of_other_jobs_never_change() -> None:
    assert task_hub.task_id(OF_A_JOB, 1).hex() == "301bd357c58589a19e5359e5ae9095df"
    assert task_hub.task_id(OF_A_FILE_JOB, 7).hex() == "0cbe733864888e69a8008fccf3d2e0ce"
