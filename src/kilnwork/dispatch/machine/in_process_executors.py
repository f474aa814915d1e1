"""Executors inside the manager: how they join, and what executors and their attempts report.

Does no I/O. Used by `machine`. To the machine, an executor inside the manager is a worker whose
lease never ends and which has no slot processes; the number of its slots is its capacity. It gets
`RunAttempt` (ensure that this attempt exists) and `StopAttempt`, and reports starts and ends as an
agent does. It cannot be lost separately from the dispatcher. The objects that it has created
outlive executor and dispatcher, and are found again by name.

Executors that are processes of their own hold leases and join through `workers`; their observations
are handled here too, as are the connections of the sidecars and call processes of attempts.
"""

import hashlib
import math

import msgspec

from kilnwork.api import attempts, reasons
from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import (
    inputs,
    instructions,
    memory,
    records,
    submitters,
    task_ends,
    task_starts,
)

_I = records.Intent


def session(executor: str) -> bytes:
    """Return the session id of an executor, which is the same in every process of the manager."""
    return hashlib.sha256(api_task.executor_queue(executor).encode()).digest()[:16]


def join(mem: memory.Memory, item: inputs.JoinExecutor, now: inputs.Moment) -> None:
    """Let an executor join: send it its earlier attempts, and from now on waiting tasks."""
    name = session(item.executor)
    worker = mem.workers.get(name)
    if worker is None:
        cluster = mem.cluster("", api_task.executor_queue(item.executor))
        worker = records.Worker(
            cluster,
            name,
            name="",
            pod_uid=f"executor/{item.executor}",
            node="",
        )
        mem.workers[name] = worker
    # Its earlier link, if it joins again within this process.
    mem.links.pop(worker.link, None)
    worker.link = item.link
    worker.slots = item.capacity
    worker.from_before = False
    # It runs in this process, so it cannot be lost alone.
    worker.lease_until = math.inf
    worker.cluster.workers[name] = worker
    mem.links[item.link] = worker
    for ref, task in worker.unproven.items():
        # Run before Stop: a new executor process knows no attempt that it could stop.
        mem.send(instructions.RunAttempt(item.link, ref, task))
        grace = task.spec.timeouts.kill_grace_seconds
        mem.send(instructions.StopAttempt(item.link, ref, grace, task.reason))
    for task in worker.held.values():
        mem.send(instructions.RunAttempt(item.link, task.ref, task))
        if task.intent is not _I.NONE:
            task_ends.send_stop(mem, task, now)
    mem.touch(worker.cluster)


def join_attempt(mem: memory.Memory, item: inputs.JoinAttempt) -> None:
    """Let the sidecar of an attempt join, and send it the inputs of the task, if there are any.

    The sidecar of an attempt that has ended is refused by `held_by` with its first request.
    """
    mem.attempt_links[item.link] = item.ref
    mem.send(instructions.Welcome(item.link, keep=(), unknown=()))
    task = mem.tasks.get(item.ref.task)
    if task is not None and task.ref == item.ref and task.inputs is not None:
        mem.send(instructions.RunAttempt(item.link, item.ref, task))


def join_call(mem: memory.Memory, item: inputs.JoinCall, now: inputs.Moment) -> None:
    """Let the process that runs the call of an attempt join, for the first time or again.

    It gets the call, and submits as a slot does. It is refused if the attempt has ended.
    """
    ref, link = item.ref, item.link
    task = mem.tasks.get(ref.task)
    if task is None or task.template is None or task.ref != ref or not task.held:
        namespace, cluster = item.namespace, api_task.TaskSpec().cluster_name
        mem.send(instructions.AttachPeer(link, namespace, cluster, (ref,)))
        return
    # The end of the old connection may be noticed after the new one is made.
    for other in [number for number, known in mem.attempt_links.items() if known == ref]:
        message = "the same attempt has connected again"
        mem.send(instructions.CloseLink(other, "replaced", message))
        leave_attempt(mem, other)
    mem.attempt_links[link] = ref
    mem.submitters[link] = records.Submitter(ref.task, task.namespace, link)
    mem.send(instructions.AttachPeer(link, task.namespace, task.spec.cluster_name))
    # The process exists, whether or not the executor has seen it start.
    task_starts.start(mem, task, now, at=now.wall)
    # On every connection: messages of the last one may not have arrived.
    mem.batch.runs[link] = [(task, task.attempt)]


def leave_attempt(mem: memory.Memory, link: int) -> bool:
    """Handle the closed link of a sidecar or call process; return False for a link of another
    kind.
    """
    if mem.attempt_links.pop(link, None) is None:
        return False
    submitters.detach(mem, link)
    return True


def outcome(task: records.Task, seen: attempts.Outcome) -> attempts.Outcome:
    """Return the outcome of an attempt, given the outcome that its executor observes.

    A call reports its end itself: if its process exited with 0 without a report, the call has not
    returned.
    """
    if task.template is None or task.spec.call is None:
        return seen
    if seen.ending is not attempts.Ending.SUCCEEDED:
        return seen
    message = "its process ended by itself, before the function had returned"
    return msgspec.structs.replace(
        seen, ending=attempts.Ending.FAILED, reason=reasons.Reason.SLOT_DIED, message=message
    )


def observe(mem: memory.Memory, task: records.Task, item: inputs.AttemptObserved) -> None:
    """Record an executor's observation of an attempt, to be shown while the attempt stays in this
    state.
    """
    if task.observed != item.observed:
        task.observed = item.observed
        # Stored with the start or end of the attempt.
        task.placed = item.observed.node or task.placed
        if task.declared:
            mem.batch.published.add(task.id)
    worker = task.worker
    if item.handover and item.handover != task.handover:
        task.handover = item.handover
        # Stored before it is needed: after a restart the next attempt continues with it.
        mem.batch.dirty[task] = None
    if worker is not None and item.parked != (task.id in worker.parked):
        # The state differs, so this adds or removes the task.
        worker.parked ^= {task.id}
        mem.touch(worker.cluster)
