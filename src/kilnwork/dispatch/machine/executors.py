"""Executors other than the worker: each is one peer that takes every attempt it is given. Pure.

Used by `machine`. To it an executor is a worker without lease and without slots of its own: it gets
`RunAttempt` (make sure that this attempt exists) and `StopAttempt`, and reports starts and ends as
an agent does. It lives in the manager, so it cannot be lost while the dispatcher is not; what it
has created goes on without either, and is found again by name.
"""

import hashlib
import math

from kilnwork.api import task as api_task
from kilnwork.dispatch.machine import (
    completion,
    inputs,
    instructions,
    memory,
    records,
)

_I = records.Intent


def session(executor: str) -> bytes:
    """Return the session of an executor: the same in every life of the manager."""
    return hashlib.sha256(api_task.executor_queue(executor).encode()).digest()[:16]


def join(mem: memory.Memory, item: inputs.JoinExecutor, now: inputs.Moment) -> None:
    """An executor is there: it gets again what it had, and from now on what waits for it."""
    name = session(item.executor)
    worker = mem.workers.get(name)
    if worker is None:
        cluster = mem.cluster("", api_task.executor_queue(item.executor))
        worker = records.Worker(
            cluster,
            name,
            row=next(mem.worker_rows),
            name="",
            pod_uid=f"executor/{item.executor}",
            node="",
        )
        mem.workers[name] = worker
        mem.batch.workers.append(worker)
    mem.links.pop(worker.link, None)
    worker.link = item.link
    worker.slots = item.capacity
    worker.from_before = False
    worker.lease_until = math.inf
    worker.cluster.workers[name] = worker
    mem.links[item.link] = worker
    for ref, task in worker.unproven.items():
        mem.send(instructions.RunAttempt(item.link, ref, task))
        grace = task.spec.timeouts.kill_grace_seconds
        mem.send(instructions.StopAttempt(item.link, ref, grace, task.reason))
    for task in worker.held.values():
        mem.send(instructions.RunAttempt(item.link, task.ref, task))
        if task.intent is not _I.NONE:
            completion.send_stop(mem, task, now)
    mem.touch(worker.cluster)


def join_attempt(mem: memory.Memory, item: inputs.JoinAttempt) -> None:
    """The sidecar of an attempt is there: it gets the inputs, if there are any. That of an attempt
    which is over is turned away by `held_by` at whatever it asks for."""
    mem.attempt_links[item.link] = item.ref
    mem.send(instructions.Welcome(item.link, keep=(), unknown=()))
    task = mem.tasks.get(item.ref.task)
    if task is not None and task.ref == item.ref and task.inputs is not None:
        mem.send(instructions.RunAttempt(item.link, item.ref, task))


def observe(mem: memory.Memory, task: records.Task, item: inputs.Observed) -> None:
    """Note what is seen of an attempt, to be shown while it stays in this state."""
    if task.observed != item.observed:
        task.observed = item.observed
        task.placed = item.observed.node or task.placed  # stored with its start or end
        if task.declared:
            mem.batch.published.add(task.id)
