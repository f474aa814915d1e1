"""Decides where tasks run: reserves attempts, opens slots, sends calls ahead and takes them back.

Does no I/O. `machine` calls `assign` once for each batch; `waits`, `slot_lifecycle` and `workers`
reserve attempts and kill slots through this module. A worker has a capacity, its `slots`. The first
task in the queue gets the worker with most free capacity: a command at once, a call if a slot
process is idle there. Where capacity is free but no process is idle, processes are opened. Where no
capacity is free, calls that are known to be short are queued in the slots themselves (sent ahead),
so that a slot never waits for the dispatcher.
"""

import heapq
from collections.abc import Iterable, Sequence

from kilnwork.api import reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import (
    inputs,
    instructions,
    memory,
    records,
    slot_occupancy,
    task_starts,
    transition_table,
)
from kilnwork.kit import ids

# Used for each call: a member by way of its class takes ten times as long to look up.
_STAGING = api_task.State.STAGING
_RESERVED, _STARTED = transition_table.AttemptState.RESERVED, transition_table.AttemptState.STARTED
_STARTING = reasons.Reason.STARTING
_NO_INTENT = records.Intent.NONE

SHORT_CALL_S = 0.010
"""Calls whose mean duration is below this number of seconds may be sent ahead (see `short`)."""

MAX_AHEAD_S = 0.050
"""Maximum seconds of work that is queued in a slot: so short that queued calls need not be
reordered when a more urgent task arrives.
"""

MIN_PENDING_AHEAD_S = 10.0
"""Minimum `timeouts.pendingSeconds` of a call that may be sent ahead: with less, it could be late,
since it waits in the queue of a slot. That wait is usually at most `MAX_AHEAD_S`, far below this.
"""

MIN_AHEAD = 2
MAX_AHEAD = 512

MIN_MOVED_S = 0.005
"""Seconds of queued work in a slot above which a part of it is moved to an idle slot. Calls that
are queued behind a blocked call are moved in any case.
"""

MAX_PROCESSES_PER_SLOT = 8
"""Maximum number of processes of a worker per slot; those beyond the slots hold attempts that wait.
It is exceeded only while no worker has an occupied slot: the waiting attempts may need a queued
task.
"""

SPARE_SLOT_S = 1.0
"""Seconds for which idle processes beyond the capacity are kept: they may be needed again soon."""


def assign(mem: memory.Memory, now: inputs.Moment) -> None:
    """Assign waiting tasks to workers and slots, in every cluster that has changed."""
    if not mem.closing:
        # A copy, because reservations touch their clusters. The touched clusters are cleared below,
        # since taking slots makes no room.
        for cluster in list(mem.starved):
            workers = [worker for worker in cluster.eligible if worker.ready]
            if not workers:
                continue
            if cluster.is_executor:
                _assign_to_executors(mem, cluster, workers, now)
            else:
                _assign_in(mem, cluster, workers, now)
    mem.starved.clear()


def _assign_in(
    mem: memory.Memory,
    cluster: records.Cluster,
    workers: Sequence[records.Worker],
    now: inputs.Moment,
) -> None:
    queue = cluster.queue
    while (task := queue.pop()) is not None:
        if not _reserve_any(mem, task, workers, now):
            # The task keeps its turn: it stays the first one.
            queue.push_front(task, priority=task.spec.priority)
            # Slots first: the call at the head has waited longest, so commands get the capacity
            # that remains.
            _open_slots(mem, cluster, workers, now)
            _reserve_for_commands(mem, cluster, workers, now)
            _send_ahead(mem, cluster, workers, now)
            break
    for worker in workers:
        if len(worker.idle) > worker.slots and not worker.spare_timer_set:
            worker.spare_timer_set = True
            mem.set_timer(now.mono + SPARE_SLOT_S, memory.Timer.SPARE, worker)
    # While calls are queued here, an idle slot gets one of these rather than one from another slot.
    if not len(queue):
        _take_back(mem, cluster, workers, now)


def _assign_to_executors(
    mem: memory.Memory,
    cluster: records.Cluster,
    workers: Sequence[records.Worker],
    now: inputs.Moment,
) -> None:
    """Assign attempts, including those of calls, to executor processes that have a free slot.

    No attempt is assigned to a process before it has a free slot.
    """
    queue = cluster.queue
    # No call is queued in an executor's process: the first free process takes the next.
    free = [worker for worker in workers if worker.slots > worker.busy]
    if not free or not len(queue):
        return
    while free and (task := queue.pop()) is not None:
        chosen = _choose(task, free, mem.entropy)
        _reserve_command(mem, task, chosen, now)
        if chosen.slots <= chosen.busy:
            free.remove(chosen)
    turns = (cluster.base or cluster).queues
    if turns:  # next time the other queues of these workers come first
        turns.remove(cluster)
        turns.append(cluster)


def _choose(
    task: records.Task, free: Sequence[records.Worker], entropy: ids.Entropy
) -> records.Worker:
    """Choose a worker for a task by labels, then by free share; among equals at random.

    The random choice keeps one worker from always being the first.
    """
    if len(free) == 1:
        return free[0]
    sent = task.spec.sent
    preferred = {} if sent is None else sent.affinity.preferred

    def rank(worker: records.Worker) -> tuple[int, float, float]:
        liked = sum(worker.labels.get(key) == value for key, value in preferred.items())
        # By share, so that a small worker and a large one fill up evenly.
        return liked, 1 - worker.busy / worker.slots, entropy.random()

    return max(free, key=rank)


def _reserve_any(
    mem: memory.Memory,
    task: records.Task,
    workers: Iterable[records.Worker],
    now: inputs.Moment,
) -> bool:
    """Reserve an attempt on the worker with most free slots, for a call only where a slot is idle.

    Returns False if there is no such worker.
    """
    best, most = None, 0
    command = task.template is None
    for worker in workers:
        if command or worker.idle:
            free = worker.slots - worker.busy
            if free > most:
                best, most = worker, free
    if best is None:
        return False
    if command:
        _reserve_command(mem, task, best, now)
    else:
        reserve(mem, task, next(iter(best.idle.values())), now)
    return True


def _reserve_for_commands(
    mem: memory.Memory,
    cluster: records.Cluster,
    workers: Sequence[records.Worker],
    now: inputs.Moment,
) -> None:
    """Reserve attempts of commands in the capacity that is left, so that calls do not hold them up.

    The call at the head of the queue gets the next free capacity if a slot may be opened for it
    then.
    """
    queue = cluster.queue
    while queue.commands and any(worker.slots > worker.busy for worker in workers):
        command = queue.pop_command()
        if command is None:
            return
        if not _reserve_any(mem, command, workers, now):
            queue.push_front(command, priority=command.spec.priority)
            return


def _reserve_command(
    mem: memory.Memory, task: records.Task, worker: records.Worker, now: inputs.Moment
) -> None:
    _begin(mem, task, worker, now)
    worker.held[task.id] = task
    mem.touch(worker.cluster)
    mem.send(instructions.RunAttempt(worker.link, task.ref, task))


def reserve(mem: memory.Memory, task: records.Task, slot: records.Slot, now: inputs.Moment) -> None:
    """Reserve an attempt of a call in a slot."""
    _begin(mem, task, slot.worker, now)
    task.slot = slot
    slot.held[task.id] = task
    # Otherwise its count cannot change; most calls come here to a slot that runs other calls.
    if not slot.occupied:
        slot_occupancy.update(mem, slot)
    runs = mem.batch.runs.get(slot.link)
    if runs is None:
        mem.batch.runs[slot.link] = [(task, task.attempt)]
    else:
        runs.append((task, task.attempt))
    if task.spec.timeouts.running_seconds is not None:
        task_starts.watch_running(mem, task, now)


def _begin(
    mem: memory.Memory, task: records.Task, worker: records.Worker, now: inputs.Moment
) -> None:
    mem.move_attempt(task, _RESERVED, state=_STAGING)
    task.reason, task.message = _STARTING, ""
    task.attempt += 1
    if not worker.row:
        worker.row = next(mem.worker_rows)
        mem.batch.workers.append(worker)
    task.worker = worker
    task.reserved = now.wall
    # A first attempt has these values from the start.
    if task.attempt > 1:
        task.observed = None
        task.placed = ""
        task.attempt_started = None
        task.exit_code = None
        task.usage = None
        task.stopped = None
        task.progress = None


def short(template: records.Template) -> bool:
    """Return whether calls of this template may be sent ahead: they are short and need not start
    soon.
    """
    seconds, pending_s = template.seconds, template.spec.timeouts.pending_seconds
    return (
        seconds is not None
        and seconds < SHORT_CALL_S
        and (pending_s is None or pending_s >= MIN_PENDING_AHEAD_S)
    )


def credit(seconds: float) -> int:
    """Return how many calls of that mean duration may be queued in a slot."""
    return max(MIN_AHEAD, min(MAX_AHEAD, int(MAX_AHEAD_S / max(seconds, 1e-6))))


def _send_ahead(
    mem: memory.Memory,
    cluster: records.Cluster,
    workers: Sequence[records.Worker],
    now: inputs.Moment,
) -> None:
    """Queue short calls in slots that run short calls, but leave one task in the cluster's queue
    for each slot that is opening.
    """
    queue = cluster.queue
    slots = [
        (len(slot.held), number, slot)
        for number, slot in enumerate(s for w in workers for s in w.processes.values())
        if _runs_short_calls(slot)
    ]
    if not slots:
        return
    heapq.heapify(slots)
    template, room = None, 0
    openings = _openings(cluster, workers)
    while len(queue) > openings:
        task = queue.pop()
        if task is None:
            return
        if task.template is not template:
            template = task.template
            room = 0
            if template is not None and template.seconds is not None and short(template):
                room = credit(template.seconds)
        held, number, slot = slots[0]
        # The slot with the least work has enough, so all have.
        if held >= room:
            queue.push_front(task, priority=task.spec.priority)
            return
        reserve(mem, task, slot, now)
        heapq.heapreplace(slots, (held + 1, number, slot))


def _runs_short_calls(slot: records.Slot) -> bool:
    """Return whether the slot's current call ends soon: it does not wait, and its template is
    short.
    """
    if not slot.held or slot.stack or not slot.link or slot.leaving:
        return False
    first = next(iter(slot.held.values()))
    return (
        first.attempt_state is _RESERVED
        and first.intent is _NO_INTENT
        and first.template is not None
        and short(first.template)
    )


def _open_slots(
    mem: memory.Memory,
    cluster: records.Cluster,
    workers: Sequence[records.Worker],
    now: inputs.Moment,
) -> None:
    """Open slot processes where capacity is free, one for each waiting call."""
    while _openings(cluster, workers) < len(cluster.queue) - cluster.queue.commands:
        best, most = None, 0
        for worker in workers:
            free = worker.slots - worker.busy
            if free > most and _may_open(worker, workers, now):
                best, most = worker, free
        if best is None:
            return
        name = mem.entropy.randbytes(16)
        slot = slot_occupancy.add(mem, best, name)
        mem.send(instructions.OpenSlot(best.link, name))
        # An agent that can open no slot reports that; this timer is for one whose report never
        # comes.
        mem.set_timer(now.mono + mem.lease_s, memory.Timer.RETURN, slot, attempt=slot.terms)


def _openings(cluster: records.Cluster, workers: Iterable[records.Worker]) -> int:
    """Return how many slots that could take waiting calls have been requested but have not
    joined.
    """
    if cluster.base is None:
        return cluster.openings
    return sum(slot.opening for worker in workers for slot in worker.processes.values())


def _may_open(
    worker: records.Worker,
    workers: Iterable[records.Worker],
    now: inputs.Moment,
) -> bool:
    if worker.opens_at > now.mono:
        return False
    if len(worker.processes) < MAX_PROCESSES_PER_SLOT * worker.slots:
        return True
    # All of them wait, perhaps for a task that is queued.
    return all(other.busy == 0 for other in workers)


def _take_back(
    mem: memory.Memory,
    cluster: records.Cluster,
    workers: Sequence[records.Worker],
    now: inputs.Moment,
) -> None:
    """Take back half of the calls that are queued in the fullest slot, for an idle or new slot.

    Takes back only calls that may run on any of the workers. A new slot is worth it only for calls
    that are queued behind a call that turned out to be long.
    """
    free = [worker for worker in workers if worker.busy < worker.slots]
    idle = any(worker.idle for worker in free)
    if not idle and not any(_may_open(worker, workers, now) for worker in free):
        return
    longest, most = None, 0
    for worker in workers:
        for slot in worker.processes.values():
            # Not counting calls that wait for others, and the one that runs.
            queued = len(slot.held) - len(slot.stack) - 1
            if queued <= most or not slot.link or slot.take_back_sent:
                continue
            # Calls of another queue may not be allowed on all of these workers.
            if (cluster.queues or cluster.base) and not _is_all_of(cluster, slot):
                continue
            if _is_blocked(slot) or (idle and _is_worth_moving(slot, queued)):
                longest, most = slot, queued
    if longest is not None:
        longest.take_back_sent = True
        mem.send(instructions.TakeBack(longest.link, (most + 1) // 2))


def _is_all_of(cluster: records.Cluster, slot: records.Slot) -> bool:
    """Return whether all calls of the slot were queued in this cluster.

    Other calls may have been queued in another cluster that has the same workers.
    """
    return all(task.cluster is cluster for task in slot.held.values())


def _is_blocked(slot: records.Slot) -> bool:
    """Return whether calls are queued behind a call that has run for long or is being stopped.

    A call that itself waits for other tasks does not block the slot.
    """
    first = next(iter(slot.held.values()))
    slow = first.attempt_state is _STARTED or first.intent is not _NO_INTENT
    return slow and not slot.stack


def _is_worth_moving(slot: records.Slot, queued: int) -> bool:
    """Return whether the `queued` calls of a slot would wait long enough to be worth moving."""
    first = next(iter(slot.held.values()))
    seconds = None if first.template is None else first.template.seconds
    return seconds is None or seconds * queued > MIN_MOVED_S


def end_spares(mem: memory.Memory, worker: records.Worker) -> None:
    """End idle slot processes beyond the worker's capacity."""
    worker.spare_timer_set = False
    for slot in list(worker.idle.values())[worker.slots :]:
        kill(mem, slot)


def kill(mem: memory.Memory, slot: records.Slot) -> None:
    """Have the agent kill a slot; its report `SlotGone` is the proof of the slot's end."""
    stop_assigning(mem, slot)
    # An agent that is away gets the message when it is back (`workers._resume_slots`).
    if slot.worker.link:
        mem.send(instructions.KillSlot(slot.worker.link, slot.id))


def stop_assigning(mem: memory.Memory, slot: records.Slot) -> None:
    """Assign no more attempts to a slot."""
    slot.leaving = True
    slot_occupancy.update(mem, slot)
