"""The status of a Job, derived from the engine's view of it, or from the reason why the engine does
not have it.

No I/O. Used by `plan` and `reconciler`. The journal is the authority: the status is a projection of
it in the terms of Furiko's API. Conditions: `Valid`, `Started`, `Finished`, `FieldsIgnored`, and
`Stopped` after a kill or an uncertain loss: whether it is certain that everything has ended.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from kilnwork.api import job, job_indexes, kind_field_effects, kinds, meta, reasons
from kilnwork.controllers import status_result_field
from kilnwork.jobs import index_job_types
from kilnwork.kit import clock

WAITING_HOLD_S = 0.5
"""Seconds for which a Job waits before its reason is written: most Jobs start sooner and need no
write."""

RUNNING_HOLD_S = 0.2
"""Seconds for which a Job runs before that is written: a shorter Job needs only the write of its
end."""

MINOR_HOLD_S = 2.0
"""Seconds between writes of counts while a Job runs."""

MAX_TASK_MESSAGE = 1024
"""Maximum length of a task's message in characters: up to twenty of them are in one object."""

_P = job.Phase

_STATES = {
    _P.QUEUED: "Queued",
    _P.STARTING: "Waiting",
    _P.PENDING: "Waiting",
    _P.RETRY_BACKOFF: "Waiting",
    _P.RETRYING: "Waiting",
    _P.RUNNING: "Running",
    _P.TERMINATING: "Running",
    _P.KILLING: "Running",
}

_RESULTS = {
    _P.SUCCEEDED: "Success",
    _P.FAILED: "Failed",
    _P.KILLED: "Killed",
    _P.ADMISSION_ERROR: "AdmissionError",
    _P.FINISHED_UNKNOWN: "FinalStateUnknown",
}

_WAITING_REASONS = {
    _P.STARTING: "PendingCreation",
    _P.PENDING: "WaitingForTasks",
    _P.RETRY_BACKOFF: "RetryBackoff",
    _P.RETRYING: "WaitingForTasks",
}


class Explanation(NamedTuple):
    """A reason, and a message with the facts."""

    reason: str
    message: str


class StatusHold(msgspec.Struct, frozen=True):
    """A change of the status that is held back before it is written.

    `sort`: the class of the change; `since`: when a change of this class was first held back;
    `first`: when any change was (both in monotonic seconds). `first` is needed for a Job of short
    tasks: it changes between Running and Pending many times a second, each time with another class.
    """

    sort: str
    since: float
    first: float


class Announcement(NamedTuple):
    """A kube event about a Job. `type`: Normal or Warning."""

    type: str
    reason: str
    message: str


def without_view(seen: job.Job, phase: job.Phase, why: Explanation, *, now: float) -> job.JobStatus:
    """Return the status of a Job whose run the engine does not have: it waits, was refused, or was
    killed before.
    """
    before = seen.status
    finished = clock.rfc3339(now) if phase.final else None
    same = before.run == seen.spec.run and before.phase == phase
    if finished is not None and same and before.finish_time:
        finished = before.finish_time
    wanted = job.JobStatus(
        phase=phase,
        state="Finished" if phase.final else _STATES[phase],
        reason=str(why.reason),
        message=why.message,
        run=seen.spec.run,
        finish_time=finished,
        observed_generation=seen.metadata.generation,
    )
    return _with_conditions(seen, wanted, stopped=None, now=now)


def from_view(seen: job.Job, view: index_job_types.IndexJobView, *, now: float) -> job.JobStatus:
    """Return the status of a Job, derived from the engine's view."""
    phase = view.phase
    counts = view.counts
    complete = phase.final or phase in (_P.TERMINATING, _P.KILLING)
    parallel = seen.spec.template is not None and seen.spec.template.parallelism is not None
    wanted = job.JobStatus(
        phase=phase,
        state="Finished" if phase.final else _STATES[phase],
        reason=str(view.reason),
        message=view.message,
        run=view.run,
        start_time=_time(view.started),
        finish_time=_time(view.finished),
        created_tasks=counts.created + counts.retries,
        running_tasks=counts.running,
        tasks=tuple(_task(seen, one) for one in view.newest if one.attempt),
        parallel_status=job.ParallelStatus(
            complete=complete, successful=(phase is _P.SUCCEEDED) if phase.final else None
        )
        if parallel
        else None,
        indexes=job.Indexes(
            total=counts.total,
            succeeded=counts.succeeded,
            failed=counts.failed,
            running=counts.running,
            failed_indexes=view.failed_indexes,
        ),
        result=status_result_field.result_for_status(view.result)
        if phase is _P.SUCCEEDED
        else None,
        observed_generation=seen.metadata.generation,
    )
    return _with_conditions(seen, wanted, stopped=view.stopped, now=now)


_TASK_STATES = {
    index_job_types.IndexState.WAITING: "Starting",
    index_job_types.IndexState.QUEUED: "Starting",
    index_job_types.IndexState.RUNNING: "Running",
}
_TASK_RESULTS = {
    index_job_types.IndexState.SUCCEEDED: "Succeeded",
    index_job_types.IndexState.FAILED: "Failed",
    index_job_types.IndexState.CANCELLED: "Killed",
}


def _task(seen: job.Job, index: index_job_types.IndexView) -> job.TaskRef:
    return job.TaskRef(
        name=index.name,
        parallel_index=_parallel_index(seen, index),
        retry_index=index.attempt - 1,
        creation_timestamp=_time(index.created),
        running_timestamp=_time(index.started),
        finish_timestamp=_time(index.finished),
        node_name=index.node,
        status=job.TaskRefStatus(
            state=_TASK_STATES.get(index.state, "Terminated"),
            result=_TASK_RESULTS.get(index.state, ""),
            reason=index.reason,
            message=index.message[:MAX_TASK_MESSAGE],
        ),
    )


def _parallel_index(seen: job.Job, index: index_job_types.IndexView) -> job.ParallelIndex | None:
    template = seen.spec.template
    if template is None or template.parallelism is None:
        return None
    if template.parallelism.with_result_of is not None:
        return job.ParallelIndex(index_number=index.number)
    return job_indexes.IndexSet(template.parallelism).status(index.number)


def _time(at: float | None) -> str | None:
    return None if at is None else clock.rfc3339(at)


def _with_conditions(
    seen: job.Job, wanted: job.JobStatus, *, stopped: bool | None, now: float
) -> job.JobStatus:
    """Return the status with Furiko's condition and the metav1 conditions."""
    return msgspec.structs.replace(
        wanted,
        condition=_condition(wanted),
        conditions=_conditions(seen, wanted, stopped=stopped, now=now),
    )


def _condition(wanted: job.JobStatus) -> job.JobCondition:
    phase = _P(wanted.phase)
    made = max((t.creation_timestamp or "" for t in wanted.tasks), default="") or None
    ran = max((t.running_timestamp or "" for t in wanted.tasks), default="") or None
    if phase.final:
        finished = job.FinishedCondition(
            latest_creation_timestamp=made,
            latest_running_timestamp=ran,
            finish_time=wanted.finish_time or "",
            result=_RESULTS[phase],
            reason=wanted.reason,
            message=wanted.message,
        )
        return job.JobCondition(finished=finished)
    if phase is _P.QUEUED:
        queueing = job.QueueingCondition(reason=wanted.reason, message=wanted.message)
        return job.JobCondition(queueing=queueing)
    if phase in _WAITING_REASONS:
        waiting = job.WaitingCondition(reason=_WAITING_REASONS[phase], message=wanted.message)
        return job.JobCondition(waiting=waiting)
    ending = phase in (_P.TERMINATING, _P.KILLING)
    running = job.RunningCondition(
        latest_task_creation_timestamp=made,
        latest_running_timestamp=ran,
        terminating_tasks=wanted.running_tasks if ending else 0,
    )
    return job.JobCondition(running=running)


def _conditions(
    seen: job.Job, wanted: job.JobStatus, *, stopped: bool | None, now: float
) -> tuple[meta.Condition, ...]:
    phase, why = _P(wanted.phase), Explanation(wanted.reason, wanted.message)
    valid = phase is not _P.ADMISSION_ERROR
    new = [
        _metav1(seen, "Valid", valid, Explanation("Valid", "") if valid else why),
        _metav1(
            seen,
            "Started",
            wanted.start_time is not None,
            why if wanted.start_time is None else Explanation(reasons.Reason.STARTED, ""),
        ),
        _metav1(seen, "Finished", phase.final, Explanation(wanted.reason or phase, wanted.message)),
    ]
    if phase.final and (phase is _P.KILLED or stopped is False):
        unconfirmed = Explanation(reasons.Reason.UNCONFIRMED, reasons.Reason.UNCONFIRMED.sentence)
        confirmed = Explanation(wanted.reason or phase, "")
        new.append(
            _metav1(seen, "Stopped", True, confirmed)
            if stopped is not False
            else _metav1(seen, "Stopped", None, unconfirmed)
        )
    new += _ignored(seen)
    before = seen.status.conditions if seen.status.run == wanted.run else ()
    known = {c.type for c in new}
    kept = tuple(c for c in before if c.type in known)
    return meta.merge_conditions(kept, tuple(new), now=clock.rfc3339(now))


def _ignored(seen: job.Job) -> Iterator[meta.Condition]:
    """Yield the condition for fields without effect.

    There is only one such field, so that the fields of each Job need not all be checked.
    """
    template, generation = seen.spec.template, seen.metadata.generation
    if template is None or not template.forbid_task_force_deletion:
        return
    found = kind_field_effects.ignored(kinds.JOBS.kind, seen.spec, generation=generation)
    if found is not None:
        yield found


def _metav1(seen: job.Job, kind: str, value: bool | None, why: Explanation) -> meta.Condition:  # noqa: FBT001 - reads as a word
    return meta.Condition(
        type=kind,
        status="Unknown" if value is None else str(value),
        reason=str(why.reason) or kind,
        message=why.message,
        observed_generation=seen.metadata.generation,
    )


def hold(
    current: job.JobStatus, wanted: job.JobStatus, *, held: StatusHold | None, now: float
) -> tuple[StatusHold | None, float | None]:
    """Decide when to write the status `wanted`: return the hold to remember, and the seconds to
    wait.

    0 means now, None that there is nothing to write. `now`: monotonic seconds.
    """
    if current == wanted:
        return None, None
    sort, delay_s = _classify(current, wanted)
    if held is None or held.sort != sort:
        held = StatusHold(sort, now, now if held is None else held.first)
    # The status does not name this run yet: the reason for waiting is written within a second.
    silent = current.run != wanted.run or not current.phase
    most_s = WAITING_HOLD_S if silent else MINOR_HOLD_S
    due = min(held.since + delay_s, held.first + max(most_s, delay_s))
    return held, max(0.0, due - now)


def _classify(current: job.JobStatus, wanted: job.JobStatus) -> tuple[str, float]:
    if _P(wanted.phase).final:
        return "final", 0.0
    if _visible_fields(current) == _visible_fields(wanted):
        return "minor", MINOR_HOLD_S
    if wanted.state in ("Queued", "Waiting"):
        return f"waiting/{wanted.run}", WAITING_HOLD_S
    return f"running/{wanted.run}", RUNNING_HOLD_S


def _visible_fields(status: job.JobStatus) -> tuple[object, ...]:
    """Return the fields of a status in which a change matters to a waiting client."""
    return status.run, status.phase, status.reason, status.observed_generation


def announcement(current: job.JobStatus, wanted: job.JobStatus) -> Announcement | None:
    """Return the kube event for the change from the status `current` to `wanted`; None if the
    change gets none.
    """
    if (current.run, current.phase) == (wanted.run, wanted.phase):
        return None
    phase = _P(wanted.phase)
    if phase in (_P.FAILED, _P.ADMISSION_ERROR, _P.FINISHED_UNKNOWN):
        return Announcement("Warning", wanted.reason or phase, wanted.message)
    if phase in (_P.KILLED, _P.SUCCEEDED):
        return Announcement("Normal", wanted.reason or phase, wanted.message)
    return None
