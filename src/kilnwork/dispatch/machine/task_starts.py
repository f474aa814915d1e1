"""Begins tasks: admits and queues them, and records their starts. Does no I/O and reads no clock.

Used by `machine` and its parts, by `journal.restore`, and by the hub for the limit of size.
`assignment` reserves attempts; `task_ends` ends them.
"""

import msgspec

from kilnwork.api import attempts, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import inputs, memory, records, transition_table

_S = api_task.State
_A = transition_table.AttemptState
_R = reasons.Reason
# Used for each call: a member by way of its class takes ten times as long to look up.
_NO_FREE_SLOT = reasons.Reason.NO_FREE_SLOT
_SUBMITTED = model.SubmittedFacts.__struct_fields__


MAX_TASK_BYTES = 768 * 1024
"""Maximum bytes of spec and inputs of one task together, so that they fit a frame with room for the
other fields.
"""

_encode = msgspec.json.Encoder().encode


def too_large(spec: api_task.TaskSpec, given: bytes | None) -> str:
    """Return why a task is too large to be sent to a worker, or ""."""
    return _too_large(len(_encode(spec)) + len(given or b""))


def call_too_large(spec_bytes: int, arguments: attempts.Payload) -> str:
    """Return why a call is too large to be sent to a slot, or ""."""
    return _too_large(spec_bytes + len(arguments.data))


def _too_large(size: int) -> str:
    if size > MAX_TASK_BYTES:
        return f"spec and inputs take {size} bytes together; at most {MAX_TASK_BYTES} are allowed"
    return ""


def new_run(row: int, submission: model.Submission, cluster: records.Cluster) -> records.Task:
    """Return the record of a submitted run. `row`: its row number in the journal."""
    return records.Task(
        row,
        submission.task,
        submission.spec.run,
        submission.namespace,
        submission.name,
        cluster,
        submission.declared,
        submission.spec,
        inputs=submission.inputs,
        arguments=submission.arguments,
        pending_since=submission.pending_since or 0.0,
        **{name: getattr(submission, name) for name in _SUBMITTED},
    )


def admit(mem: memory.Memory, task: records.Task, now: inputs.Moment) -> None:
    """Admit a new run: write it, set its deadlines, and queue it for a slot."""
    task.created = now.wall
    # A time in the future, by a clock that was set back, would make its timeouts longer.
    task.pending_since = min(task.pending_since or now.wall, now.wall)
    mem.tasks[task.id] = task
    mem.prepare(task)
    if task.declared:
        task.cluster.declared.add(task)
    mem.mark(task)
    watch_deadlines(mem, task, now)
    enqueue(mem, task)


def watch_deadlines(mem: memory.Memory, task: records.Task, now: inputs.Moment) -> None:
    """Set the timers of a task that count from when its run became pending."""
    timeouts = task.spec.timeouts
    age, resumptions = max(0.0, now.wall - task.pending_since), task.resumptions
    if timeouts.pending_seconds is not None and task.started is None:
        mem.set_timer(
            now.mono + timeouts.pending_seconds - age,
            memory.Timer.PENDING,
            task,
            attempt=resumptions,
        )
    if timeouts.total_seconds is not None:
        mem.set_timer(
            now.mono + timeouts.total_seconds - age, memory.Timer.TOTAL, task, attempt=resumptions
        )


def enqueue(mem: memory.Memory, task: records.Task, *, front: bool = False) -> None:
    """Queue a pending task for a slot, unless it is suspended or waits for its inputs."""
    if task.suspended:
        task.due = 0.0
        _hold(mem, task)
        return
    if task.unmet:
        task.reason = _R.WAITING_FOR_INPUT
        task.message = "a task whose result it takes is not over yet"
        return
    queue, priority = task.cluster.queue, task.spec.priority
    if front:
        queue.push_front(task, priority=priority)
    else:
        queue.push(task, priority=priority)
    # A task that goes back to the front keeps the reason for which it was taken back.
    if not front:
        task.reason, task.message = _NO_FREE_SLOT, ""
    task.due = 0.0
    mem.touch(task.cluster)
    # After it has its ticket: only queued tasks can be taken in place.
    if task.id in mem.waits_by_task:
        _offer(mem, task)


def _offer(mem: memory.Memory, task: records.Task) -> None:
    """Offer a task to slots whose attempts wait for it and may run it in place."""
    for wait in mem.waits_by_task[task.id]:
        wait.ready[task.id] = task
        if wait.task.slot is not None:
            mem.waiting_slots[wait.task.slot] = None


def suspend(mem: memory.Memory, task: records.Task) -> None:
    """Start no attempt of the task until it is resumed; a running attempt continues."""
    task.suspended = True
    mem.mark(task)
    # In any other state it needs no slot now; `enqueue` holds it back when it needs one again.
    if task.state is _S.PENDING:
        task.cluster.queue.remove(task)
        mem.batch.clusters.add(task.cluster)
        _hold(mem, task)


def resume(mem: memory.Memory, task: records.Task, now: inputs.Moment) -> None:
    """Let attempts of a suspended task start again.

    If it is pending, its timeouts restart, so the time until now does not count.
    """
    task.suspended = False
    mem.mark(task)
    if task.state is not _S.PENDING:
        return
    task.pending_since = now.wall
    # This voids earlier timers.
    task.resumptions += 1
    watch_deadlines(mem, task, now)
    if task.due > now.wall:
        task.reason = _R.RETRY_BACKOFF
        task.message = f"attempt {task.attempt} is over; the next one waits its delay"
    else:
        enqueue(mem, task)


def _hold(mem: memory.Memory, task: records.Task) -> None:
    task.reason = _R.SUSPENDED
    task.message = "spec.suspend is true" if task.declared else "`kiln suspend` holds it back"
    mem.mark(task)


def start(mem: memory.Memory, task: records.Task, now: inputs.Moment, *, at: float) -> None:
    """Record that the newest attempt of a task started at `at`, by the worker's wall clock."""
    # Many reports imply that an attempt runs, and may overtake one another: the first one counts.
    if task.attempt_state is not _A.RESERVED:
        return
    staging = task.state is _S.STAGING
    # A task that is being killed stays so: only its attempt has started.
    mem.move_attempt(task, _A.STARTED, state=_S.RUNNING if staging else None)
    # The clock of the worker may differ from ours: never before the reservation nor after now.
    moment = max(task.reserved or now.wall, min(at, now.wall))
    task.attempt_started = moment
    if task.started is None:
        task.started = moment
    if staging and task.intent is records.Intent.NONE:
        task.reason, task.message = _R.STARTED, ""
    watch_running(mem, task, now)


def watch_running(mem: memory.Memory, task: records.Task, now: inputs.Moment) -> None:
    """Set the timer of the running timeout, counted from the start of the attempt.

    If the start is not known when the timer is due, `slot_lifecycle.check_silent_call` handles the
    task.
    """
    limit = task.spec.timeouts.running_seconds
    if limit is None:
        return
    if task.attempt_started is None:
        # Slots report the start of long calls only, and a slot that hangs reports nothing.
        mem.set_timer(now.mono + limit, memory.Timer.SILENT, task, attempt=task.attempt)
        return
    ran_s = max(0.0, now.wall - task.attempt_started)  # below 0 if the clock was set back
    mem.set_timer(now.mono + limit - ran_s, memory.Timer.RUNNING, task, attempt=task.attempt)
