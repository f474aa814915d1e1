"""Jobs on a real dispatcher with a real worker: taken up, followed, killed, run again."""

from pathlib import Path

import msgspec

from kilnwork.api import job as api_job
from support import index_jobs_world as world

_P = api_job.Phase


async def test_a_job_runs_all_its_indexes(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        template = house.template(parallelism={"withCount": 30})
        uid = await house.put(template=template)
        done = await house.finished(uid)
        assert (done.phase, done.counts.succeeded) == (_P.SUCCEEDED, 30)
        assert sorted(house.calls) == list(range(30))
        assert done.stopped is True
        page = await house.jobs.indexes(uid, after=4, limit=3)
        assert [(one.number, one.name) for one in page] == [
            (5, "job-5"),
            (6, "job-6"),
            (7, "job-7"),
        ]
        version, views = await house.jobs.changes(0)
        assert [view.uid for view in views] == [uid]


async def test_a_job_without_parallelism_has_the_result_of_its_task(tmp_path: Path) -> None:
    async with world.house_in(tmp_path) as house:
        uid = await house.put()
        done = await house.finished(uid)
        assert done.phase is _P.SUCCEEDED
        assert done.result is not None
        assert msgspec.json.decode(done.result.data) == 0
        await house.restart()
        again = house.view(uid)
        assert (again.phase, again.result, again.counts) == (done.phase, done.result, done.counts)


async def test_a_kill_ends_what_runs(tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    async with world.house_in(tmp_path) as house:
        template = house.template(parallelism={"withCount": 50, "maxInFlight": 2})
        uid = await house.put(template=template)
        await house.until(uid, lambda view: view.counts.running == 2)
        await house.jobs.kill(uid, message="nobody wants it")
        done = await house.finished(uid)
        assert (done.phase, done.reason, done.message) == (_P.KILLED, "Killed", "nobody wants it")
        assert done.stopped is True
        assert len(house.calls) == 2
