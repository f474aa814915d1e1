"""A new run of a spawned task that is over, because a person asks for it. Pure.

Used by `machine`. What the task is comes from the journal (`journal.reruns`), since memory has let
go of it. The new run keeps parent and driver's key for show and for who asks again; it is
no child of the parent's run any more, whose counts stay as they were.
"""

from kilnwork.dispatch import errors, model
from kilnwork.dispatch.machine import admission, inputs, lifecycle, memory, records
from kilnwork.kit import ids


def rerun(mem: memory.Memory, item: inputs.Rerun, now: inputs.Moment) -> None:
    """It enters as a task does that is new. Raises `RunRefused` when it has entered already."""
    current = mem.tasks.get(item.task)
    if current is not None and not current.state.final:
        raise errors.RunRefused(f"run {current.run} of it has been started already")
    is_call = item.arguments is not None and item.spec.call is not None
    task = _call(mem, item) if is_call else _command(mem, item)
    task.run, task.parent = item.run, item.parent
    if item.key is not None:
        task.child_key = item.key
        mem.index_key(task)
    if is_call:
        task.created = task.pending_since = now.wall
        admission.admit(mem, task, item.values, now)
    else:
        lifecycle.admit(mem, task, now)


def _call(mem: memory.Memory, item: inputs.Rerun) -> records.Task:
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


def _command(mem: memory.Memory, item: inputs.Rerun) -> records.Task:
    submission = model.Submission(
        task=item.task,
        namespace=item.namespace,
        name=item.name or ids.task_text(item.task),
        spec=item.spec,
        inputs=item.inputs,
        declared=False,
    )
    cluster = mem.cluster(item.namespace, item.spec.cluster_name)
    return records.of_submission(next(mem.task_rows), submission, cluster)
