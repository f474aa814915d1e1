"""The size of the journal for items of large jobs, on a real dispatcher with a real worker."""

from pathlib import Path

from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.jobs import item_states
from support import index_job_server

_P, _T = api_job.Phase, api_task.State


async def test_all_items_are_done_without_a_record_each(tmp_path: Path) -> None:
    async with index_job_server.running(tmp_path) as world:
        uid = await world.put(template=world.template(parallelism={"withCount": 300}))
        done = await world.wait_until_finished(uid)
        assert (done.phase, done.counts.succeeded) == (_P.SUCCEEDED, 300)
        assert sorted(world.calls) == list(range(300))
        await world.flush()  # a Job is shown first, then dropped from memory
        assert world.services.engine.tasks == {}
        assert world.services.engine.live == {}
        pages = world.hub.participation.select("job_pages", 1, 0)
        assert len(pages) == 300 // item_states.PAGE_ITEMS + 1


async def test_only_some_succeeded_items_leave_a_task(tmp_path: Path) -> None:
    """The journal grows by the size of an item, not by that of a task."""
    for failing in (7, 301, 302):
        (tmp_path / f"fail-{failing}").touch()
    async with index_job_server.running(tmp_path, kept_tasks=20) as world:
        small, large = (
            world.template(parallelism={"withCount": n, "completionStrategy": {"maxFailed": 9}})
            for n in (2000, 2000)
        )
        await world.wait_until_finished(await world.put(template=small))
        before = world.size
        uid = await world.put(template=large)
        done = await world.wait_until_finished(uid)
        assert (done.phase, done.counts.succeeded, done.counts.failed) == (_P.SUCCEEDED, 1997, 3)
        assert done.failed_indexes == "7,301-302"
        await world.flush()
        kept = world.tasks(uid, 2000)
        states = list(kept.values())
        assert states.count(_T.FAILED) == 3
        assert states.count(_T.SUCCESS) == 20
        assert world.size - before < 2000 * 100
        assert world.tasks(uid, 2000) == kept


async def test_failed_items_leave_a_limited_number_of_tasks(tmp_path: Path) -> None:
    for failing in range(60):
        (tmp_path / f"fail-{failing}").touch()
    async with index_job_server.running(tmp_path, kept_tasks=20) as world:
        parallelism = {"withCount": 61, "completionStrategy": {"maxFailed": 60}}
        template = world.template(parallelism=parallelism, maxAttempts=2)
        uid = await world.put(template=template)
        done = await world.wait_until_finished(uid)
        assert (done.phase, done.counts.failed, done.counts.retries) == (_P.SUCCEEDED, 60, 60)
        await world.flush()
        assert list(world.tasks(uid, 61).values()).count(_T.FAILED) == 20
        for failing in range(60):
            (tmp_path / f"fail-{failing}").unlink()
        await world.jobs.rerun(uid, 2)
        done = await world.until(uid, lambda view: view.phase.final and view.run == 2)
        assert (done.phase, done.counts.succeeded) == (_P.SUCCEEDED, 61)


async def test_task_with_output_or_children_is_kept(tmp_path: Path) -> None:
    (tmp_path / "print-3").touch()
    (tmp_path / "child-4").touch()
    async with index_job_server.running(tmp_path, kept_tasks=0) as world:
        uid = await world.put(template=world.template(parallelism={"withCount": 6}))
        done = await world.wait_until_finished(uid)
        assert done.counts.succeeded == 6
        await world.flush()
        assert list(world.tasks(uid, 6)) == [3, 4]
