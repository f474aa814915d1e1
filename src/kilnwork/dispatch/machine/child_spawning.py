"""Spawns children that a running attempt requests, and finds them when a later attempt repeats the
request. No I/O.

Used by `machine`, and by `submissions`, which makes the children that are calls. A child is
identified by the parent's run and a key, so a parent that runs again finds the children of its
previous attempt.
"""

import msgspec

from kilnwork.api import reasons
from kilnwork.dispatch import model
from kilnwork.dispatch.machine import (
    end_notifications,
    families,
    inputs,
    instructions,
    memory,
    records,
    task_ends,
    task_starts,
)
from kilnwork.kit import ids

_R = reasons.Reason


def spawn(mem: memory.Memory, item: inputs.Spawn, now: inputs.Moment) -> None:
    """Create or find the requested child, and respond.

    A request that the same attempt repeats changes nothing.
    """
    parent = mem.tasks.get(item.parent.task)
    itself = mem.attempt_links.get(item.link) == item.parent
    refusal = _refusal(mem, item, parent, itself=itself)
    if refusal or parent is None:
        _respond(mem, item, 409, message=refusal)
        return
    # An attempt that asks for a child runs, though its executor may not have seen that yet.
    task_starts.start(mem, parent, now, at=now.wall)
    family = families.of_run(parent)
    known = family.members.get(item.child_key)
    found = _stored(known) if known is not None else _newest(mem, item.found)
    if found is None:
        _respond_created(mem, item, _make(mem, parent, family, item, now))
        return
    if found.digest == item.digest:
        if found.to_be_retried:
            _make_again(mem, parent, family, item, found, now)
        elif known is not None and known.parent != item.parent:
            # Requested by this attempt now: its success must not kill it as not requested.
            known.parent = item.parent
            mem.mark(known)
        mem.send(instructions.Respond(item.link, item.serial, 200, found.task, item.warning))
        return
    # A request of the same attempt, not of an earlier one: the attempt contradicts itself.
    if found.requested_by == item.parent.attempt:
        _respond(mem, item, 409, message=_key_conflict(item))
        return
    replace(mem, parent, known, item.child_key, now)
    _respond_created(mem, item, _make(mem, parent, family, item, now))


def _refusal(
    mem: memory.Memory, item: inputs.Spawn, parent: records.Task | None, *, itself: bool
) -> str:
    """Return why the request is refused, or "".

    `itself`: the attempt itself is at the other end of the link, not a worker that runs it.
    """
    if parent is None or parent.state.final or parent.ref != item.parent or not parent.held:
        return f"attempt {item.parent} is over, or is not the newest of its task"
    if not itself and (parent.worker is None or mem.links.get(item.link) is not parent.worker):
        return f"attempt {item.parent} does not run on this worker"
    # A kill has ended its children already: a child made now would be left running.
    if parent.intent is not records.Intent.NONE:
        return f"attempt {item.parent} is being stopped ({parent.reason})"
    return ""


def _key_conflict(item: inputs.Spawn) -> str:
    return (
        f"key {item.child_key.removeprefix('=')!r} already names another child of this attempt; "
        "give each child a key of its own"
    )


def _stored(known: records.Task) -> inputs.StoredChild:
    requested_by = known.parent.attempt if known.parent else 0
    return inputs.StoredChild(
        known.id,
        known.digest or b"",
        requested_by,
        known.state,
        known.run,
        families.earlier_of(known) if known.state.final else None,
    )


def _newest(mem: memory.Memory, found: inputs.StoredChild | None) -> inputs.StoredChild | None:
    """Return the stored child `found`, corrected if memory has a newer run of it, started by
    hand.
    """
    task = None if found is None else mem.tasks.get(found.task)
    if found is None or task is None:
        return found
    return msgspec.structs.replace(
        _stored(task), digest=found.digest, requested_by=found.requested_by
    )


def _make(
    mem: memory.Memory,
    parent: records.Task,
    family: records.Family,
    item: inputs.Spawn,
    now: inputs.Moment,
) -> records.Task:
    child = _record(mem, parent, item, item.task)
    families.adopt(family, child, item.parent, child_key=item.child_key)
    family.total += 1
    end_notifications.publish_parent(mem, family)
    task_starts.admit(mem, child, now)
    return child


def _make_again(
    mem: memory.Memory,
    parent: records.Task,
    family: records.Family,
    item: inputs.Spawn,
    found: inputs.StoredChild,
    now: inputs.Moment,
) -> None:
    """Start the next run of a child that failed under an earlier run of its parent."""
    child = _record(mem, parent, item, found.task)
    child.run = found.run + 1
    families.adopt(family, child, item.parent, child_key=item.child_key)
    families.replace_failed(mem, child, family)
    families.take_over(mem, child, found.earlier)
    task_starts.admit(mem, child, now)


def _record(
    mem: memory.Memory, parent: records.Task, item: inputs.Spawn, task: ids.TaskId
) -> records.Task:
    submission = model.Submission(
        task=task,
        namespace=parent.namespace,
        name=item.name,
        spec=item.spec,
        inputs=item.inputs,
        declared=False,
    )
    cluster = mem.cluster(parent.namespace, item.spec.queue_name)
    child = task_starts.new_run(next(mem.task_rows), submission, cluster)
    child.digest = item.digest
    return child


def replace(
    mem: memory.Memory,
    parent: records.Task,
    known: records.Task | None,
    child_key: str,
    now: inputs.Moment,
) -> None:
    """End the child of an earlier attempt, since its parent requests a different child with that
    key.

    `known`: the record of the child; None: it is finished already, and only the journal has it.
    """
    # Otherwise only the journal has that child, and it is over.
    if known is not None:
        message = f"attempt {parent.attempt} of its parent asked for another child instead"
        task_ends.kill(mem, known, now, reason=_R.REPLACED, message=message)
    parent.reason = _R.NON_DETERMINISTIC_RETRY
    parent.message = f"child {child_key} differs from the one that an earlier attempt asked for"
    mem.mark(parent)


def _respond_created(mem: memory.Memory, item: inputs.Spawn, child: records.Task) -> None:
    mem.send(instructions.Respond(item.link, item.serial, 201, child.id, item.warning))


def _respond(mem: memory.Memory, item: inputs.Spawn, status: int, *, message: str) -> None:
    mem.send(instructions.Respond(item.link, item.serial, status, None, message))
