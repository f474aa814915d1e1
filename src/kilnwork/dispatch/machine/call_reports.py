"""Handles reports of slots, and of Pods that run one call: attempts that have ended, calls that are
returned unstarted, and yielded values. No I/O.

Used by `machine`. Only the newest attempt of a task may report, and only through the slot or Pod
that runs it. A late report is acknowledged; all that it can change is to prove that its attempt has
ended.
"""

from kilnwork.api import attempts, calls, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import (
    dependencies,
    end_notifications,
    inputs,
    instructions,
    memory,
    records,
    slot_occupancy,
    task_ends,
    task_starts,
    transition_table,
    workers,
)

_R = reasons.Reason
# Used for each call: a member by way of its class takes ten times as long to look up.
_SUCCESS = api_task.State.SUCCESS
_RESERVED, _OVER = transition_table.AttemptState.RESERVED, transition_table.AttemptState.SUCCEEDED
_NO_INTENT = records.Intent.NONE
_SUCCEEDED = attempts.Ending.SUCCEEDED
_OWN_ENDS = (_SUCCEEDED, attempts.Ending.FAILED)

WEIGHT = 0.2
"""Weight of the newest call in the running mean of a template: about the last dozen calls count."""


def handle_ends(mem: memory.Memory, item: inputs.CallsEnded, now: inputs.Moment) -> None:
    """Handle the report of a slot, or of the Pod of a call, that attempts have ended."""
    # For late reports as well: without an acknowledgement they would be sent again on each new
    # link.
    mem.batch.acknowledged[item.link] = item.serial
    slot = mem.slot_links.get(item.link)
    if slot is None:
        _ended_in_pod(mem, item, now)
        return
    held = slot.held
    for end in item.ends:
        ref = end.ref
        task = held.get(ref.task)
        if task is None or task.attempt != ref.attempt or task.run != ref.run:
            # The slot does not hold it any more: the attempt was abandoned, and this proves that it
            # is over.
            workers.prove(mem, slot.worker, ref)
        elif end.ending is _SUCCEEDED and task.intent is _NO_INTENT and end.delegate is None:
            _learn(task, end)
            # Any task but a plain call takes the long way.
            if task.waiting or task.in_place or task.family is not None:
                task_ends.conclude(mem, task, _outcome(end), now)
            else:
                # What `slot_occupancy.release_attempt` does; the slot's count follows the loop.
                del held[ref.task]
                _succeed(mem, task, end, now)
        else:
            _learn(task, end)
            _conclude(mem, task, end, item, now)
    if len(held) <= len(slot.stack):
        slot_occupancy.update(mem, slot)
    mem.touch(slot.worker.cluster)


def _ended_in_pod(mem: memory.Memory, item: inputs.CallsEnded, now: inputs.Moment) -> None:
    """Conclude the call of a Pod as its process reports; the Pod then exits by itself.

    An attempt that is being stopped counts as stopped, or as lost, only when its Pod has ended,
    which its executor observes.
    """
    for end in item.ends:
        task = mem.attempt_behind(item.link, end.ref)
        if task is None:
            continue
        is_lost = end.ending is attempts.Ending.LOST and task.intent is _NO_INTENT
        if is_lost or end.ending in _OWN_ENDS:
            _conclude(mem, task, end, item, now)


def _conclude(
    mem: memory.Memory,
    task: records.Task,
    end: calls.CallEnd,
    item: inputs.CallsEnded,
    now: inputs.Moment,
) -> None:
    task_ends.conclude(mem, task, _outcome(end), now)
    # `conclude` decides whether the task delegates: it may have been killed instead.
    if end.delegate is not None and task in mem.delegating:
        known = dependencies.outcome(mem, task, end.delegate)
        mem.delegating[task] = known or item.values.get(end.delegate)


def _learn(task: records.Task, end: calls.CallEnd) -> None:
    """Update the mean duration of calls of the task's template."""
    template, seconds = task.template, end.seconds
    if template is not None and seconds >= 0:
        mean = template.seconds
        template.seconds = seconds if mean is None else mean + WEIGHT * (seconds - mean)


def _succeed(
    mem: memory.Memory, task: records.Task, end: calls.CallEnd, now: inputs.Moment
) -> None:
    """Conclude a call that only ran and returned, as `task_ends.conclude` does, but in one
    step.
    """
    unreported = task.attempt_state is _RESERVED
    mem.move_attempt(task, _OVER, state=_SUCCESS)
    wall, reserved = now.wall, task.reserved
    # The slot's clock may differ from ours: never before the reservation nor after now.
    if unreported:
        started = min(wall, end.started)
        if reserved is not None and started < reserved:
            started = reserved
        task.attempt_started = started
        if task.started is None:
            task.started = started
    task.reason = end.reason
    task.message = end.message
    task.result = end.payload
    task.usage = end.usage
    task.stopped = True
    task.slot = None
    began = task.started
    task.finished = wall if began is None or began < wall else began
    mem.batch.finals.append(task)
    if task.cache_key:
        mem.cache_result(task)
    if task.declared:
        task.cluster.declared.discard(task)
    end_notifications.notify(mem, task)


def _outcome(end: calls.CallEnd) -> attempts.Outcome:
    return attempts.Outcome(
        end.ending,
        end.reason,
        end.message,
        result=end.payload,
        started=end.started,
        finished=end.started + end.seconds,
        may_retry=end.may_retry,
        delegate=end.delegate,
        usage=end.usage,
    )


def handle_returns(mem: memory.Memory, item: inputs.CallsReturned, now: inputs.Moment) -> None:
    """Put attempts that a slot returns unstarted back into the queue, at its front.

    An empty report only shows that the slot has replied to the TakeBack. The cluster is not touched
    then, so that no other TakeBack follows from this report alone.
    """
    slot = mem.slot_links.get(item.link)
    if slot is None:
        return
    # Even if the report is empty: then there was no call to return.
    slot.take_back_sent = False
    # From the last: each goes to the front of the queue, so they keep their order.
    for ref in reversed(item.refs):
        task = slot.held.get(ref.task)
        if task is not None and task.ref == ref and task.attempt_state is _RESERVED:
            task_ends.take_back(mem, task, now)


def forward_yield(mem: memory.Memory, item: inputs.Yielded, now: inputs.Moment) -> None:
    """Send a value that a generator has yielded to all submitters that get the task's result."""
    slot = mem.slot_links.get(item.link)
    ref = item.ref
    task = mem.attempt_behind(item.link, ref) if slot is None else slot.held.get(ref.task)
    if task is None or task.ref != item.ref:
        return
    task_starts.start(mem, task, now, at=now.wall)
    recipients = [] if task.submitter is None else [(task.submitter, task.number)]
    for submitter, number in (*recipients, *(task.watchers or ())):
        if submitter.link:
            mem.send(instructions.Stream(submitter.link, number, item.index, item.payload))
