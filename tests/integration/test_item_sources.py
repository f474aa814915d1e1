"""What the journal keeps of the items of large jobs, on a real dispatcher with a real worker."""

from pathlib import Path

from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.jobs import items
from support import index_job_server as world

_P, _T = api_job.Phase, api_task.State


async def test_all_items_are_done_without_a_record_each(tmp_path: Path) -> None:
    async with world.running(tmp_path) as house:
        uid = await house.put(template=house.template(parallelism={"withCount": 300}))
        done = await house.finished(uid)
        assert (done.phase, done.counts.succeeded) == (_P.SUCCEEDED, 300)
        assert sorted(house.calls) == list(range(300))
        await house.flush()  # a Job is shown first, then dropped from memory
        assert house.services.engine.tasks == {}
        assert house.services.engine.live == {}
        pages = house.hub.participation.select("job_pages", 1, 0)
        assert len(pages) == 300 // items.PAGE_ITEMS + 1


async def test_only_some_succeeded_items_leave_a_task(tmp_path: Path) -> None:
    """And the journal grows by what an item takes, not by what a task takes."""
    for failing in (7, 301, 302):
        (tmp_path / f"fail-{failing}").touch()
    async with world.running(tmp_path, kept_tasks=20) as house:
        small, large = (
            house.template(parallelism={"withCount": n, "completionStrategy": {"maxFailed": 9}})
            for n in (2000, 2000)
        )
        await house.finished(await house.put(template=small))
        before = house.size
        uid = await house.put(template=large)
        done = await house.finished(uid)
        assert (done.phase, done.counts.succeeded, done.counts.failed) == (_P.SUCCEEDED, 1997, 3)
        assert done.failed_indexes == "7,301-302"
        await house.flush()
        kept = house.tasks(uid, 2000)
        states = list(kept.values())
        assert states.count(_T.FAILED) == 3
        assert states.count(_T.SUCCESS) == 20
        assert house.size - before < 2000 * 100
        assert house.tasks(uid, 2000) == kept


async def test_failed_items_leave_a_limited_number_of_tasks(tmp_path: Path) -> None:
    for failing in range(60):
        (tmp_path / f"fail-{failing}").touch()
    async with world.running(tmp_path, kept_tasks=20) as house:
        parallelism = {"withCount": 61, "completionStrategy": {"maxFailed": 60}}
        template = house.template(parallelism=parallelism, maxAttempts=2)
        uid = await house.put(template=template)
        done = await house.finished(uid)
        assert (done.phase, done.counts.failed, done.counts.retries) == (_P.SUCCEEDED, 60, 60)
        await house.flush()
        assert list(house.tasks(uid, 61).values()).count(_T.FAILED) == 20
        for failing in range(60):
            (tmp_path / f"fail-{failing}").unlink()
        await house.jobs.rerun(uid, 2)
        done = await house.until(uid, lambda view: view.phase.final and view.run == 2)
        assert (done.phase, done.counts.succeeded) == (_P.SUCCEEDED, 61)


async def test_task_with_output_or_children_is_kept(tmp_path: Path) -> None:
    (tmp_path / "print-3").touch()
    (tmp_path / "child-4").touch()
    async with world.running(tmp_path, kept_tasks=0) as house:
        uid = await house.put(template=house.template(parallelism={"withCount": 6}))
        done = await house.finished(uid)
        assert done.counts.succeeded == 6
        await house.flush()
        assert list(house.tasks(uid, 6)) == [3, 4]
