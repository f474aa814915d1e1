"""Handles the lifecycle of slots: they join, disconnect and end, and their attempts are settled.

Does no I/O. Used by `machine`. The attempts of a slot are settled when its agent reports that its
process has ended and its link was read to the end: only then is every report of the slot known.
"""

from kilnwork.api import attempts, reasons
from kilnwork.dispatch.machine import (
    assignment,
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

_A = transition_table.AttemptState
_I = records.Intent
_R = reasons.Reason
_SIGKILLED = 128 + 9

FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 5.0
"""Maximum seconds of the pauses between slots that cannot be opened: each is twice the one
before.
"""


def join(mem: memory.Memory, item: inputs.SlotJoined, now: inputs.Moment) -> None:
    """Let a slot join, for the first time or again."""
    slot = mem.slots.get(item.slot)
    if slot is None:
        message = "the dispatcher has not asked for this slot"
        mem.send(instructions.CloseLink(item.link, "unknown", message))
        return
    # The end of the old connection may be noticed after the new one is made.
    if slot.link:
        message = "the same slot has connected again"
        mem.send(instructions.CloseLink(slot.link, "replaced", message))
        workers.cut_off(mem, slot)
    worker = slot.worker
    slot.link = item.link
    # Voids the timer that expects it to connect.
    slot.terms += 1
    slot.take_back_sent = False
    worker.misses, worker.opens_at = 0, 0.0
    mem.slot_links[item.link] = slot
    namespace, cluster = worker.cluster.key
    submitter = records.Submitter(slot.id, namespace, item.link)
    submitter.slot = slot
    mem.submitters[item.link] = submitter
    # A slot that is back announces its waits again, after its Hello.
    for wait in slot.stack:
        wait.task.waiting = False
        slot_occupancy.stop_wanting(mem, wait)
    slot.stack.clear()
    unknown = tuple(ref for ref in item.running if not _claims(mem, slot, ref, now))
    mem.send(instructions.AttachPeer(item.link, namespace, cluster, unknown))
    _send_again(mem, slot, frozenset(item.running), now)
    slot_occupancy.end_opening(mem, slot)
    slot_occupancy.update(mem, slot)
    mem.touch(worker.cluster)
    _settle_rest(mem, worker, now)


def _claims(
    mem: memory.Memory, slot: records.Slot, ref: attempts.AttemptRef, now: inputs.Moment
) -> bool:
    """Return whether `ref` is the newest attempt of a task, and this slot has that attempt."""
    task = mem.tasks.get(ref.task)
    if task is None or task.ref != ref or not task.held:
        return False
    if slot.worker.unclaimed.pop(ref.task, None) is task:
        task.slot = slot
        slot.held[task.id] = task
    if task.slot is not slot:
        return False
    # The StopCall may have been lost with the old link.
    if task.intent is not _I.NONE:
        task_ends.send_stop(mem, task, now)
    return True


def _send_again(
    mem: memory.Memory,
    slot: records.Slot,
    theirs: frozenset[attempts.AttemptRef],
    now: inputs.Moment,
) -> None:
    """Send again the attempts of a slot that never reached it. `theirs`: the attempts that it
    has.
    """
    for task in list(slot.held.values()):
        if task.ref in theirs:
            continue
        # It had begun, so it must not be sent again: another attempt follows.
        if task.attempt_state is not _A.RESERVED:
            lost = attempts.Outcome(
                attempts.Ending.LOST, _R.WORKER_LOST, "its slot came back without it"
            )
            task_ends.conclude(mem, task, lost, now)
        elif task.intent is not _I.NONE or slot.leaving:
            task_ends.take_back(mem, task, now)
        else:
            # The waits of this slot were just forgotten: there is no attempt to be on top of.
            task.in_place = False
            mem.batch.runs.setdefault(slot.link, []).append((task, task.attempt))


def drop_overdue(mem: memory.Memory, slot: records.Slot, terms: int) -> None:
    """Have the agent kill a slot that did not connect in time."""
    if slot.terms == terms and not slot.link and mem.slots.get(slot.id) is slot:
        assignment.kill(mem, slot)


def link_closed(mem: memory.Memory, slot: records.Slot, now: inputs.Moment) -> None:
    """Handle a closed link of a slot, from which all messages were read."""
    workers.cut_off(mem, slot)
    # Now all its reports are known, and any attempt that it still holds here was not reported.
    if slot.gone is not None:
        _settle(mem, slot, slot.gone, now)
    else:
        workers.expect_return(mem, slot, now)


def process_ended(mem: memory.Memory, item: inputs.SlotGone, now: inputs.Moment) -> None:
    """Handle the agent's report that the slot's process has ended, or was never started."""
    mem.send(instructions.Acknowledge(item.link, item.serial))
    worker = mem.links.get(item.link)
    if worker is None:
        return
    slot = worker.processes.get(item.slot)
    if slot is None:
        _settle_unclaimed(mem, worker, item, now)
    # The last reports may be unread in its own link, so they decide first (`link_closed`).
    elif slot.link:
        slot.gone = item
        assignment.stop_assigning(mem, slot)
    else:
        # It is from before the restart, or never started: it holds no attempt here, and may have
        # held unclaimed attempts.
        if slot.opening:
            _settle_unclaimed(mem, worker, item, now)
            _pause(mem, worker, now)
        _settle(mem, slot, item, now)
    _settle_rest(mem, worker, now)


def _settle_rest(mem: memory.Memory, worker: records.Worker, now: inputs.Moment) -> None:
    """Settle unclaimed attempts once every slot from before the restart has joined or ended."""
    if worker.unclaimed and not any(slot.opening for slot in worker.processes.values()):
        workers.claim_timer(mem, worker, now)


def _pause(mem: memory.Memory, worker: records.Worker, now: inputs.Moment) -> None:
    """Delay the next opening of a slot on a worker, after a slot could not be opened."""
    pause = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**worker.misses)
    worker.misses = min(worker.misses + 1, 10)
    worker.opens_at = now.mono + pause
    mem.set_timer(worker.opens_at, memory.Timer.OPEN, worker)


def _settle_unclaimed(
    mem: memory.Memory, worker: records.Worker, item: inputs.SlotGone, now: inputs.Moment
) -> None:
    """Settle a slot from before the restart that has ended and never joined this dispatcher.

    The only attempt of such a slot that is known is `running`.
    """
    ref = item.running
    task = None if ref is None else worker.unclaimed.get(ref.task)
    if task is not None and task.ref == ref:
        _end_running(mem, task, item, now)


def check_silent_call(mem: memory.Memory, task: records.Task, now: inputs.Moment) -> None:
    """Handle a call whose slot has not reported anything for as long as the call may run.

    If its slot has reached the call, the call has started: its process was stopped, or native code
    holds the interpreter lock, so that the slot could not report the start.
    """
    if task.attempt_state is not _A.RESERVED:
        return
    slot = task.slot
    waits = set() if slot is None else {wait.task for wait in slot.stack}
    held = () if slot is None else slot.held.values()
    # A slot runs its calls in order, so the first that does not wait is the one that runs.
    if next((other for other in held if other not in waits), None) is task:
        task_starts.start(mem, task, now, at=now.wall)
    else:
        task_starts.watch_running(mem, task, now)


def _settle(
    mem: memory.Memory, slot: records.Slot, item: inputs.SlotGone, now: inputs.Moment
) -> None:
    """End the attempts of an ended slot, or queue them again in the same order."""
    waits = {wait.task for wait in slot.stack}
    running = mem.tasks.get(item.running.task) if item.running is not None else None
    # The agent looked at one moment, and the slot may have reported the end of that attempt since.
    if running is not None and (running.ref != item.running or running.slot is not slot):
        running = None
    held = list(slot.held.values())
    begun = _begun(held, running, waits)
    slot_occupancy.end_opening(mem, slot)
    for task in reversed(held):
        if task.intent is not _I.NONE:
            _end_stopped(mem, task, item, now)
        elif task is running:
            _end_running(mem, task, item, now)
        elif task in begun:
            # If it waited in place, the task on top may have ended the process, and would do so
            # again.
            task.alone = task.alone or task in waits
            task_starts.start(mem, task, now, at=now.wall)
            _end_innocent(mem, task, item, now)
        else:
            task_ends.take_back(mem, task, now, message="its slot ended before it started")
    # Abandoned attempts of this slot ended with the process.
    if item.proof:
        for ref in [ref for ref, task in slot.worker.unproven.items() if task.slot is slot]:
            workers.prove(mem, slot.worker, ref)
    slot_occupancy.remove(mem, slot)


def _begun(
    held: list[records.Task], running: records.Task | None, waits: set[records.Task]
) -> set[records.Task]:
    """Return the attempts that have started: in order, up to the attempt that was running."""
    begun = {task for task in held if task.attempt_state is _A.STARTED or task.in_place} | waits
    if running is not None:
        begun |= set(held[: held.index(running) + 1])
    return begun


def _end_stopped(
    mem: memory.Memory, task: records.Task, item: inputs.SlotGone, now: inputs.Moment
) -> None:
    """Conclude an attempt that was being stopped when its slot's process ended."""
    code = item.code
    stopped = attempts.Outcome(
        attempts.Ending.STOPPED, task.reason, task.message, code, proof=item.proof
    )
    task_ends.conclude(mem, task, stopped, now)


def _end_running(
    mem: memory.Memory, task: records.Task, item: inputs.SlotGone, now: inputs.Moment
) -> None:
    """Conclude the attempt that ran when its slot's process ended.

    It is lost if the slot was killed, by its agent or another process; otherwise it failed by its
    own doing. Reason WorkerLost means that the agent could not renew its lease, so the dispatcher
    was away.
    """
    if task.intent is not _I.NONE:
        _end_stopped(mem, task, item, now)
        return
    # The agent saw it running, whatever the slot still had to report.
    task_starts.start(mem, task, now, at=now.wall)
    if item.asked or item.reason == _R.WORKER_LOST:
        _end_innocent(mem, task, item, now)
        return
    if item.reason == _R.OUT_OF_MEMORY:
        kind, reason = attempts.Ending.FAILED, _R.OUT_OF_MEMORY.value
    elif item.reason or item.code == _SIGKILLED or item.code is None:
        kind, reason = attempts.Ending.LOST, item.reason or _R.PROCESS_KILLED.value
    else:
        kind, reason = attempts.Ending.FAILED, _R.SLOT_DIED.value
    outcome = attempts.Outcome(kind, reason, item.message, item.code, proof=item.proof)
    task_ends.conclude(mem, task, outcome, now)


def _end_innocent(
    mem: memory.Memory, task: records.Task, item: inputs.SlotGone, now: inputs.Moment
) -> None:
    """Conclude an attempt that had started when its slot's process ended through no fault of its
    own, as an excused loss.
    """
    reason, message = _R.WORKER_LOST, "its slot ended under another task"
    if item.reason == _R.WORKER_LOST:
        reason = _R.DISPATCHER_AWAY
        message = "its worker could not renew its lease, so it ended its tasks"
    lost = attempts.Outcome(attempts.Ending.LOST, reason, message, item.code, proof=item.proof)
    task_ends.conclude(mem, task, lost, now, excused=True)
