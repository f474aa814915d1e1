"""Runs after the first: a spawned task starts again, by itself or with what failed around it. Pure.

Used by `machine`, and by `submissions` and `children` when a request finds a task that failed. A
run may go on with the children of the run before: those that succeeded are found as they are, those
that failed run again when they are requested.
"""

from kilnwork.api import attempts
from kilnwork.api import task as api_task
from kilnwork.dispatch import errors
from kilnwork.dispatch.machine import (
    dependencies,
    families,
    inputs,
    lifecycle,
    memory,
    notifications,
    records,
)
from kilnwork.kit import ids

_S = api_task.State


def rerun(mem: memory.Memory, item: inputs.Rerun, now: inputs.Moment) -> None:
    """Admit a new run of a spawned task that is over, or raise `RunRefused` if it runs already.

    It keeps parent and driver's key, to be shown and found again. Unless it is `of_family`, it is
    no child of the parent's run any more, whose counts stay unchanged.
    """
    current = mem.tasks.get(item.task)
    if current is not None and _is_under_way(current, item):
        raise errors.RunRefused(f"run {current.run} of it has been started already")
    _start(mem, item, now)


def retry_failed(mem: memory.Memory, item: inputs.RetryFailed, now: inputs.Moment) -> None:
    """Admit a new run of each of these tasks that is over."""
    for one in item.reruns:
        current = mem.tasks.get(one.task)
        if current is None or not _is_under_way(current, one):
            _start(mem, one, now)


def _is_under_way(current: records.Task, item: inputs.Rerun) -> bool:
    """Return whether it runs, or that run of it is over and its end not on disk yet."""
    return not current.state.final or current.run >= item.run


def take_over(mem: memory.Memory, task: records.Task, earlier: inputs.Earlier | None) -> None:
    """Let a new run go on with the children of an earlier one: they are its own from now on, and no
    attempt of it has requested any of them yet."""
    if earlier is None or not earlier.total:
        return
    family = families.of_run(task)
    family.total = earlier.total
    family.succeeded, family.failed = earlier.succeeded, earlier.failed
    requested = attempts.AttemptRef(task.id, task.run, 0)
    for name in earlier.unfinished:
        child = mem.tasks.get(name)
        if child is None or child.siblings is None or child.child_key is None:
            continue
        if child.state.final:  # its end is not on disk yet
            _count(family, child.state)
        families.adopt(family, child, requested, child_key=child.child_key)
    mem.batch.taken_over.append((task.id, earlier.run, task.run))


def earlier_of(task: records.Task) -> inputs.Earlier | None:
    """The children of a run that is over and still in memory."""
    family = task.family
    if family is None:
        return None
    unfinished = tuple(child.id for child in family.members.values() if not child.state.final)
    return inputs.Earlier(task.run, family.total, family.succeeded, family.failed, unfinished)


def replace_failed(mem: memory.Memory, task: records.Task, family: records.Family) -> None:
    """`task` is a new run of a child of that family which failed: it counts instead of that."""
    family.failed -= 1
    mem.batch.superseded.append((task.id, task.run))
    notifications.publish_parent(mem, family)


def _count(family: records.Family, state: api_task.State) -> None:
    if state is _S.SUCCESS:
        family.succeeded += 1
    else:
        family.failed += 1


def _start(mem: memory.Memory, item: inputs.Rerun, now: inputs.Moment) -> None:
    is_call = item.arguments is not None
    task = _call_again(mem, item) if is_call else _command_again(mem, item)
    task.run, task.parent = item.run, item.parent
    take_over(mem, task, item.earlier)
    if item.key is not None and not (item.of_family and _join_family(mem, task, item)):
        task.child_key = None if item.of_family else item.key
        mem.index_key(task)
    if is_call:
        task.created = task.pending_since = now.wall
        admit_call(mem, task, item.values, now)
    else:
        lifecycle.admit(mem, task, now)


def _join_family(mem: memory.Memory, task: records.Task, item: inputs.Rerun) -> bool:
    """Make it a child of its parent's run, if that is there to ask for it."""
    ref, key = item.parent, item.key
    parent = None if ref is None else mem.tasks.get(ref.task)
    if ref is None or key is None or parent is None or parent.run != ref.run:
        return False
    family = families.of_run(parent)
    families.adopt(family, task, ref, child_key=key)
    replace_failed(mem, task, family)
    return True


def admit_call(
    mem: memory.Memory,
    task: records.Task,
    values: inputs.Values,
    now: inputs.Moment,
) -> None:
    """A call is there: it waits for its turn, or for what it needs. `values`: how those ended."""
    mem.tasks[task.id] = task
    mem.batch.dirty[task] = None
    template = task.template
    if template is not None and template.timed:
        lifecycle.watch_deadlines(mem, task, now)
    if task.needs:
        dependencies.attach(mem, task, values)
        dependencies.ready(mem, (task,), now)
    else:
        lifecycle.enqueue(mem, task)


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
