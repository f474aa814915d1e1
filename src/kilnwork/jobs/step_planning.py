"""Plan of a job: decides from the job's record what to do next, and returns steps.

It uses no clock, no disk and no dispatcher. Used by the engine, `transitions` and `job_cleanup`.
`next_steps` may be called at any time: it does not return steps that are under way or done. The
functions of `transitions` record events. An item ends only with the result that the item source
finds. The job ends only with the result of item 0, for which the plan asks early if the job fails
or is cancelled. For sources with `ends_with_task`, the end of a task is the item's result, and the
plan itself ends the job. So after a crash at any point, journal and source lead to the same steps.
"""

from typing import NamedTuple

from kilnwork.api import filejobs, resolved_job_settings
from kilnwork.api import job as api_job
from kilnwork.api import task as api_task
from kilnwork.jobs import (
    completion,
    file_job_types,
    item_source,
    item_states,
    live_job_state,
    plan_steps,
)

_O = filejobs.PartOutcome
_E = api_job.HookEvent
_R = file_job_types.Reason
_S = item_states.ItemState
_V = completion.Verdict
# Aliases for code that runs for each item: access through the enum class takes ten times as long.
_SUCCESS = api_task.State.SUCCESS
_SUCCEEDED, _FAILED = _O.SUCCEEDED, _O.FAILED


class TaskRoom(NamedTuple):
    """Limits on the tasks that a job may have at the moment."""

    window: int
    """Default number of items with a task at once, overridden by the job's `parallelism`."""
    slots: int
    """Number of slots of the job's TaskCluster; 0 if there are none at the moment."""
    prepare: bool
    """Whether the job may be prepared, in order to begin soon."""


def next_steps(job: live_job_state.Job, room: TaskRoom, now: float) -> list[plan_steps.Step]:
    """Return the steps of a job to begin now, without steps that are under way."""
    found: list[plan_steps.Step] = []
    before = None
    while before is not job.stage and not found:
        before = job.stage
        _advance(job, found, room, now)
    if job.source.ends_with_task:
        _add_hooks(job, found)
    return found


def _add_hooks(job: live_job_state.Job, found: list[plan_steps.Step]) -> None:
    """Add the hooks for a change of the job's phase.

    They are submitted in the transaction that changes the phase, so that the phase in the journal
    says which hooks were submitted.
    """
    if job.started is not None and _E.RUNNING not in job.followed:
        _add_hook(job, found, _E.RUNNING)
    if job.stage is live_job_state.FINISHED and not job.refused:
        event = live_job_state.EVENTS[job.verdict or _O.SUCCEEDED]
        if event not in job.followed:
            _add_hook(job, found, event)


def _add_hook(
    job: live_job_state.Job, found: list[plan_steps.Step], event: api_job.HookEvent
) -> None:
    job.followed.add(event)
    found.append(plan_steps.Follow(event))


def _advance(
    job: live_job_state.Job, found: list[plan_steps.Step], room: TaskRoom, now: float
) -> None:
    """Add the steps of the job's current stage.

    The caller repeats this if no steps were added and the stage has changed.
    """
    if job.stage is live_job_state.FINISHED:
        if job.deleting:
            _add_once(job, found, plan_steps.Purge())
    elif job.waits and job.stage is live_job_state.RUNNING:
        return
    elif not job.prepared:
        if job.stage is live_job_state.STOPPING and job.fresh and not (job.busy or job.tasks):
            _finish(job, now)  # no task was submitted and nothing stored
        elif room.prepare:
            _add_once(job, found, plan_steps.Prepare())
    elif not job.recovered:
        _add_once(job, found, plan_steps.Recover())
    elif job.concluded is not None and job.stage is not live_job_state.STOPPING:
        _apply_job_result(job, job.concluded, now)
    elif job.stage is live_job_state.RUNNING:
        _run(job, found, room, now)
    elif job.stage is live_job_state.FINALIZING:
        _finalize(job, found, now)
    else:
        _stop(job, found, now)


def stop(
    job: live_job_state.Job, outcome: filejobs.PartOutcome, reason: str, message: str, *, now: float
) -> None:
    """Begin to end the job with this outcome. No item gets a task after that."""
    job.stage = live_job_state.STOPPING
    job.verdict, job.reason, job.message = outcome, reason, message
    if not (job.fresh or job.source.ends_with_task):
        job.recovered = False  # ended tasks of an earlier service may need a result
    job.dirty = True
    job.changed(now)


def _add_once(
    job: live_job_state.Job, found: list[plan_steps.Step], step: plan_steps.Step, item: int = 0
) -> None:
    key = (type(step).__name__, item)
    if key not in job.busy:
        job.busy.add(key)
        found.append(step)


def _run(job: live_job_state.Job, found: list[plan_steps.Step], room: TaskRoom, now: float) -> None:
    _settle_ended_tasks(job, found)
    if job.source.completion is not None:
        _apply_completion(job, job.source.completion, found, room=room, now=now)
        return
    failure = None if job.counts.closed == job.size else _crash_failure(job)
    failure = job.source.failure(job) or failure
    if failure is not None:
        stop(job, _O.FAILED, *failure, now=now)
        _stop(job, found, now)
    elif job.counts.closed < job.size:
        _submit(job, found, room)
    elif not job.tasks:
        _finish_items(job, found, now)


def _settle_ended_tasks(job: live_job_state.Job, found: list[plan_steps.Step]) -> None:
    for item in sorted(job.ended):
        ended = job.tasks[item].ended
        if ended is None:
            continue
        if job.source.ends_with_task:
            _close_with_task(job, item, ended)
        else:
            _settle(job, found, item, ended)


def _close_with_task(job: live_job_state.Job, item: int, ended: live_job_state.Ended) -> None:
    """End an item whose task has ended, for sources with `ends_with_task`."""
    task = job.tasks[item]
    outcome, message = _FAILED, ended.message or ended.reason
    if ended.state is _SUCCESS:
        outcome = _SUCCEEDED
    elif ended.state is api_task.State.KILLED:
        if (
            task.killed
            or job.stage is live_job_state.STOPPING
            or _completion_verdict(job) is not _V.OPEN
        ):
            outcome = _O.CANCELLED
        else:
            message = f"its task was killed: {message}"
    run = job.run_of(item)
    drop_task(job, item)
    if item:
        close_item(job, item_source.ItemResult(item, run, outcome, ended.reason, message, task))


def _completion_verdict(job: live_job_state.Job) -> completion.Verdict:
    wanted = job.source.completion
    return _V.OPEN if wanted is None else completion.decide(wanted, job.counts, job.size)


def _apply_completion(
    job: live_job_state.Job,
    wanted: resolved_job_settings.Completion,
    found: list[plan_steps.Step],
    *,
    room: TaskRoom,
    now: float,
) -> None:
    """Apply the completion rules of the source to the counts of items."""
    decided = _completion_verdict(job)
    if decided is _V.OPEN:
        _submit(job, found, room)
    elif decided is _V.ENOUGH:
        if job.tasks:
            _kill_tasks(job, found, "enough indexes have succeeded")
            return
        job.stage = live_job_state.FINALIZING
        job.dirty = True
        job.changed(now)
        _finalize(job, found, now)
    else:
        nouns = job.source.nouns
        why = completion.failure_message(wanted, job.counts, job.size, nouns=nouns)
        why = why if job.size > 1 else ""
        message = ": ".join(filter(None, (why, job.first_failure)))
        stop(job, _O.FAILED, job.source.failed_reason, message, now=now)
        _stop(job, found, now)


def _kill_tasks(job: live_job_state.Job, found: list[plan_steps.Step], message: str) -> None:
    """Add a step that kills all unfinished tasks of the job."""
    chosen = [item for item, task in job.tasks.items() if not (task.killed or task.ended)]
    for item in chosen:
        job.tasks[item].killed = True
    if chosen:
        found.append(plan_steps.Kill(tuple(chosen), message))


def close_item(job: live_job_state.Job, result: item_source.ItemResult) -> None:
    """Record the final result of an item."""
    item, counts = result.item, job.counts
    task = job.tasks.get(item)
    if task is not None and task.active:
        task.active = False
        job.active -= 1
    job.dirty = True
    state = live_job_state.STATES[result.outcome]
    job.items.set(item, state, result.run)
    if state is _S.SUCCEEDED or job.source.ends_with_task:
        job.source.count_result(result)
    if state is _S.SUCCEEDED:
        counts.succeeded += 1
        job.successes += 1
    elif state is _S.FAILED:
        counts.failed += 1
        if not job.first_failure:
            job.first_failure = job.source.failure_text(result)[:2000]
    else:
        counts.cancelled += 1


def _finish_items(job: live_job_state.Job, found: list[plan_steps.Step], now: float) -> None:
    lost, nouns = job.counts.failed + job.counts.cancelled, job.source.nouns
    if lost:
        which = f"{lost} of {job.size} {nouns}" if job.size > 1 else f"its only {job.source.noun}"
        message = f"{which} failed: {job.first_failure or f'see its {nouns}'}"
        stop(job, _O.FAILED, _R.PARTS_FAILED, message, now=now)
        _stop(job, found, now)
        return
    job.stage = live_job_state.FINALIZING
    job.dirty = True
    job.changed(now)
    _finalize(job, found, now)


def _settle(
    job: live_job_state.Job, found: list[plan_steps.Step], item: int, ended: live_job_state.Ended
) -> None:
    """Add a step that finds the result of an item whose task has ended, or creates one unless the
    task succeeded.
    """
    run = job.run_of(item)
    if ended.state is api_task.State.SUCCESS:
        _add_once(job, found, plan_steps.Settle(item, run, None, ""), item)
    else:
        message = ended.message or ended.reason
        if ended.state is api_task.State.KILLED:
            message = f"its task was killed: {message}"
        _add_once(job, found, plan_steps.Settle(item, run, _O.FAILED, message), item)


def _crash_failure(job: live_job_state.Job) -> tuple[str, str] | None:
    """Return reason and message if the circuit breaker ends the job, else None.

    It does if the allowed number of items have failed before any item succeeded.
    """
    most, failed = job.spec.max_crashes, job.counts.failed
    if not most or job.successes or failed < most:
        return None
    message = (
        f"{failed} {job.source.nouns} failed before any succeeded, maxCrashes is {most}; "
        f"{job.first_failure}"
    )
    return _R.MAPPER_CRASHES, message


def task_limit(job: live_job_state.Job, room: TaskRoom) -> int:
    """Return how many items may have a task at once; 0 while the job is paused.

    If the job has `max_crashes`, then before any item has succeeded the limit is at most the number
    of slots or the number of crashes that are still allowed, whichever is larger, so that a mapper
    which always fails is not run for every item.
    """
    if job.spec.suspend:
        return 0
    most = job.spec.parallelism or room.window
    if job.spec.max_crashes and not job.successes:
        most = min(most, max(room.slots, job.spec.max_crashes - job.counts.failed))
    return most


def _submit(job: live_job_state.Job, found: list[plan_steps.Step], room: TaskRoom) -> None:
    """Add steps that submit tasks for items, resume suspended tasks, or suspend waiting tasks above
    the job's `parallelism`.

    While the job is paused all tasks are suspended: running attempts continue, but a lost attempt
    is not repeated.
    """
    if job.spec.suspend:
        loose = (n for n, task in job.tasks.items() if not (task.suspended or task.ended))
        _suspend(job, found, tuple(loose), suspended=True)
        return
    working = len(job.tasks) - len(job.suspended)
    wanted = job.spec.parallelism
    if wanted is not None and working > wanted:
        idle = [
            item
            for item, task in job.tasks.items()
            if not (task.active or task.suspended or task.ended)
        ]
        _suspend(job, found, tuple(idle[wanted - working :]), suspended=True)
        return
    free = max(task_limit(job, room) - working, 0)
    if free and job.suspended:
        first = sorted(job.suspended, key=lambda item: (not job.tasks[item].active, item))
        again = tuple(first[:free])
        free -= len(again)
        _suspend(job, found, again, suspended=False)
    chosen: list[int] = []
    while len(chosen) < free and (item := job.items.next_open()) is not None:
        add_task(job, item)
        chosen.append(item)
    if chosen:
        found.append(plan_steps.Submit(tuple(chosen)))


def add_task(job: live_job_state.Job, item: int) -> live_job_state.ItemTask:
    """Record that an item has a task."""
    if item:
        job.items.set(item, _S.SUBMITTED)
    task = job.tasks[item] = live_job_state.ItemTask()
    return task


def _suspend(
    job: live_job_state.Job,
    found: list[plan_steps.Step],
    chosen: tuple[int, ...],
    *,
    suspended: bool,
) -> None:
    for item in chosen:
        job.tasks[item].suspended = suspended
    if suspended:
        job.suspended.update(chosen)
    else:
        job.suspended.difference_update(chosen)
    if chosen:
        found.append(plan_steps.Suspend(chosen, suspended))


def _finalize(job: live_job_state.Job, found: list[plan_steps.Step], now: float) -> None:
    if not job.source.finalizer:
        if job.source.ends_with_task:
            _conclude_with(job, _O.SUCCEEDED, now)
        else:
            _add_once(job, found, plan_steps.Settle(0, job.run, _O.SUCCEEDED, ""))
        return
    task = job.tasks.get(0)
    if task is None and job.source.results is None:
        _add_once(job, found, plan_steps.Gather())
    elif task is None:
        add_task(job, 0)
        found.append(plan_steps.Submit((0,)))
    elif task.ended is not None and not job.source.ends_with_task:
        _settle(job, found, 0, task.ended)
    elif task.ended is not None:
        drop_task(job, 0)
        if task.ended.state is api_task.State.SUCCESS:
            _conclude_with(job, _O.SUCCEEDED, now)
        else:
            message = f"the finalizer failed: {task.ended.message or task.ended.reason}"
            stop(job, _O.FAILED, job.source.finalizer_reason, message, now=now)


def _conclude_with(job: live_job_state.Job, outcome: filejobs.PartOutcome, now: float) -> None:
    """End the job with an outcome that the plan has decided without its source."""
    job.concluded = item_source.ItemResult(0, job.run, outcome, job.reason, job.message)
    _finish(job, now)


def _apply_job_result(job: live_job_state.Job, result: item_source.ItemResult, now: float) -> None:
    """End the job with the result that its source has found, and that is not in the journal yet."""
    if result.outcome is _O.SUCCEEDED and job.counts.succeeded == job.size:
        _finish(job, now)
    else:
        reason = _R.REDUCER_FAILED if job.stage is live_job_state.FINALIZING else _R.ENDED
        stop(job, result.outcome, reason, result.message, now=now)


def _stop(job: live_job_state.Job, found: list[plan_steps.Step], now: float) -> None:
    """Advance a job that is being stopped: record its outcome first, then end all tasks that could
    run or commit. For sources with `ends_with_task`, end all tasks first.
    """
    verdict = job.verdict or _O.CANCELLED
    if job.source.ends_with_task:
        _settle_ended_tasks(job, found)
        _kill_tasks(job, found, job.message or "the job was stopped")
        if not job.tasks:
            _conclude_with(job, verdict, now)
        return
    if job.concluded is None:
        _add_once(job, found, plan_steps.Settle(0, job.run, verdict, job.message))
        return
    kill = []
    for item, task in list(job.tasks.items()):
        if item and job.items.states[item] == _S.SUBMITTED:
            step = plan_steps.Settle(item, job.run_of(item), _O.CANCELLED, "the job was stopped")
            _add_once(job, found, step, item)
        elif task.ended is not None:
            drop_task(job, item)
            continue
        if task.ended is None and not task.killed:
            task.killed = True
            kill.append(item)
    if kill:
        found.append(plan_steps.Kill(tuple(kill), job.message or "the job was stopped"))
    if job.tasks or job.busy:
        return
    _finish(job, now)


def drop_task(job: live_job_state.Job, item: int) -> None:
    """Forget the ended task of an item, after its outcome has been processed."""
    task = job.tasks.pop(item, None)
    if task is not None:
        job.active -= task.active
        job.suspended.discard(item)
        job.ended.discard(item)
        job.dropped[item] = task


def _finish(job: live_job_state.Job, now: float) -> None:
    """Mark the job as finished: none of its tasks is running, and none will run."""
    result = job.concluded
    if result is not None:
        job.verdict = result.outcome
        if result.outcome is _O.SUCCEEDED:
            job.source.count_result(result)
            job.reason, job.message = result.reason, result.message
    job.counts.cancelled += job.items.cancel_open()
    job.stage = live_job_state.FINISHED
    for item in list(job.tasks):  # a finalizer that has published, and has not ended yet
        drop_task(job, item)
    job.source.record_end(job)
    job.end(now)
    job.changed(now)
