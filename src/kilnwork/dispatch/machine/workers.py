"""Handles the lifecycle of workers: they join, renew, lose their link, come back, are lost.

Does no I/O. Used by `machine`, `slot_lifecycle`, `call_reports` and `journal.restore`. An executor
process is a worker too. Four things prove that a worker's processes are gone: a new session of the
same Pod (the container runtime ended the old container first), the container's end without a
restart, the end of the Pod, the worker's own report. An ended lease proves nothing, but it fences:
results of the worker's attempts are refused from then on.
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
    transition_table,
)
from kilnwork.kit import ids

_R = reasons.Reason


def join(mem: memory.Memory, item: inputs.Join, now: inputs.Moment) -> None:
    """Let a worker join, either a new worker or one that is back with the same session."""
    _settle_older_sessions(mem, item, now)
    worker = mem.workers.get(item.session)
    if worker is None:
        worker = _enrol(mem, item)
    elif worker.link:
        _unlink(mem, worker)
    worker.link = item.link
    worker.terms += 1
    worker.labels = dict(item.labels)
    worker.parked.clear()
    worker.slots = item.slots
    worker.from_before = False
    # Our lease counts from here, the worker's from when it sent the Hello: the worker's always ends
    # first.
    worker.lease_until = now.mono + mem.lease_s
    worker.cluster.workers[worker.session] = worker
    mem.links[item.link] = worker
    watch_lease(mem, worker)
    _resume(mem, worker, item, now)
    _resume_slots(mem, worker, item, now)
    _publish_waiting(mem, worker.cluster)
    mem.touch(worker.cluster)


def _settle_older_sessions(mem: memory.Memory, item: inputs.Join, now: inputs.Moment) -> None:
    for other in list(mem.workers.values()):
        if other.pod_uid == item.pod_uid and other.session != item.session:
            if other.link:
                closing = instructions.CloseLink(
                    other.link, "replaced", "a newer session of this Pod is connected"
                )
                mem.send(closing)
            lose(mem, other, now, proof=True, message=f"worker {other.name} was restarted")


def _unlink(mem: memory.Memory, worker: records.Worker) -> None:
    mem.links.pop(worker.link, None)
    message = "the same session has connected again"
    mem.send(instructions.CloseLink(worker.link, "replaced", message))
    worker.link = 0


def _enrol(mem: memory.Memory, item: inputs.Join) -> records.Worker:
    worker = records.Worker(
        mem.cluster(item.namespace, item.cluster),
        item.session,
        name=item.name,
        pod_uid=item.pod_uid,
        node=item.node,
    )
    mem.workers[item.session] = worker
    return worker


def _resume(
    mem: memory.Memory, worker: records.Worker, item: inputs.Join, now: inputs.Moment
) -> None:
    """Decide on each attempt that either side knows of (keep, stop, unknown); send missing
    attempts.
    """
    reported = set(item.running)
    # An attempt abandoned in a slot that lives may still run there; the agent does not list it.
    reported |= {r for r, t in worker.unproven.items() if t.slot and t.slot.id in item.processes}
    held = {task.ref: task for task in worker.held.values()}
    # This includes attempts without proof: if they were unknown, the worker would end them without
    # a report.
    keep = tuple(ref for ref in item.running if ref in held or ref in worker.unproven)
    unknown = tuple(ref for ref in item.running if ref not in held and ref not in worker.unproven)
    mem.send(instructions.Welcome(item.link, keep, unknown))
    # A Hello names all attempts that the session has, so those that it does not name are gone.
    for ref in [ref for ref in worker.unproven if ref not in reported]:
        prove(mem, worker, ref)
    # A StopAttempt may have been lost with the old link; repeating it does no harm.
    for ref, zombie in worker.unproven.items():
        if zombie.slot is not None:
            continue
        grace = zombie.spec.timeouts.kill_grace_seconds
        mem.send(instructions.StopAttempt(item.link, ref, grace, _R.KILLED))
    for ref, task in held.items():
        if ref in reported:
            if task.intent is not records.Intent.NONE:
                task_ends.send_stop(mem, task, now)
        # Ends that are not acknowledged are in the Hello too, so this attempt has never begun.
        elif task.attempt_state is transition_table.AttemptState.RESERVED:
            _send_again(mem, task, item.link, now)
        else:
            message = f"worker {worker.name} came back without it"
            task_ends.conclude(mem, task, lost(message, proof=True), now)


def _send_again(mem: memory.Memory, task: records.Task, link: int, now: inputs.Moment) -> None:
    """Send again an attempt that the worker never read, or conclude it if it is no longer
    wanted.
    """
    if task.intent is records.Intent.NONE:
        mem.send(instructions.RunAttempt(link, task.ref, task))
        return
    stopped = attempts.Outcome(attempts.Ending.STOPPED, task.reason, task.message)
    task_ends.conclude(mem, task, stopped, now)


def _resume_slots(
    mem: memory.Memory, worker: records.Worker, item: inputs.Join, now: inputs.Moment
) -> None:
    """Expect living slots to connect within a lease from now; forget slots that were requested and
    never joined.

    If a slot that has joined is not among the living, the worker will report its end.
    """
    living = frozenset(item.processes)
    for slot in list(worker.processes.values()):
        # The KillSlot was lost with the link.
        if slot.leaving and slot.id in living:
            assignment.kill(mem, slot)
        # The OpenSlot was lost, or the process ended before it could connect.
        elif slot.opening and slot.id not in living:
            slot_occupancy.remove(mem, slot)
    for name in item.processes:
        slot = worker.processes.get(name) or slot_occupancy.add(mem, worker, name)
        # The event that cut off the worker has cut off its slots, too.
        if not slot.link and not slot.leaving:
            expect_return(mem, slot, now)
    if worker.unclaimed:
        due = now.mono + mem.lease_s
        mem.set_timer(due, memory.Timer.CLAIM, worker, attempt=worker.terms)


def expect_return(mem: memory.Memory, slot: records.Slot, now: inputs.Moment) -> None:
    """Set a timer, one lease from now, at which a slot must have connected."""
    slot.terms += 1
    mem.set_timer(now.mono + mem.lease_s, memory.Timer.RETURN, slot, attempt=slot.terms)


def expect(worker: records.Worker, task: records.Task) -> None:
    """Record, after a start of the dispatcher, that this worker or a slot of it has the newest
    attempt of a task.
    """
    task.worker = worker
    # No slot of it has connected yet, so it is not known which slot has a call.
    if task.template is None or worker.cluster.is_executor:
        worker.held[task.id] = task
    else:
        worker.unclaimed[task.id] = task


def claim_timer(mem: memory.Memory, worker: records.Worker, now: inputs.Moment) -> None:
    """Conclude as lost, uncounted, the attempts of a worker that no slot has claimed.

    Does nothing while the worker is not connected: then its lease decides.
    """
    # It is disconnected again: its lease decides.
    if not worker.link:
        return
    message = f"no slot of worker {worker.name} had it after the dispatcher was away"
    outcome = attempts.Outcome(attempts.Ending.LOST, _R.DISPATCHER_AWAY, message)
    for task in list(worker.unclaimed.values()):
        task_ends.conclude(mem, task, outcome, now, excused=True)


def lost(message: str, *, proof: bool) -> attempts.Outcome:
    """Return the outcome of an attempt whose worker is lost."""
    return attempts.Outcome(attempts.Ending.LOST, _R.WORKER_LOST, message, proof=proof)


def link_closed(mem: memory.Memory, item: inputs.LinkClosed) -> None:
    """Handle a closed link; attempts continue, and the worker may come back until its lease
    ends.
    """
    worker = mem.links.pop(item.link, None)
    if worker is None:
        return
    worker.link = 0
    _publish_waiting(mem, worker.cluster)
    mem.touch(worker.cluster)


def renew(mem: memory.Memory, item: inputs.Renew, now: inputs.Moment) -> None:
    """Extend the lease of a worker by a full term.

    The timer stays, and checks the lease when it is due.
    """
    worker = mem.links.get(item.link)
    if worker is not None:
        # The worker counts from when it sent the message, which was earlier: it stops in time.
        worker.lease_until = now.mono + mem.lease_s


def watch_lease(mem: memory.Memory, worker: records.Worker) -> None:
    """Set the timer of a worker's lease, which is void when the worker joins again."""
    mem.set_timer(worker.lease_until, memory.Timer.LEASE, worker, attempt=worker.terms)


def lease_timer(mem: memory.Memory, worker: records.Worker, now: inputs.Moment) -> None:
    """Treat the worker as lost, unless its lease was renewed since the timer was set."""
    if (
        # It was lost already; it stays among `workers` only while proofs are missing.
        mem.workers.get(worker.session) is not worker
        or worker.session not in worker.cluster.workers
    ):
        return
    if worker.lease_until > now.mono:
        watch_lease(mem, worker)
        return
    if worker.link:
        mem.send(instructions.CloseLink(worker.link, "lease", "its lease has ended; connect again"))
        mem.links.pop(worker.link, None)
        worker.link = 0
    message = f"worker {worker.name} did not renew its lease of {mem.lease_s:g} s"
    if worker.from_before:
        length = f"{mem.longest_lease_s:g} s"
        message = (
            f"worker {worker.name} did not come back within {length} of the dispatcher's start"
        )
    lose(mem, worker, now, proof=False, message=message)


def renew_all(mem: memory.Memory, now: inputs.Moment) -> None:
    """Extend every worker's lease by a full term, since none could renew while the dispatcher was
    suspended.
    """
    for worker in mem.workers.values():
        worker.lease_until = max(worker.lease_until, now.mono + mem.lease_s)


def drain(mem: memory.Memory, item: inputs.Drain) -> None:
    """Drain the named workers, whose tasks continue; workers no longer named get tasks again."""
    cluster = mem.cluster(item.namespace, item.cluster)
    if cluster.draining != item.pods:
        cluster.draining = item.pods
        _publish_waiting(mem, cluster)
        mem.touch(cluster)


def set_portions(mem: memory.Memory, item: inputs.SetPortions) -> None:
    """Assign tasks that need a portion to workers on these nodes from now on; running tasks
    continue.
    """
    cluster = mem.cluster(item.namespace, item.cluster)
    if cluster.portions != item.portions:
        cluster.portions = item.portions
        mem.touch(cluster)


def worker_gone(mem: memory.Memory, item: inputs.WorkerGone, now: inputs.Moment) -> None:
    """Treat as lost each worker whose Pod is gone or whose container has ended.

    This proves that its attempts have ended too.
    """
    for worker in list(mem.workers.values()):
        if worker.pod_uid == item.pod_uid and _is_over(worker, item.ended):
            # The end of a connection may be noticed long after the end of its Pod.
            if worker.link:
                mem.send(instructions.CloseLink(worker.link, "gone", "its Pod was deleted"))
            ended_thing = "Pod" if item.ended is None else "container"
            how = "is gone" if item.ended is None else "has ended"
            message = f"the {ended_thing} of worker {worker.name} {how}"
            message += f": {item.why}" if item.why else ""
            lose(mem, worker, now, proof=True, message=message)


def _is_over(worker: records.Worker, ended: float | None) -> bool:
    """Return whether the worker's session can be the session whose container ended at `ended`.

    The API server's report about a container may be old: a worker that started later has another
    session, connected or not.
    """
    if ended is None:
        return True
    began = ids.session_began(worker.session)
    return not worker.link and began is not None and began < ended


def lose(
    mem: memory.Memory,
    worker: records.Worker,
    now: inputs.Moment,
    *,
    proof: bool,
    message: str,
) -> None:
    """Conclude all attempts of a lost worker as lost.

    Without proof of their end, the worker is remembered while a proof can still come.
    """
    if worker.link:
        mem.links.pop(worker.link, None)
        worker.link = 0
    worker.cluster.workers.pop(worker.session, None)
    for slot in list(worker.processes.values()):
        _lose_slot(mem, slot, now, proof=proof, message=message)
    for task in [*worker.held.values(), *worker.unclaimed.values()]:
        task_ends.conclude(mem, task, lost(message, proof=proof), now)
    if proof:
        for ref in list(worker.unproven):
            prove(mem, worker, ref)
    # If a task runs again, or was started again, a proof would change nothing.
    worker.unproven = {r: t for r, t in worker.unproven.items() if t.state.final and t.ref == r}
    if not worker.unproven:
        mem.workers.pop(worker.session, None)
    _publish_waiting(mem, worker.cluster)
    mem.touch(worker.cluster)


def _lose_slot(
    mem: memory.Memory, slot: records.Slot, now: inputs.Moment, *, proof: bool, message: str
) -> None:
    """Conclude all attempts of a slot whose worker is lost."""
    if slot.link:
        mem.send(instructions.CloseLink(slot.link, "lost", "its worker is lost"))
        cut_off(mem, slot)
    slot_occupancy.end_opening(mem, slot)
    # From the last: each goes to the front of the queue, so they keep their order.
    for task in reversed(list(slot.held.values())):
        task_ends.conclude(mem, task, lost(message, proof=proof), now)
    slot_occupancy.remove(mem, slot)


def cut_off(mem: memory.Memory, slot: records.Slot) -> None:
    """Send no more messages over the link of this slot."""
    mem.slot_links.pop(slot.link, None)
    submitter = mem.submitters.pop(slot.link, None)
    if submitter is not None:
        submitter.link = 0
    slot.link = 0
    slot_occupancy.update(mem, slot)


def prove(mem: memory.Memory, worker: records.Worker, ref: attempts.AttemptRef) -> None:
    """Record the proof that an attempt which was abandoned without proof has ended."""
    task = worker.unproven.pop(ref, None)
    if task is None:
        return
    if task.state.final and task.ref == ref and task.stopped is False:
        task.stopped = True
        mem.mark(task)
    mem.touch(worker.cluster)


def _publish_waiting(mem: memory.Memory, cluster: records.Cluster) -> None:
    """Publish that the reasons for which tasks of this cluster wait may have changed."""
    for task in cluster.declared:
        if task.ticket is not None:
            mem.batch.published.add(task.id)
