"""Starts spawned tasks again as later runs, alone or with the failed tasks connected to them.

Does no I/O. Used by `machine`. A run may continue with the children of the previous run: children
that succeeded are found unchanged, children that failed run again when they are requested
(`submissions`, `child_spawning`).
"""

from kilnwork.dispatch import errors
from kilnwork.dispatch.machine import families, inputs, memory, records, submissions, task_starts
from kilnwork.kit import ids


def rerun(mem: memory.Memory, item: inputs.Rerun, now: inputs.Moment) -> None:
    """Admit a new run of a finished spawned task.

    Raises `RunRefused` if that run was started already, or if the task is being deleted.

    The run keeps its parent and the key that its driver gave, so that it is still shown and found
    under them. Unless it is `of_family`, it no longer counts as a child of the parent's run, whose
    counts stay unchanged.
    """
    _check_kept(mem, item)
    current = mem.tasks.get(item.task)
    if current is not None and _is_under_way(current, item):
        raise errors.RunRefused(f"run {current.run} of it has been started already")
    _start(mem, item, now)


def retry_failed(mem: memory.Memory, item: inputs.RetryFailed, now: inputs.Moment) -> None:
    """Admit a new run of each task in the input that has not been started again meanwhile.

    Raises `RunRefused`, and changes nothing, if any of the tasks is being deleted.
    """
    # All of them before the first one starts: a refusal must have no effect.
    for one in item.reruns:
        _check_kept(mem, one)
    for one in item.reruns:
        current = mem.tasks.get(one.task)
        if current is None or not _is_under_way(current, one):
            _start(mem, one, now)


def _check_kept(mem: memory.Memory, item: inputs.Rerun) -> None:
    if mem.pins.is_retiring(item.task):
        name = item.name or ids.task_text(item.task)
        raise errors.RunRefused(f"task {name} is being forgotten: submit it again instead")


def _is_under_way(current: records.Task, item: inputs.Rerun) -> bool:
    """Return whether the new run is running already, or has ended without its end being on disk
    yet.
    """
    return not current.state.final or current.run >= item.run


def _start(mem: memory.Memory, item: inputs.Rerun, now: inputs.Moment) -> None:
    is_call = item.arguments is not None
    task = _call_again(mem, item) if is_call else _command_again(mem, item)
    task.run, task.parent = item.run, item.parent
    # A prune deletes all rows of a task, and parents first: neither may go now.
    mem.pins.pin((task.id,) if item.parent is None else (task.id, item.parent.task))
    families.take_over(mem, task, item.earlier)
    if item.key is not None and not (item.of_family and _join_family(mem, task, item)):
        # Outside its family the key of a child would be taken for one that a driver gave.
        task.child_key = None if item.of_family else item.key
        mem.index_key(task)
    if is_call:
        task.created = task.pending_since = now.wall
        submissions.admit(mem, task, item.values, now)
    else:
        task_starts.admit(mem, task, now)


def _join_family(mem: memory.Memory, task: records.Task, item: inputs.Rerun) -> bool:
    """Make the task a child of its parent's run if that run is in memory; return whether it is."""
    ref, key = item.parent, item.key
    parent = None if ref is None else mem.tasks.get(ref.task)
    if ref is None or key is None or parent is None or parent.run != ref.run:
        return False
    family = families.of_run(parent)
    families.adopt(family, task, ref, child_key=key)
    families.replace_failed(mem, task, family)
    return True


def _call_again(mem: memory.Memory, item: inputs.Rerun) -> records.Task:
    template = mem.template(item.namespace, item.spec)
    return records.Task(
        next(mem.task_rows),
        item.task,
        item.run,
        item.namespace,
        item.name or "",
        template.cluster,
        False,
        template.spec,
        template=template,
        arguments=item.arguments,
        needs=item.needs,
        source=item.source,
    )


def _command_again(mem: memory.Memory, item: inputs.Rerun) -> records.Task:
    return records.Task(
        next(mem.task_rows),
        item.task,
        item.run,
        item.namespace,
        item.name or ids.task_text(item.task),
        mem.cluster(item.namespace, item.spec.queue_name),
        False,
        item.spec,
        inputs=item.inputs,
        digest=item.digest,
    )
