"""Ends attempts and tasks: stopped, finished, lost, retried, killed with their children. No I/O.

Used by `machine` and most of its parts, and by `journal.restore`. An attempt that ends is concluded
once. The consequences depend on why it was being stopped (the *intent*), on its outcome, and on the
budgets in `retries`.
"""

import msgspec

from kilnwork.api import attempts, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import (
    end_notifications,
    inputs,
    instructions,
    memory,
    records,
    retries,
    slot_occupancy,
    task_starts,
    transition_table,
    views,
)
from kilnwork.kit import ids

_S = api_task.State
_A = transition_table.AttemptState
_R = reasons.Reason
_I = records.Intent

_INTENT_REASONS: dict[records.Intent, str] = {
    _I.TIMEOUT: _R.TIMED_OUT,
    _I.PENDING_TIMEOUT: _R.PENDING_TIMED_OUT,
    _I.TOTAL_TIMEOUT: _R.TOTAL_TIMED_OUT,
    _I.DEADLOCK: _R.DEADLOCK,
    _I.CLUSTER: _R.CLUSTER_DELETED,
}
_ENDINGS = {
    attempts.Ending.SUCCEEDED: _A.SUCCEEDED,
    attempts.Ending.FAILED: _A.FAILED,
    attempts.Ending.LOST: _A.LOST,
    attempts.Ending.STOPPED: _A.STOPPED,
}


def stop(
    mem: memory.Memory,
    task: records.Task,
    now: inputs.Moment,
    *,
    intent: records.Intent,
    reason: str,
    message: str,
) -> None:
    """End a task for the reason `intent`: at once if no attempt runs, otherwise by stopping the
    attempt.
    """
    if task.state.final or task.intent >= intent:
        return
    task.intent = intent
    if not task.held:
        # False is left from an earlier attempt that was abandoned and may still run.
        proven = task.stopped is not False
        _conclude_stopped(mem, task, now, reason=reason, message=message, proof=proven)
        return
    task.reason, task.message = reason, message
    if intent is _I.KILL:
        mem.move(task, _S.KILLING)
    mem.mark(task)
    send_stop(mem, task, now)


def send_stop(mem: memory.Memory, task: records.Task, now: inputs.Moment) -> None:
    """Have the worker stop the attempt and prove its end; set the deadline for the proof.

    A call is first asked to end by itself; its slot is killed after the grace period.
    """
    grace, reason = task.spec.timeouts.kill_grace_seconds, task.reason or _R.KILLED
    if task.slot is not None:
        if task.slot.link:
            mem.send(instructions.StopCall(task.slot.link, task.ref, reason))
        # Also without a link: the agent can kill the slot while the slot is cut off.
        mem.set_timer(now.mono + grace, memory.Timer.GRACE, task, attempt=task.attempt)
        mem.touch(task.cluster)  # tasks that are queued behind it may run elsewhere
    # A call of a worker that no slot has claimed since a restart is stopped in
    # `slot_lifecycle._claims`.
    elif (
        (task.template is None or task.cluster.is_executor)
        and task.worker is not None
        and task.worker.link
    ):
        mem.send(instructions.StopAttempt(task.worker.link, task.ref, grace, reason))
    # One lease more than the grace period: a worker that cannot reach us ends its attempts with its
    # lease.
    due = now.mono + grace + mem.lease_s
    mem.set_timer(due, memory.Timer.CONFIRM, task, attempt=task.attempt)


def conclude(
    mem: memory.Memory,
    task: records.Task,
    outcome: attempts.Outcome,
    now: inputs.Moment,
    *,
    reported: bool = False,
    excused: bool = False,
) -> None:
    """Conclude the newest attempt: finish the task, or let it wait for the next attempt.

    `reported`: its worker reported the outcome. If a worker reports WorkerLost, it ended the
    attempt because it could not renew a lease that has not ended here: the dispatcher did not
    respond. `excused`: the attempt is a loss that does not count.
    """
    if reported and outcome.reason == _R.WORKER_LOST:
        excused = True
        outcome = msgspec.structs.replace(outcome, reason=_R.DISPATCHER_AWAY.value)
    before_start = task.attempt_state is _A.RESERVED
    # Only the attempt after a loss may continue the work that this one has begun outside.
    if outcome.ending is not attempts.Ending.LOST:
        task.handover = None
    elif not (before_start or task.handover or task.spec.may_repeat):
        outcome = _not_to_be_repeated(outcome)
    # The end overtook the report of the start, which slots send for long calls only.
    if before_start and (outcome.ending is attempts.Ending.SUCCEEDED or outcome.started):
        task_starts.start(mem, task, now, at=outcome.started or now.wall)
        before_start = False
    mem.move_attempt(task, _ENDINGS[outcome.ending])
    release(mem, task, proof=outcome.proof)
    task.exit_code = outcome.exit_code
    task.usage = outcome.usage
    task.stopped = outcome.proof
    # Even if it was being stopped: it ended before it read the order.
    if outcome.ending is attempts.Ending.SUCCEEDED:
        _succeed(mem, task, outcome, now)
        return
    # A success needs no row of its own: no other attempt follows, so the task's row has it.
    _remember(mem, task, outcome, now)
    if task.intent is not _I.NONE:
        _conclude_intent(mem, task, outcome, now)
    elif outcome.ending is attempts.Ending.FAILED:
        _fail(mem, task, outcome, now)
    else:
        # An executor of the manager has made an object that other clients can end before it starts,
        # again and again.
        made = task.cluster.is_executor and task.spec.executor not in api_task.OUTSIDE
        unstarted = before_start and not made
        # A lost worker may have started it without reporting that.
        task.unstarted += unstarted and reported
        excused = excused or unstarted or mem.closing or _by_us(task.worker, outcome)
        _lose(mem, task, outcome, now, excused=excused)


def _not_to_be_repeated(outcome: attempts.Outcome) -> attempts.Outcome:
    """Return the outcome to store for a lost attempt that must not be repeated.

    Its request may have had its effect.
    """
    return msgspec.structs.replace(
        outcome,
        ending=attempts.Ending.FAILED,
        reason=_R.EXECUTOR_LOST.value,
        message=f"{outcome.message}; it may have been sent, and is not declared idempotent",
        may_retry=False,
    )


def _by_us(worker: records.Worker | None, outcome: attempts.Outcome) -> bool:
    """Return whether a loss is excused: the dispatcher was away, or the worker was to be
    removed.
    """
    if worker is None:
        return False
    return worker.from_before or (worker.draining and outcome.reason in _WITH_THE_WORKER)


_WITH_THE_WORKER = (_R.WORKER_LOST, _R.WORKER_STOPPING)


def _succeed(
    mem: memory.Memory, task: records.Task, outcome: attempts.Outcome, now: inputs.Moment
) -> None:
    if outcome.delegate is None:
        task.result = outcome.result
        message = outcome.message
        finish(mem, task, now, state=_S.SUCCESS, reason=outcome.reason, message=message)
    # A running timeout came too late: the attempt has returned.
    elif task.intent in _GO_ON:
        task.intent = _I.NONE
        task.delegate = outcome.delegate
        task.reason = _R.DELEGATED
        task.message = f"its outcome is that of {ids.task_text(outcome.delegate)}"
        # `call_reports` may put in what the journal knows; `dependencies.settle` links it.
        mem.delegating[task] = None
        if task.family is not None:
            _kill_unrequested(mem, task, task.family, now)
    else:
        _conclude_intent(mem, task, outcome, now)


_GO_ON = (_I.NONE, _I.TIMEOUT)


def take_back(
    mem: memory.Memory, task: records.Task, now: inputs.Moment, *, message: str = ""
) -> None:
    """Put a task that its slot never started back into the queue, or end it if it is being stopped.

    This counts as no attempt.
    """
    mem.move_attempt(task, _A.LOST)
    task.unstarted += 1
    release(mem, task, proof=True)
    if task.intent is not _I.NONE:
        stopped = attempts.Outcome(attempts.Ending.STOPPED, task.reason, task.message)
        _conclude_intent(mem, task, stopped, now)
    else:
        _wait_again(mem, task, now, message=message)


def _wait_again(
    mem: memory.Memory, task: records.Task, now: inputs.Moment, *, message: str
) -> None:
    mem.move(task, _S.PENDING)
    task.reason, task.message = _R.TAKEN_BACK, message
    # The timer may have fired while an attempt was reserved; it is not set a second time.
    if _waited_too_long(task, now):
        stop_pending(mem, task, now)
    else:
        task_starts.enqueue(mem, task, front=True)


def release(mem: memory.Memory, task: records.Task, *, proof: bool) -> None:
    """Free the task's slot. Without proof of the attempt's end, the worker's capacity stays taken
    until there is a proof or the worker is lost.
    """
    worker = task.worker
    if task.slot is not None:
        slot_occupancy.release_attempt(mem, task, task.slot, proof=proof)
    elif worker is not None:
        if worker.held.get(task.id) is task:
            del worker.held[task.id]
            worker.parked.discard(task.id)
            if not proof:
                worker.unproven[task.ref] = task
        worker.unclaimed.pop(task.id, None)
        mem.touch(worker.cluster)


def _remember(
    mem: memory.Memory, task: records.Task, outcome: attempts.Outcome, now: inputs.Moment
) -> None:
    mem.batch.past.append(
        records.PastAttempt(
            task_row=task.row,
            attempt=task.attempt,
            worker_row=task.worker.row if task.worker else None,
            reserved=task.reserved or now.wall,
            started=task.attempt_started,
            finished=now.wall,
            ending=outcome.ending.value,
            reason=outcome.reason,
            message=outcome.message,
            exit_code=outcome.exit_code,
            cpu_seconds=None if outcome.usage is None else outcome.usage.cpu_s,
            peak_bytes=None if outcome.usage is None else outcome.usage.peak_bytes,
        )
    )


def _conclude_intent(
    mem: memory.Memory, task: records.Task, outcome: attempts.Outcome, now: inputs.Moment
) -> None:
    """Conclude an attempt that was being stopped."""
    if task.intent is _I.TIMEOUT:
        task.intent = _I.NONE
        # A lost worker kills its attempts before its lease ends, so a retry may follow.
        proof = outcome.proof or outcome.ending is attempts.Ending.LOST
        failure = attempts.Ending.FAILED
        code = outcome.exit_code
        timed_out = attempts.Outcome(failure, _R.TIMED_OUT, task.message, code, proof=proof)
        _fail(mem, task, timed_out, now)
        return
    failed_itself = outcome.ending is attempts.Ending.FAILED
    # It failed for good before it read the kill, and the failure is what a user wants to know.
    if task.intent is _I.KILL and failed_itself and not _would_retry(task, outcome):
        task.failures += 1
        _finish_failed(mem, task, outcome, now)
        return
    reason = _INTENT_REASONS.get(task.intent, task.reason)
    message = task.message
    if not outcome.proof:
        message = "; ".join(part for part in (message, outcome.message) if part)
    _conclude_stopped(mem, task, now, reason=reason, message=message, proof=outcome.proof)


def _conclude_stopped(
    mem: memory.Memory,
    task: records.Task,
    now: inputs.Moment,
    *,
    reason: str,
    message: str,
    proof: bool,
) -> None:
    """Finish a stopped task: as Killed if it was killed, otherwise as Failed.

    `proof`: False if it is unknown whether any of its processes still runs.
    """
    task.stopped = proof
    if task.intent is not _I.KILL:
        finish(mem, task, now, state=_S.FAILED, reason=reason, message=message)
        return
    if task.state is not _S.KILLING:
        mem.move(task, _S.KILLING)
    if not proof:
        reason = _R.UNCONFIRMED
        message = message or "no worker has proved that nothing of it is left"
    finish(mem, task, now, state=_S.KILLED, reason=reason, message=message)


def _would_retry(task: records.Task, outcome: attempts.Outcome) -> bool:
    return outcome.may_retry and retries.retries_failure(
        task.spec.retry,
        failures=task.failures + 1,
        reason=outcome.reason,
        exit_code=outcome.exit_code,
        requested=outcome.requested_retry,
    )


def _fail(
    mem: memory.Memory, task: records.Task, outcome: attempts.Outcome, now: inputs.Moment
) -> None:
    # Without proof the attempt may still run, and the next one would run beside it.
    retried = outcome.proof and _would_retry(task, outcome)
    task.failures += 1
    if not retried:
        _finish_failed(mem, task, outcome, now)
        return
    delay = retries.failure_delay_s(task.spec.retry, task.failures, mem.entropy)
    back_off(mem, task, now, delay_s=delay, why=_why(outcome))


def _finish_failed(
    mem: memory.Memory, task: records.Task, outcome: attempts.Outcome, now: inputs.Moment
) -> None:
    """Finish a task as Failed; the error of a call is stored in place of a result."""
    if task.template is not None:
        task.result = outcome.result
    reason, message = outcome.reason, outcome.message
    finish(mem, task, now, state=_S.FAILED, reason=reason, message=message)


def _lose(
    mem: memory.Memory,
    task: records.Task,
    outcome: attempts.Outcome,
    now: inputs.Moment,
    *,
    excused: bool,
) -> None:
    """Handle the loss of an attempt; it counts unless it is excused, up to `MAX_EXCUSED` times."""
    # The next attempt needs no proof: a worker ends its attempts before its lease ends here.
    if excused and task.excused < retries.MAX_EXCUSED:
        task.excused += 1
        _wait_again(mem, task, now, message=outcome.message)
        return
    task.losses += 1
    retry = task.spec.retry
    if not retries.retries_loss(retry, losses=task.losses):
        message = (
            f"lost {task.losses} times, maxLosses is {retry.max_losses}; last: {_why(outcome)}"
        )
        finish(mem, task, now, state=_S.FAILED, reason=_R.LOST_TOO_OFTEN, message=message)
        return
    delay = retries.loss_delay_s(retry, task.losses, mem.entropy)
    back_off(mem, task, now, delay_s=delay, why=_why(outcome))


def _why(outcome: attempts.Outcome) -> str:
    return f"{outcome.reason}: {outcome.message}" if outcome.message else outcome.reason


def back_off(
    mem: memory.Memory, task: records.Task, now: inputs.Moment, *, delay_s: float, why: str
) -> None:
    """Let a task wait `delay_s` before its next attempt."""
    mem.move(task, _S.PENDING)
    task.reason = _R.RETRY_BACKOFF
    task.message = f"attempt {task.attempt} ended with {why}"
    if delay_s <= 0:
        task_starts.enqueue(mem, task)
        return
    task.due = now.wall + delay_s
    mem.set_timer(now.mono + delay_s, memory.Timer.RETRY, task, attempt=task.attempt)


def _waited_too_long(task: records.Task, now: inputs.Moment) -> bool:
    limit = task.spec.timeouts.pending_seconds
    if limit is None or task.started is not None or task.suspended:
        return False
    return now.wall >= task.pending_since + limit


def stop_pending(mem: memory.Memory, task: records.Task, now: inputs.Moment) -> None:
    """Fail a task that has waited longer than its timeout for pending tasks allows."""
    message = f"not started within {task.spec.timeouts.pending_seconds:g} s"
    waits = views.shown_reason(task)
    if waits is not None:
        message += f": {waits[0]}: {waits[1]}"
    # False stays: an earlier attempt was abandoned.
    if task.stopped is None:
        task.stopped = True
    finish(mem, task, now, state=_S.FAILED, reason=_R.PENDING_TIMED_OUT, message=message)


def finish(
    mem: memory.Memory,
    task: records.Task,
    now: inputs.Moment,
    *,
    state: api_task.State,
    reason: str,
    message: str,
) -> None:
    """Finish the run of a task for good, in a final state."""
    mem.move(task, state)
    task.reason, task.message = reason, message
    # The wall clock may have been set back since.
    task.finished = max(now.wall, task.started or task.created)
    task.due = 0.0
    if task.ticket is not None:
        task.cluster.queue.remove(task)
        mem.batch.clusters.add(task.cluster)
    if task.declared:
        task.cluster.declared.discard(task)
    mem.batch.finals.append(task)
    end_notifications.notify(mem, task)
    if task.cache_key and state is _S.SUCCESS:
        mem.cache_result(task)
    if state is _S.SUCCESS and task.family is not None:
        _kill_unrequested(mem, task, task.family, now)


def _kill_unrequested(
    mem: memory.Memory, parent: records.Task, family: records.Family, now: inputs.Moment
) -> None:
    """Kill the children of earlier attempts that the successful attempt did not request."""
    # In that case there are no children but those that this attempt has requested.
    if parent.attempt == 1 and parent.run == 1:
        return
    # A copy: a child without an attempt ends at once.
    for child in list(family.members.values()):
        # Its outcome is still to become that of the parent.
        if child.id == parent.delegate:
            continue
        if child.parent is not None and child.parent.attempt < parent.attempt:
            message = f"attempt {parent.attempt} of its parent did not ask for it"
            kill(mem, child, now, reason=_R.REPLACED, message=message)


def kill(
    mem: memory.Memory, task: records.Task, now: inputs.Moment, *, reason: str, message: str = ""
) -> None:
    """Kill a task and, recursively, the unfinished children of its current run."""
    # A loop: families may be deeper than Python's recursion limit.
    front = [(task, reason, message)]
    while front:
        target, why, text = front.pop()
        if target.state.final:
            continue
        # Does nothing for a task that is being killed already, perhaps without its children.
        stop(mem, target, now, intent=_I.KILL, reason=why, message=text)
        if target.family is not None:
            text = f"parent {ids.task_text(target.id)}"
            front += [(c, _R.PARENT_KILLED, text) for c in target.family.members.values()]
