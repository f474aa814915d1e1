"""A Job starts when the dispatcher reports its Task as finished, before the Task's status does."""

from typing import Any, cast

import pytest

from kilnwork.api import job, meta, task, task_cluster
from kilnwork.controllers import caches, reconciler_context
from kilnwork.controllers.job import reconciler
from kilnwork.controllers.task import plan as task_plan
from kilnwork.dispatch import model
from kilnwork.jobs import index_job_types
from kilnwork.kit import clock, ids
from kilnwork.kube import queue
from support import view_samples

TASK = "018f3a5e-0000-7000-8000-000000000001"
JOB = "018f3a5e-0000-7000-8000-000000000002"


class PassedToEngine(Exception):
    """Raised when the Job is passed to the engine, to end the pass."""


class Engine:
    """Records the Job that it gets, and ends the pass."""

    new: index_job_types.NewIndexJob

    async def changes(self, since: int) -> tuple[int, list[index_job_types.IndexJobView]]:
        raise PassedToEngine

    async def put(self, new: index_job_types.NewIndexJob) -> index_job_types.IndexJobView:
        self.new = new
        raise PassedToEngine


async def passed_to_engine(view: model.TaskView | None) -> index_job_types.NewIndexJob:
    """Return the Job that the engine gets for a Job that depends on a Task without a status."""
    known = caches.Caches()
    load = meta.ObjectMeta(name="load", namespace="default", uid=TASK)
    known.tasks.put(task.Task(metadata=load, spec=task.TaskSpec(command=("true",))))
    spec = job.JobSpec(
        template=job.JobTemplate(task_template=task.TaskTemplate(command=("true",))),
        depends_on=(job.Dependency(kind=job.DependencyKind.TASK, name="load"),),
    )
    default = meta.ObjectMeta(name="default", namespace="default", uid="c")
    known.clusters.put(task_cluster.TaskCluster(metadata=default))
    report = meta.ObjectMeta(name="report", namespace="default", uid=JOB)
    known.jobs.put(job.Job(metadata=report, spec=spec))
    time = clock.ManualClock()
    made = reconciler.Reconciler(
        reconciler_context.ReconcilerContext(cast(Any, None), known, lambda *_: None, time),
        queue.WorkQueue(time=time),
        find_input=lambda source, namespace: task_plan.Missing(""),
        find_view=lambda uid: view if uid == TASK else None,
    )
    engine = Engine()
    with pytest.raises(PassedToEngine):
        await made.follow(cast(Any, engine))
    with pytest.raises(PassedToEngine):
        await made.reconcile(("default", "report"))
    return engine.new


async def test_job_waits_while_its_task_dependency_runs() -> None:
    for view in (None, view_samples.running(task=ids.task_id(TASK))):
        hold = (await passed_to_engine(view)).hold
        assert hold is not None
        assert hold.message == "Task load is not over yet"


async def test_job_starts_as_soon_as_the_dispatcher_reports_the_task_finished() -> None:
    view = view_samples.running(task=ids.task_id(TASK), state=task.State.SUCCESS)
    assert (await passed_to_engine(view)).hold is None
