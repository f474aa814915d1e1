"""Transitions: apply events to a job's record; `step_planning` decides what follows from them.

No I/O. Used by the services, the engine and its `effect_runner`, which report requests of users,
changes of tasks and completed steps, and by `job_cleanup`. Events may come twice, late, or from
before a crash: an event that does not apply any more has no effect.
"""

from collections.abc import Iterable
from typing import cast

import msgspec

from kilnwork.api import filejobs
from kilnwork.api import task as api_task
from kilnwork.dispatch.hub import subscriptions
from kilnwork.jobs import (
    errors,
    file_job_types,
    item_source,
    item_states,
    live_job_state,
    step_planning,
)

_O = filejobs.PartOutcome
_S = item_states.ItemState
_Stage = live_job_state.Stage
_SUBMITTED = item_states.ItemState.SUBMITTED

MAX_REOPENINGS = 3
"""How often an item's task may succeed without a result before the item fails, and how often its
result may be damaged before the job fails. Both are counted together."""


def finish_step(job: live_job_state.Job, step: str, item: int = 0) -> None:
    """Record that a step is not under way any more, whether or not the step succeeded."""
    job.busy.discard((step, item))


def record_prepared(job: live_job_state.Job, *, now: float) -> None:
    """Record that the source has prepared everything that the tasks of the job's run need."""
    finish_step(job, "Prepare")
    job.prepared = True
    job.dirty = True
    if job.fresh:
        job.recovered = True  # no other service has worked on it before
    job.changed(now)


def find_recoverable(job: live_job_state.Job) -> list[int]:
    """Return the items that may have a task from an earlier process; 0 stands for the finalizer."""
    return [0, *job.items.in_state(_S.SUBMITTED)]


def record_recovered(
    job: live_job_state.Job,
    results: Iterable[item_source.ItemResult],
    changes: Iterable[tuple[int, subscriptions.Change]],
    *,
    now: float,
) -> None:
    """Record the results and unfinished tasks of a job that an earlier process has started."""
    finish_step(job, "Recover")
    job.recovered = True
    for result in results:
        if result.item == 0:
            if result.run == job.run:
                job.concluded = result
        elif result.run == job.run_of(result.item) and job.items.states[result.item] < _S.SUCCEEDED:
            step_planning.close_item(job, result)
    for item, change in changes:
        wanted = not item or job.items.states[item] < _S.SUCCEEDED or job.stage is _Stage.STOPPING
        if wanted and item not in job.tasks:
            if item and job.items.states[item] == _S.OPEN:
                job.items.set(item, _S.SUBMITTED)
            task = job.tasks[item] = live_job_state.ItemTask()
            task.failures, task.losses = change.failures, change.losses  # these were counted before
            apply_task_change(job, item, change, now=now)
    lost = [item for item in job.items.in_state(_S.SUBMITTED) if item not in job.tasks]
    for item in reversed(lost):
        job.items.reopen(item)
    job.changed(now)


def apply_task_change(
    job: live_job_state.Job, item: int, change: subscriptions.Change, *, now: float
) -> None:
    """Apply a new state of an item's task. The caller calls `job.changed`, once for all tasks that
    have changed."""
    task = job.tasks.get(item)
    if task is None or task.ended is not None:
        return
    run, over, active = job.run_of(item), change.over, change.active
    if change.run < run:
        if over:  # an earlier run of the task has ended: submit ours again
            step_planning.drop_task(job, item)
            if item and job.items.states[item] == _S.SUBMITTED:
                job.items.reopen(item)
        return
    if change.run > run:
        _adopt_run(job, item, change.run)
    failures, losses = change.failures, change.losses
    if failures != task.failures or losses != task.losses:
        job.failures += failures - task.failures
        job.loss_count += losses - task.losses
        job.dirty = True
        task.failures, task.losses = failures, losses
    task.attempt, task.worker, task.started = change.attempt, change.worker, change.started
    task.id, task.parent = change.task, change.parent
    task.message, task.state = change.message or change.reason, change.state
    if change.suspended != task.suspended:
        task.suspended = change.suspended
        (job.suspended.add if task.suspended else job.suspended.discard)(item)
    if item and active != task.active and job.items.states[item] == _SUBMITTED:
        job.active += active - task.active
        task.active = active
    if job.started is None and _has_begun(job, change):
        job.started = now
        job.dirty = True
    if over:
        task.ended = live_job_state.Ended(
            change.state, change.reason, change.message, change.stopped
        )
        job.suspended.discard(item)
        job.ended.add(item)


def _has_begun(job: live_job_state.Job, change: subscriptions.Change) -> bool:
    """Return whether the state of a task shows that a task of the job has run or is starting."""
    if not job.source.ends_with_task:
        return change.active
    at_work = change.state in (api_task.State.RUNNING, api_task.State.KILLING)
    return at_work or (change.over and change.attempt > 0)


def _adopt_run(job: live_job_state.Job, item: int, run: int) -> None:
    """Raise the run of an item to the run of its task.

    The journal's row of the job is older than the task, because it was rebuilt from the store.
    """
    job.run = max(job.run, run)
    if item:
        job.items.set(item, _S(job.items.states[item]), run)
    job.dirty = True


def apply_result(
    job: live_job_state.Job,
    item: int,
    run: int,
    result: item_source.ItemResult | None,
    *,
    now: float,
) -> None:
    """Apply the result of an item's run. `result` is None if the item's task succeeded but has
    created no result.
    """
    finish_step(job, "Settle", item)
    if run != job.run_of(item) or job.items.states[item] >= _S.SUCCEEDED:
        return
    if job.stage is _Stage.RUNNING:
        if result is None:
            _reopen_without_result(job, item, now=now)
            return
        step_planning.drop_task(job, item)
    if result is not None:
        step_planning.close_item(job, result)
    job.changed(now)


def _reopen_without_result(job: live_job_state.Job, item: int, *, now: float) -> None:
    """Reopen an item whose task succeeded without a result, in a new run of the item.

    The success alone proves nothing. After `MAX_REOPENINGS` times the task counts as failed.
    """
    times = job.reopened[item] = job.reopened.get(item, 0) + 1
    if times > MAX_REOPENINGS:
        message = f"its task succeeded {times} times without a commit record"
        job.tasks[item].ended = live_job_state.Ended(api_task.State.FAILED, "NoCommit", message)
        return
    step_planning.drop_task(job, item)
    job.items.reopen(item)
    _begin_run(job, (item,))
    job.changed(now)


def _begin_run(job: live_job_state.Job, again: Iterable[int]) -> None:
    """Begin a new run for these items, so that results of the run before do not count.

    The source is prepared again before the tasks of the run start.
    """
    job.run += 1
    for item in again:
        job.items.set(item, _S(job.items.states[item]), job.run)
    job.prepared = False
    job.dirty = True


def reopen_damaged(job: live_job_state.Job, damage: item_source.Damage, *, now: float) -> None:
    """Reopen the items whose results cannot be used; the job is finalized again after that."""
    finish_step(job, "Settle")
    step_planning.drop_task(job, 0)
    if job.stage is not _Stage.FINALIZING:
        return
    again = []
    job.source.progress = damage.progress
    for item in damage.items:
        if job.items.states[item] == _S.SUCCEEDED:
            job.counts.succeeded -= 1
            job.items.reopen(item)
            job.reopened[item] = job.reopened.get(item, 0) + 1
            again.append(item)
    _begin_run(job, again)
    worst = max(again, key=lambda item: job.reopened[item], default=0)
    if job.reopened.get(worst, 0) > MAX_REOPENINGS:
        which = f"{job.source.noun} {worst}"
        message = f"the result of {which} was damaged {MAX_REOPENINGS + 1} times: {damage.message}"
        step_planning.stop(job, _O.FAILED, file_job_types.Reason.RESULT_DAMAGED, message, now=now)
        return
    job.stage = _Stage.RUNNING
    job.changed(now)


def apply_job_result(
    job: live_job_state.Job, result: item_source.ItemResult | None, *, now: float
) -> None:
    """Apply the result of the job's run, whichever attempt has published it."""
    finish_step(job, "Settle")
    if result is None or result.run != job.run:
        return
    job.concluded = result
    task = job.tasks.get(0)
    if task is not None and task.ended is not None:
        step_planning.drop_task(job, 0)
    job.changed(now)


def cancel(job: live_job_state.Job, message: str, *, now: float) -> None:
    """Cancel a job on request of a user. Does nothing if the job has ended or is ending."""
    kill(job, file_job_types.Reason.CANCELLED, message or "cancelled", now=now)


def adjust(job: live_job_state.Job, change: file_job_types.Adjustment, *, now: float) -> None:
    """Change settings of a job. The settings of a failed job apply to a redrive.

    Raises `NotNow`, `InvalidJob`.
    """
    given = {
        name: value
        for name in change.__struct_fields__
        if (value := getattr(change, name)) is not msgspec.UNSET
    }
    if job.stage is _Stage.FINISHED:
        _check_finished_job(job, set(given))
    spec = _replace(job.spec, **given)
    try:
        msgspec.convert(msgspec.to_builtins(spec), type(spec))
    except msgspec.ValidationError as error:
        raise errors.InvalidJob(f"spec: {error}") from error
    job.spec = spec
    if job.finished is not None:
        job.end(job.finished)
    job.dirty = True
    job.changed(now)


def refuse(job: live_job_state.Job, reason: str, message: str, *, now: float) -> None:
    """Refuse a job that has not started, which ends the job."""
    job.refused = True
    job.verdict, job.reason, job.message = _O.FAILED, reason, message
    job.stage = _Stage.FINISHED
    job.waits = False
    job.counts.cancelled += job.items.cancel_open()
    job.source.record_end(job)
    job.end(now)
    job.changed(now)


def refuse_again(job: live_job_state.Job, run: int, *, now: float) -> None:
    """Refuse a new run of a job that was refused for a reason that does not change; the run ends
    like the one before.
    """
    job.run = job.base_run = run
    job.dirty = True
    refuse(job, job.reason, job.message, now=now)


def requeue(job: live_job_state.Job, *, now: float) -> None:
    """Record that the reason why a job waits has changed. The version is written too: a waiting job
    is dropped from memory, and would otherwise return to the version that users saw before."""
    job.dirty = True
    job.changed(now)


def admit(job: live_job_state.Job, *, now: float) -> None:
    """Record that a job has been admitted and may start."""
    job.waits = False
    job.admitted = now
    job.dirty = True
    job.changed(now)


def fail(job: live_job_state.Job, reason: str, message: str, *, now: float) -> None:
    """Fail a job that cannot continue. Does nothing if the job has ended or is ending."""
    if job.stage in (_Stage.RUNNING, _Stage.FINALIZING):
        step_planning.stop(job, _O.FAILED, reason, message, now=now)


def kill(job: live_job_state.Job, reason: str, message: str, *, now: float) -> None:
    """Cancel a job with a reason. Does nothing if the job has ended or is ending."""
    if job.stage in (_Stage.RUNNING, _Stage.FINALIZING):
        step_planning.stop(job, _O.CANCELLED, reason, message, now=now)


def rerun(job: live_job_state.Job, run: int, *, now: float) -> None:
    """Queue a finished job for run number `run`, in which the items that have not succeeded are run
    again."""
    _reopen(job, run)
    job.waits, job.refused = True, False
    job.admitted = job.started = None
    job.followed.clear()
    job.changed(now)


def set_items(job: live_job_state.Job, source: item_source.ItemSource, *, now: float) -> None:
    """Set the items of a job that has not started."""
    job.source = source
    job.items = item_states.Items(source.size)
    job.dirty = True
    job.changed(now)


def record_gathered(job: live_job_state.Job, trouble: str, *, now: float) -> None:
    """Record that the results for the finalizer are gathered. `trouble`: the reason why they cannot
    be passed to the finalizer, which fails the job; "" if they can.
    """
    finish_step(job, "Gather")
    if trouble and job.stage is _Stage.FINALIZING:
        step_planning.stop(job, _O.FAILED, job.source.finalizer_reason, trouble, now=now)


def _replace(spec: item_source.Policy, **given: object) -> item_source.Policy:
    return cast(item_source.Policy, msgspec.structs.replace(cast(msgspec.Struct, spec), **given))


def _check_finished_job(job: live_job_state.Job, changed: set[str]) -> None:
    where = f"job {job.id.text} is {job.phase.value}"
    if "suspend" in changed:
        raise errors.NotNow(f"{where}: there is nothing to pause or to resume")
    if job.verdict is _O.SUCCEEDED and changed - {"ttl_seconds_after_finished"}:
        raise errors.NotNow(f"{where}: only ttlSecondsAfterFinished can be changed")


def redrive(job: live_job_state.Job, *, now: float) -> None:
    """Begin a new run of a failed or cancelled job for the items that have not succeeded; a paused
    job is resumed. Raises `NotNow`."""
    if job.stage is not _Stage.FINISHED or job.verdict is _O.SUCCEEDED or job.deleting:
        raise errors.NotNow(
            f"job {job.id.text} is {job.phase.value}: only a job that failed or was cancelled "
            "is run again; bad records of one that has succeeded go into a new one"
        )
    _reopen(job, job.run + 1)
    job.spec = _replace(job.spec, suspend=False)
    job.changed(now)


def _reopen(job: live_job_state.Job, run: int) -> None:
    job.run = job.base_run = run
    job.stage = _Stage.RUNNING
    job.verdict = job.concluded = job.finished = job.expires = None
    job.reason = job.message = job.trouble = job.first_failure = ""
    job.counts.failed = job.counts.cancelled = 0
    job.successes = 0
    job.prepared = job.recovered = job.source.ends_with_task
    job.items.reopen_all()
    job.reopened.clear()
    job.dirty = True


def delete(job: live_job_state.Job, *, now: float) -> None:
    """Mark a job as deleted, which hides it from all clients, and stop its running tasks."""
    cancel(job, "deleted", now=now)
    job.deleting = True
    job.dirty = True
    job.changed(now)


def restart_after_journal_loss(job: live_job_state.Job, *, now: float) -> None:
    """Continue the unfinished items in a new run, because the journal knows none of their tasks and
    will reuse attempt numbers."""
    job.run = job.base_run = job.run + 1
    for item in job.items.in_state(_S.OPEN):
        if job.items.runs[item]:
            job.items.set(item, _S.OPEN, 0)
    job.prepared = False
    job.dirty = True
    job.changed(now)
