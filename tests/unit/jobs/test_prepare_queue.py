"""A few new jobs are prepared at a time; the others wait in order."""

from kilnwork.jobs import live_job_state, prepare_queue
from support import index_records


def fresh() -> live_job_state.Job:
    job = index_records.job()
    job.fresh = True
    return job


def test_jobs_beyond_limit_wait_in_order() -> None:
    queue = prepare_queue.PrepareQueue()
    first = [fresh() for _ in range(prepare_queue.MAX_PREPARED)]
    later = [fresh() for _ in range(3)]
    assert all(map(queue.admits, first))
    assert not any(map(queue.admits, later))
    assert queue.admits(first[0]), "it stays admitted"
    assert queue.is_waiting(later[0])
    assert queue.list_admissible() == []
    queue.remove(first[0])
    assert queue.list_admissible() == later[:1]
    assert queue.admits(later[0])
    assert not queue.is_waiting(later[0])


def test_begun_job_makes_room_for_next() -> None:
    queue = prepare_queue.PrepareQueue()
    jobs = [fresh() for _ in range(prepare_queue.MAX_PREPARED + 1)]
    admitted = [queue.admits(job) for job in jobs]
    assert admitted[-2:] == [True, False]
    jobs[0].started = 1.0
    assert queue.admits(jobs[0])
    assert queue.list_admissible() == [jobs[-1]]


def test_jobs_of_earlier_service_are_always_admitted() -> None:
    queue = prepare_queue.PrepareQueue()
    job = index_records.job()
    for _ in range(prepare_queue.MAX_PREPARED):
        queue.admits(fresh())
    assert queue.admits(job)


def test_suspended_job_takes_no_room() -> None:
    queue = prepare_queue.PrepareQueue()
    held = index_records.job(suspend=True)
    held.fresh = True
    assert not queue.admits(held)
    assert not queue.is_waiting(held)
